"""Giving back what was rented: every instance, each on its own, until it is known to be gone or time is up.

Nothing that happens to one keeps another from being destroyed, and nothing here is raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from ropeway.launch.provider import Instance, Provider, ProviderError, Refused
from ropeway.smoke.clock import elapsed
from ropeway.smoke.steps import Deadline

LONGEST_PAUSE_S: Final = 8.0
MOST_REFUSALS: Final = 3
WORKERS: Final = 16


@dataclass(frozen=True, slots=True)
class Left:
    """What may still cost money: an instance, or (id None) whatever carries the run's label."""

    instance: int | None
    why: str


def destroy_all(
    provider: Provider,
    instances: Iterable[int],
    run: str,
    deadline: Deadline,
    *,
    pause_s: float,
    unclear: Mapping[str, float] | None = None,
    found: Callable[[Instance], None] = lambda _: None,
    gone: Callable[[int], None],
) -> list[Left]:
    """Destroy these and whatever else the service lists for the run; what is left.

    Gone is what the service neither knows by its id nor lists. `unclear` are labels of creates whose outcome is not
    known: each is looked for until its time (by `elapsed`) or until it was listed once. `found` hears of each that is
    listed, and `gone` of each that is known to be gone, in no thread but ours.
    """
    ids, away, still = set(instances), set[int](), set[int]()
    failed: dict[int, Left] = {}
    sought = dict(unclear or {})
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="destroy") as pool:
        while True:
            listed, why = _listed(provider, run)
            for instance in listed:
                found(instance)
                sought.pop(instance.label, None)
            if not why:
                here = {instance.id for instance in listed}
                for id_ in away - here:
                    gone(id_)
                ids, still, away = (ids - away) | here, still | (away & here), set()
            todo = ids - away - failed.keys()
            futures = {id_: pool.submit(_give_back, provider, id_, deadline, pause_s) for id_ in todo}
            for id_, future in futures.items():
                if reason := _outcome(future):
                    failed[id_] = Left(id_, reason)
                else:
                    away.add(id_)
            settled = not (why or away) and elapsed() >= max(sought.values(), default=0.0)
            if settled or deadline.left <= 0:
                break
            if why or still or not todo:
                time.sleep(min(max(pause_s, 0.05), deadline.left))
    left = list(failed.values())
    left += [Left(id_, "it is still listed after it was destroyed") for id_ in sorted(ids & still - failed.keys())]
    for id_ in away - still:  # destroyed as time ran out, and the service knows it no more
        gone(id_)
    if why:
        left.append(Left(None, f"instances of this run could not be listed: {why}"))
    return left


def _listed(provider: Provider, run: str) -> tuple[tuple[Instance, ...], str]:
    """What the service lists for the run; why it does not, empty where it does."""
    try:
        return provider.list_run(run), ""
    except ProviderError as error:
        return (), str(error)


def _give_back(provider: Provider, instance: int, deadline: Deadline, pause_s: float) -> str:
    """Destroy one until the service no longer knows it; why not, empty once it is gone."""
    refusals = 0
    while True:
        try:
            provider.destroy(instance)
            if provider.status(instance) is None:
                return ""
            why = "it is still listed after it was destroyed"
        except Refused as error:
            why = str(error)
            refusals += 1
        except ProviderError as error:
            why = str(error)
        if refusals >= MOST_REFUSALS or deadline.left <= 0:
            return why
        time.sleep(min(pause_s, deadline.left))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _outcome(future: Future[str]) -> str:
    error = future.exception()
    return f"{type(error).__name__}: {error}" if error is not None else future.result()

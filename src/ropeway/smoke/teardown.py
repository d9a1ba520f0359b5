"""Giving back what was rented: every instance, each on its own, until it is known to be gone or time is up.

Nothing that happens to one keeps another from being destroyed, and nothing here is raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from ropeway.launch.provider import Provider, ProviderError, Refused
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
    gone: Callable[[int], None],
) -> list[Left]:
    """Destroy these and whatever else the service lists for the run; what is left.

    `unclear` are labels of creates whose outcome is not known: each is looked for until its time (time.monotonic) or
    until it was listed once. `gone` hears of each that is known to be gone, in no thread but ours.
    """
    left: dict[int, Left] = {}
    done: set[int] = set()
    ids = set(instances)
    why = ""
    sought = dict(unclear or {})
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="destroy") as pool:
        while True:
            try:
                for instance in provider.list_run(run):
                    ids.add(instance.id)
                    sought.pop(instance.label, None)
                why = ""
            except ProviderError as error:
                why = str(error)
            futures = {id_: pool.submit(_give_back, provider, id_, deadline, pause_s) for id_ in ids - done}
            for id_, future in futures.items():
                failed = _outcome(future)
                if failed:
                    left[id_] = Left(id_, failed)
                else:
                    left.pop(id_, None)
                    gone(id_)
            done |= set(futures)
            again = bool(why) or time.monotonic() < max(sought.values(), default=0.0)
            if not again or deadline.left <= 0:
                break
            time.sleep(min(max(pause_s, 0.05), deadline.left))
    found = list(left.values())
    if why:
        found.append(Left(None, f"instances of this run could not be listed: {why}"))
    return found


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

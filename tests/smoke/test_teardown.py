"""Giving back: each on its own, again where it is worth it, and everything that is left is named."""

from __future__ import annotations

import time
from collections.abc import Callable

from ropeway.launch.provider import Denied, Instance, NotDone, Offer, Order, State, Unclear, Wanted
from ropeway.smoke.clock import elapsed
from ropeway.smoke.steps import Deadline
from ropeway.smoke.teardown import Left, destroy_all


class Service:
    """A provider whose destroys do what a test says; `listed` are instances that carry the run's label."""

    name, server = "fake", ""

    def __init__(self, *listed: int) -> None:
        self.alive = set(listed)
        self.listed = set(listed)
        self.moods: dict[int, list[Callable[[], None]]] = {}
        self.list_error: list[Exception] = []
        self.tries = 0

    def destroy(self, instance: int) -> None:
        self.tries += 1
        for mood in self.moods.get(instance, [])[:1]:
            self.moods[instance].pop(0)
            mood()
            return
        self.alive.discard(instance)

    def status(self, instance: int) -> Instance | None:
        return Instance(instance, "run/0", State.RUNNING) if instance in self.alive else None

    def list_run(self, label: str) -> tuple[Instance, ...]:
        if self.list_error:
            raise self.list_error.pop(0)
        return tuple(Instance(number, f"{label}/0", State.RUNNING) for number in self.listed & self.alive)

    def search(self, wanted: Wanted) -> tuple[Offer, ...]:
        raise AssertionError

    def create(self, offer: Offer, order: Order) -> int:
        raise AssertionError

    def logs(self, instance: int) -> str:
        raise AssertionError

    def destroy_command(self, instance: object) -> str:
        raise AssertionError

    def close(self) -> None:
        """Nothing to close."""


def fails(error: Exception) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


def nothing() -> None:
    """It says yes and does nothing."""


def tear_down(
    service: Service, *ids: int, limit_s: float = 20.0, unclear: tuple[str, ...] = ()
) -> tuple[list[Left], set[int]]:
    gone: set[int] = set()
    now = elapsed()
    deadline = Deadline("destroy", limit_s, now + limit_s, elapsed)
    left = destroy_all(
        service, ids, "run", deadline, pause_s=0.01, unclear=dict.fromkeys(unclear, now + 1000.0), gone=gone.add
    )
    return left, gone


def test_what_is_known_and_what_is_listed_goes() -> None:
    service = Service(1, 2, 3)
    assert tear_down(service, 1) == ([], {1, 2, 3})
    assert service.alive == set()


def test_it_is_tried_again_until_it_is_gone() -> None:
    service = Service(1)
    service.moods[1] = [fails(NotDone("429")), fails(Unclear("502")), nothing, fails(NotDone("429"))]
    assert tear_down(service, 1) == ([], {1})
    assert service.tries == 5


def test_a_refusal_is_not_repeated_for_ever() -> None:
    service = Service(1, 2)
    service.moods[1] = [fails(Denied("403")) for _ in range(50)]
    assert tear_down(service, 1, 2) == ([Left(1, "403")], {2})
    assert service.tries == 4


def test_a_fault_of_ours_in_one_does_not_keep_the_others() -> None:
    service = Service(1, 2)
    service.moods[1] = [fails(ZeroDivisionError("oh"))]
    assert tear_down(service, 1, 2) == ([Left(1, "ZeroDivisionError: oh")], {2})


def test_time_ends_it_and_says_what_is_left() -> None:
    service = Service(1, 2)
    service.moods[1] = [nothing for _ in range(10_000)]
    left, gone = tear_down(service, 1, 2, limit_s=0.2)
    assert left == [Left(1, "it is still listed after it was destroyed")]
    assert gone == {2}


def test_a_list_that_does_not_come_is_asked_for_again() -> None:
    service = Service(1)
    service.list_error = [NotDone("429"), Unclear("502")]
    assert tear_down(service) == ([], {1})


def test_a_list_that_never_comes_is_named() -> None:
    service = Service(1)
    service.list_error = [NotDone("429") for _ in range(10_000)]
    left, gone = tear_down(service, 1, limit_s=0.3)
    assert left == [Left(None, "instances of this run could not be listed: 429")]
    assert gone == {1}


def test_what_is_still_listed_is_destroyed_again() -> None:
    service = Service(1)
    service.status = lambda instance: None  # type: ignore[method-assign]
    service.moods[1] = [nothing, nothing]
    assert tear_down(service, 1) == ([], {1})
    assert service.tries == 3


def test_what_is_listed_for_ever_is_left() -> None:
    service = Service(1, 2)
    service.status = lambda instance: None  # type: ignore[method-assign]
    service.moods[1] = [nothing for _ in range(10_000)]
    left, gone = tear_down(service, 1, 2, limit_s=0.2)
    assert left == [Left(1, "it is still listed after it was destroyed")]
    assert gone == {2}


def test_an_instance_that_is_listed_late_is_found() -> None:
    service = Service()
    real = service.list_run
    looks = 0

    def late(label: str) -> tuple[Instance, ...]:
        nonlocal looks
        looks += 1
        if looks == 3:
            service.alive.add(9)
            service.listed.add(9)
        return real(label)

    service.list_run = late  # type: ignore[method-assign]
    assert tear_down(service, unclear=("run/0",)) == ([], {9})
    assert looks == 4, "it was looked for until it was found, and once more to see that it is gone"


def test_a_create_that_rented_nothing_is_looked_for_until_time_is_up() -> None:
    started = time.monotonic()
    assert tear_down(Service(1), 1, unclear=("run/7",), limit_s=0.3) == ([], {1})
    assert time.monotonic() - started >= 0.3

"""One end for every thread of a ring."""

from __future__ import annotations

import threading
import time

import pytest

from ropeway.transport import RingLost, RingStopped
from ropeway.transport.ending import failure
from ropeway.transport.life import Life
from ropeway.transport.mailbox import Mailbox
from ropeway.wire import ErrorCode, Fate, FateKind

STOP = Fate(FateKind.STOP, ErrorCode.NONE, 0, "enough")
LOST = failure(ErrorCode.PEER_LOST, 1, "rank 1 was lost")


def living(told: list[Fate] | None = None) -> Life:
    """A ring of two."""
    return Life(0, ("a:1", "b:2"), (told if told is not None else []).append)


def test_others_are_told_before_anybody_sees_the_end() -> None:
    seen: list[tuple[bool, bool]] = []
    life = Life(0, ("a:1", "b:2"), lambda fate: seen.append((life.ending, life.over)))
    woken: list[str] = []
    life.on_end(lambda: woken.append("early"))
    life.settle(STOP)
    life.settle(LOST)
    life.on_end(lambda: woken.append("late"))
    assert seen == [(True, False)]
    assert woken == ["early", "late"]
    with pytest.raises(RingStopped):
        life.check()


def test_each_thread_gets_an_exception_of_its_own() -> None:
    life = living()
    life.check()
    life.settle(LOST)
    caught = []
    for _ in range(2):
        with pytest.raises(RingLost) as info:
            life.leave()
        caught.append(info.value)
    assert caught[0] is not caught[1]
    assert str(caught[0]) == str(caught[1])


def test_a_thread_that_met_the_end_declares_it_when_the_watch_does_not() -> None:
    life = living()
    life.suspect(LOST)
    started = time.monotonic()
    with pytest.raises(RingLost):
        life.leave()
    assert 0.2 < time.monotonic() - started < 5.0


def test_a_guarded_thread_ends_the_ring_by_its_bug() -> None:
    told: list[Fate] = []
    life = living(told)
    with pytest.raises(ZeroDivisionError), life.guard("the sender"):
        _ = 1 // 0
    assert told[0].error is ErrorCode.ENGINE_FAILED
    assert "rank 0 (a:1): the sender failed: ZeroDivisionError" in told[0].text
    with life.guard("the reader"):
        life.check()


def test_a_mailbox_gives_in_order_and_ends_with_the_ring() -> None:
    life = living()
    box: Mailbox[int] = Mailbox(life)
    box.put(1)
    box.put(2)
    assert box.get() == 1
    assert box.get_within(1.0, lambda: LOST) == 2
    assert box.get_all() == []
    box.put(3)
    box.put(4)
    assert box.get_all() == [3, 4]
    waiting: list[type[BaseException]] = []

    def wait() -> None:
        try:
            box.get()
        except RingStopped as end:
            waiting.append(type(end))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    life.settle(STOP)
    for thread in threads:
        thread.join(5)
    assert waiting == [RingStopped] * 3
    box.put(5)
    for call in (box.get, box.get_all, lambda: box.get_within(1.0, lambda: LOST)):
        with pytest.raises(RingStopped):
            call()


def test_a_mailbox_that_stays_empty_ends_the_ring() -> None:
    life = living()
    box: Mailbox[int] = Mailbox(life)
    with pytest.raises(RingLost, match="rank 1 was lost"):
        box.get_within(0.01, lambda: LOST)

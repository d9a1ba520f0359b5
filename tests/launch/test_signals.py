"""What SIGINT and SIGTERM do to a command: with and without a ring, once and twice."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from ropeway.launch.signals import Interrupted, Interruption, interruptible


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The statuses with which the process would have ended."""
    statuses: list[int] = []
    monkeypatch.setattr(os, "_exit", statuses.append)
    yield statuses
    assert len(statuses) <= 1


def listen(patience_s: float, *numbers: int, over: bool = False) -> Interruption:
    """Have an interruption hear of signals by their numbers, and then that the main thread has come to its end."""
    ear, mouth = socket.socketpair()
    with mouth:
        mouth.send(bytes(numbers))
        if over:
            mouth.shutdown(socket.SHUT_WR)
        interruption = Interruption()
        interruption.listen(ear, patience_s)
    return interruption


@pytest.mark.parametrize(
    ("number", "status", "text"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
@pytest.mark.parametrize("guarded", [False, True])
def test_without_a_ring_it_is_raised(number: signal.Signals, status: int, text: str, guarded: bool) -> None:
    before = signal.getsignal(number)
    try:
        with pytest.raises(Interrupted, match=text) as caught, interruptible(guarded=guarded) as interruption:
            signal.raise_signal(number)
        assert caught.value.status == status
        assert str(interruption.cause) == text
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            assert signal.getsignal(each) is signal.SIG_IGN
            signal.signal(each, before)


def test_with_a_ring_it_ends_the_ring_and_raises_nothing() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ring_ended = threading.Event()
    try:
        with interruptible() as interruption:
            interruption.cover(ring_ended.set)
            signal.raise_signal(signal.SIGTERM)
            assert ring_ended.wait(10)
            assert interruption.cause is not None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_without_a_signal_everything_is_as_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interruptible() as interruption:
        assert interruption.cause is None
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_it_is_raised_once() -> None:
    interruption = Interruption()
    with pytest.raises(Interrupted):
        interruption.handle(signal.SIGINT, None)
    interruption.handle(signal.SIGINT, None)


def test_a_ring_that_begins_just_then_is_ended_too() -> None:
    interruption = listen(1.0, signal.SIGINT, over=True)
    calls: list[str] = []
    interruption.cover(lambda: calls.append("ended"))
    assert calls == ["ended"]


def test_nothing_but_the_end(ended: list[int]) -> None:
    assert listen(1.0, over=True).cause is None
    assert not ended


def test_twice_ends_the_process_at_once(ended: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    listen(60.0, signal.SIGINT, signal.SIGTERM)
    assert ended == [130]
    assert capfd.readouterr().err == "ropeway: interrupted\n"


def test_a_main_thread_that_does_not_come_back_is_not_waited_for(
    ended: list[int], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropeway.launch.signals.QUIET_S", 0.01)
    listen(0.02, signal.SIGTERM)
    assert ended == [143]
    assert capfd.readouterr().err.splitlines() == [
        "ropeway: terminated, but a forward is running (once more to end at once)",
        "ropeway: terminated",
    ]

"""Steps, their deadlines, and signals that raise only where a step waits."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from ropeway.smoke.attention import Attention, Interrupted, attentive
from ropeway.smoke.steps import Deadline, StepFailed, Steps


class Clock:
    """Time as a test has it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def attention() -> Iterator[Attention]:
    with attentive() as taken:
        yield taken


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_step_has_its_own_deadline_inside_the_total() -> None:
    clock = Clock()
    own, total = Deadline("names", 5.0, 200.0, clock), Deadline("reply", 500.0, 110.0, clock)
    assert (own.left, total.left) == (5.0, 10.0)
    own.check("pp-entry did not resolve")
    clock.now = 110.0
    with pytest.raises(StepFailed, match=r"pp-entry did not resolve within 5 s"):
        own.check("pp-entry did not resolve")
    with pytest.raises(StepFailed, match=r"the reply did not come before the run's --timeout"):
        total.check("the reply did not come")


def test_time_goes_on_while_this_machine_sleeps(attention: Attention, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(time, "clock_gettime", lambda number: now if number == 7 else 0.0)
    steps = Steps(300.0, {}, attention)
    now += 4000.0
    with pytest.raises(StepFailed, match="before the run's --timeout"), steps.step("running") as deadline:
        deadline.check("it did not run")


def test_the_record_names_every_step_and_the_one_that_failed(attention: Attention) -> None:
    clock = Clock()
    begun: list[str] = []
    steps = Steps(60.0, {"search": 7.0}, attention, begun.append, clock)
    with steps.step("search") as deadline:
        assert deadline.left == 7.0
        clock.now += 2.0
    with contextlib.suppress(StepFailed), steps.step("create"):
        clock.now += 1.0
        raise StepFailed("no")
    with steps.teardown() as deadline:
        assert deadline.left == steps.limit("destroy")
        clock.now += 3.0
    assert [(step.name, step.seconds, step.ok) for step in steps.done] == [
        ("search", 2.0, True),
        ("create", 1.0, False),
        ("destroy", 3.0, True),
    ]
    assert (steps.failed, begun) == ("create", ["search", "create", "destroy"])


def test_a_signal_raises_inside_a_step(attention: Attention) -> None:
    steps = Steps(60.0, {}, attention)
    with pytest.raises(Interrupted, match="interrupted"), steps.step("search"):
        interrupt()
    assert steps.failed == "search"


def test_a_signal_outside_a_step_raises_in_the_next_one(attention: Attention) -> None:
    steps = Steps(60.0, {}, attention)
    interrupt()
    with pytest.raises(Interrupted), steps.step("search"):
        raise AssertionError("the step must not begin")


def test_a_call_that_is_held_together_is_not_cut_in_two(attention: Attention) -> None:
    steps = Steps(60.0, {}, attention)
    whole = False
    with contextlib.suppress(Interrupted), steps.step("create"):
        with steps.hold():
            interrupt()
            whole = True
        raise AssertionError("it raises behind the call")
    assert whole
    assert not steps.done[-1].ok


def test_a_call_that_is_held_together_and_fails_does_not_swallow_the_signal(attention: Attention) -> None:
    steps = Steps(60.0, {}, attention)

    def fails() -> None:
        with contextlib.suppress(OSError), steps.hold():
            interrupt()
            raise OSError

    with pytest.raises(Interrupted), steps.step("create"):
        fails()


def test_nothing_raises_in_the_teardown_nor_a_second_time(attention: Attention) -> None:
    steps = Steps(60.0, {}, attention)
    with pytest.raises(Interrupted), steps.step("reply"):
        interrupt()
    with steps.teardown():
        interrupt()
        os.kill(os.getpid(), signal.SIGTERM)
    with steps.step("search"):
        interrupt()


def test_a_hangup_that_nohup_turned_off_stays_off() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with attentive():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_handlers_are_as_they_were_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with attentive():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before

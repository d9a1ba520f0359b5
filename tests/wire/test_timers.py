"""Timers with made-up time."""

from __future__ import annotations

import math

import pytest

from ropeway.wire import KEEPALIVE_S, SILENCE_S, KeepAlive, Silence


def test_the_intervals_are_those_of_the_page() -> None:
    assert (KEEPALIVE_S, SILENCE_S) == (2.0, 6.0)


def test_a_keepalive_is_due_two_seconds_after_the_last_plan() -> None:
    timer = KeepAlive()
    timer.sent(100.0)
    assert timer.next_at() == 102.0
    assert not timer.due(101.9)
    assert timer.due(102.0)
    timer.sent(101.5)
    assert not timer.due(103.4)
    assert timer.due(103.5)


def test_a_peer_is_lost_after_six_seconds_of_silence() -> None:
    timer = Silence()
    timer.heard(100.0)
    assert timer.next_at() == 106.0
    assert not timer.due(105.9)
    assert timer.due(106.0)
    timer.heard(105.0)
    assert not timer.due(110.9)
    assert timer.due(111.0)


def test_timers_stand_still_until_they_are_started() -> None:
    for timer in (KeepAlive(), Silence()):
        assert timer.next_at() == math.inf
        assert not timer.due(1e9)


@pytest.mark.parametrize("slow_s", [0.0, 0.5, 1.9])
def test_keepalives_keep_a_slow_peer_alive(slow_s: float) -> None:
    """A plan each 2 s, heard up to 1.9 s late, never lets the silence run out; none at all does, 6 s later."""
    keepalive, silence = KeepAlive(), Silence()
    keepalive.sent(0.0)
    silence.heard(slow_s)
    for _ in range(100):
        now = keepalive.next_at()
        assert keepalive.due(now)
        keepalive.sent(now)
        assert not silence.due(now + slow_s)
        silence.heard(now + slow_s)
    assert silence.due(200.0 + slow_s + SILENCE_S)

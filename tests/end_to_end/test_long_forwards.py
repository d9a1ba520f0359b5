"""A rank in the middle of a forward, which nothing can interrupt: it is not silent, and it ends in time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from end_to_end.by_hand import HandRing, free_addresses
from end_to_end.processes import Yard
from end_to_end.test_faults import KILLED_S

pytestmark = pytest.mark.timeout(240)

SLOW = """
import ctypes, itertools, os, time
from ropeway.engines.llamacpp.engine import LlamaCppEngine
calls, forward = itertools.count(), LlamaCppEngine.forward
def slow(self, *args):
    if next(calls) == 60:
        os.write(2, b"in a long forward\\n")
        {how}
        os.write(2, b"out of it\\n")
    return forward(self, *args)
LlamaCppEngine.forward = slow
"""
FOREVER = SLOW.format(
    how="""lib, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(256)
        lib.pthread_mutex_init(mutex, None), lib.pthread_mutex_lock(mutex), lib.pthread_mutex_lock(mutex)"""
)
"""A call into C that no signal ends, and that does not hold the interpreter's lock, as a forward is."""
AWHILE = SLOW.format(how="time.sleep(7.5)")
"""Longer than the 6 s after which a rank that says nothing is lost."""


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory, small: str) -> Iterator[dict[str, HandRing]]:
    """Rings of which one rank goes into a forward that lasts, side by side."""
    yard = Yard(tmp_path_factory.mktemp("forwards"))
    with ExitStack() as stack:
        stack.callback(yard.end)
        made = {}
        for name, rank, prelude in (
            ("awhile", 1, AWHILE),
            ("stage killed", 0, FOREVER),
            ("head killed", 1, FOREVER),
            ("interrupted twice", 0, FOREVER),
            ("stage interrupted", 1, FOREVER),
        ):
            made[name] = HandRing(yard, small, stack.enter_context(free_addresses(2)), f"{name.replace(' ', '-')}-")
            made[name].start(preludes={rank: prelude})
            made[name].ranks[rank].until(lambda process: "in a long forward" in process.err)
        yield made


@pytest.mark.parametrize(("name", "killed"), [("stage killed", 1), ("head killed", 0)])
def test_a_rank_ends_in_time_in_the_middle_of_its_forward(rings: dict[str, HandRing], name: str, killed: int) -> None:
    ring = rings[name]
    other = ring.ranks[1 - killed]
    began = ring.ranks[killed].signal(signal.SIGKILL)
    assert other.status() == 70, other.said()
    assert other.ended_at - began < KILLED_S
    assert f"rank {killed} ({ring.addresses[killed]}) was lost" in other.err


def test_interrupted_twice_it_ends_at_once(rings: dict[str, HandRing]) -> None:
    rank0, stage = rings["interrupted twice"].ranks.values()
    rank0.signal(signal.SIGINT)
    rank0.until(lambda rank0: "(once more to end at once)" in rank0.err)
    began = rank0.signal(signal.SIGINT)
    assert rank0.status() == 130
    assert rank0.ended_at - began < 1.0
    assert rank0.err.endswith("ropeway: interrupted\n")
    assert stage.status() == 0


def test_an_interrupted_stage_ends_in_the_middle_of_its_forward(rings: dict[str, HandRing]) -> None:
    rank0, stage = rings["stage interrupted"].ranks.values()
    began = stage.signal(signal.SIGINT)
    assert stage.status() == 130
    assert stage.ended_at - began < KILLED_S
    assert rank0.status() == 70
    assert "was interrupted" in rank0.err


def test_a_long_forward_is_not_silence(rings: dict[str, HandRing]) -> None:
    rank0, stage = rings["awhile"].ranks.values()
    stage.until(lambda stage: "out of it" in stage.err)
    length = len(rank0.out)
    rank0.until(lambda rank0: len(rank0.out) > length)
    rank0.signal(signal.SIGINT)
    assert (rank0.status(), stage.status()) == (130, 0), rank0.said()

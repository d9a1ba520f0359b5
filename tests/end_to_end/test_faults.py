"""A rank is killed or stopped while a reply runs: every other one ends in time, by name, and keeps what it printed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from end_to_end.by_hand import HandRing, free_addresses
from end_to_end.processes import Yard

pytestmark = pytest.mark.timeout(240)

KILLED_S = 2.0
STOPPED_S = 8.0
EVERY_RANK = [(world, rank) for world in (2, 3) for rank in range(world)]


def check_ended(ring: HandRing, lost: int, began: float, limit_s: float, before: str) -> None:
    """Every rank but `lost` has ended in time with status 70 and names it; the reply so far is still there."""
    for rank, process in ring.ranks.items():
        if rank == lost:
            continue
        assert process.status() == 70, ring.said()
        assert process.ended_at - began < limit_s, f"rank {rank}: {process.ended_at - began:.2f} s\n{ring.said()}"
        assert f"rank {lost} ({ring.addresses[lost]})" in process.err, ring.said()
        assert "Traceback" not in process.err
    out = ring.ranks[0].out
    assert out.startswith(before.rstrip("\n"))
    assert len(before) > 20
    if lost:
        assert out.endswith("\n")


@dataclass(slots=True)
class Stopped:
    """A ring of which one rank has been stopped, when, and what was printed before."""

    ring: HandRing
    began: float
    before: str


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, small: str) -> Iterator[dict[tuple[int, int], Stopped]]:
    """All cases side by side, while other tests run: a ring with a stopped rank costs nothing until it is given up."""
    yard = Yard(tmp_path_factory.mktemp("stopped"))
    cases: dict[tuple[int, int], Stopped] = {}
    with ExitStack() as stack:
        stack.callback(yard.end)
        for world, rank in EVERY_RANK:
            ring = HandRing(yard, small, stack.enter_context(free_addresses(world)), f"{rank}of{world}-")
            ring.stream()
            before = ring.ranks[0].out
            cases[world, rank] = Stopped(ring, ring.ranks[rank].signal(signal.SIGSTOP), before)
        yield cases


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize(("world", "rank"), EVERY_RANK)
def test_a_killed_rank_ends_the_ring(yard: Yard, small: str, world: int, rank: int) -> None:
    with free_addresses(world) as addresses:
        ring = HandRing(yard, small, addresses)
        ring.stream()
        before = ring.ranks[0].out
        began = ring.ranks[rank].signal(signal.SIGKILL)
        check_ended(ring, rank, began, KILLED_S, before)


def test_a_killed_rank_ends_a_ring_whose_last_rank_chooses(yard: Yard, small: str) -> None:
    with free_addresses(2) as addresses:
        ring = HandRing(yard, small, addresses)
        ring.stream("--sampler", "last")
        before = ring.ranks[0].out
        began = ring.ranks[1].signal(signal.SIGKILL)
        check_ended(ring, 1, began, KILLED_S, before)


def test_a_terminated_stage_says_so_to_the_others(yard: Yard, small: str) -> None:
    with free_addresses(2) as addresses:
        ring = HandRing(yard, small, addresses)
        ring.stream()
        ring.ranks[1].signal(signal.SIGTERM)
        assert ring.ranks[1].status() == 143
        assert "Traceback" not in ring.ranks[1].err
        assert ring.ranks[0].status() == 70
        assert f"rank 1 ({addresses[1]}) was interrupted" in ring.ranks[0].err


@pytest.mark.parametrize(("world", "rank"), EVERY_RANK)
def test_a_stopped_rank_ends_the_ring(stopped: dict[tuple[int, int], Stopped], world: int, rank: int) -> None:
    case = stopped[world, rank]
    check_ended(case.ring, rank, case.began, STOPPED_S, case.before)
    assert all("silence" in p.err for number, p in case.ring.ranks.items() if number != rank)

"""Whoever comes to a rank's port, and a proved rank that breaks the rules: named on both sides, and no ring hangs."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from end_to_end.by_hand import LONG, HandRing, free_addresses
from end_to_end.outsiders import GARBAGE, HandPlace, SlowDialer, played_head, played_stage, reach, say
from end_to_end.processes import LIMIT_S, Yard
from ropeway.wire import Channel, ErrorCode, Header, Kind, encode_header
from transport.puppet import Puppet

pytestmark = pytest.mark.timeout(240)


def pester(address: str, here: HandPlace, channel: Channel, rank: int) -> None:
    """All that a stranger can do in no time; each is answered by name where there is somebody to hear it."""
    hello = here.hello_frame(channel, rank)
    assert say(address, GARBAGE) == "bad_magic"
    assert say(address, hello[:50], hang_up=True) == ""
    assert say(address, hello + GARBAGE) in ("bad_magic", "duplicate_rank")
    assert say(address, hello[:32] + bytes(80)) == "bad_value"
    assert say(address, encode_header(Header(Kind.PLAN, 1, 0, 0, 1 << 20)) + bytes(100)) == "illegal_frame"


def test_a_ring_forms_and_runs_among_strangers(yard: Yard, small: str) -> None:
    with free_addresses(2) as addresses, contextlib.ExitStack() as stack:
        ring = HandRing(yard, small, addresses)
        rank0 = ring.run(*LONG)
        here = HandPlace(ring)
        mute = [stack.enter_context(reach(addresses[0])) for _ in range(3)]
        pester(addresses[0], here, Channel.CONTROL, 1)

        stage = ring.stage(1, "--context", "32000")
        rank0.until(lambda rank0: bool(rank0.out))
        pester(addresses[0], here, Channel.CONTROL, 1)
        pester(addresses[1], here, Channel.ROWS, 0)
        crowd = [stack.enter_context(reach(address)) for address in addresses for _ in range(20)]

        length = len(rank0.out)
        rank0.until(lambda rank0: len(rank0.out) > length + 20)
        for process in ring.ranks.values():
            assert "bad_magic" in process.err
        rank0.until(lambda rank0: "did not prove itself before others came" in rank0.err)
        assert len(mute) + len(crowd) == 43
        rank0.signal(signal.SIGINT)
        assert (rank0.status(), stage.status()) == (130, 0), ring.said()


def speak_otherwise(puppet: Puppet) -> None:
    puppet.control.send(GARBAGE)


def cut_done_short(puppet: Puppet) -> None:
    puppet.control.send(encode_header(Header(Kind.DONE, 1, 0, 0, 32)), bytes(5))
    puppet.control.sock.close()


def cut_plan_short(puppet: Puppet) -> None:
    puppet.control.send(encode_header(Header(Kind.PLAN, 1, 0, 0, 32)), bytes(5))
    puppet.control.sock.close()


def send_other_rows(puppet: Puppet) -> None:
    puppet.out.send(GARBAGE)


def cut_rows_short(puppet: Puppet) -> None:
    puppet.out.send(encode_header(Header(Kind.ROWS, 1, 1, 0, 256))[:20])
    puppet.out.sock.close()


STAGE_ACTS: dict[str, tuple[Callable[[Puppet], None], ErrorCode]] = {
    "garbage on control": (speak_otherwise, ErrorCode.BAD_MAGIC),
    "a done cut short": (cut_done_short, ErrorCode.TRUNCATED),
    "garbage for rows": (send_other_rows, ErrorCode.BAD_MAGIC),
    "rows cut short": (cut_rows_short, ErrorCode.TRUNCATED),
}
HEAD_ACTS: dict[str, tuple[Callable[[Puppet], None], ErrorCode]] = {
    "garbage on control": (speak_otherwise, ErrorCode.BAD_MAGIC),
    "a plan cut short": (cut_plan_short, ErrorCode.TRUNCATED),
    "rows cut short": (cut_rows_short, ErrorCode.TRUNCATED),
}


@pytest.fixture(scope="module")
def dialled_slowly(tmp_path_factory: pytest.TempPathFactory, small: str) -> Iterator[tuple[HandRing, SlowDialer]]:
    """A rank 0 that waits for its stage, and somebody who takes forever to say hello; both wait during other tests."""
    yard = Yard(tmp_path_factory.mktemp("slowly"))
    with ExitStack() as stack:
        stack.callback(yard.end)
        ring = HandRing(yard, small, stack.enter_context(free_addresses(2)))
        ring.run(*LONG)
        yield ring, SlowDialer(ring.addresses[0], HandPlace(ring).hello_frame(Channel.CONTROL, 1))


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory, small: str) -> Iterator[dict[tuple[int, str], HandRing]]:
    """A process for each case, all started at once: rank 0 for what a stage does, rank 1 for what rank 0 does."""
    yard = Yard(tmp_path_factory.mktemp("halves"))
    rings = {}
    with ExitStack() as stack:
        stack.callback(yard.end)
        for played, acts in ((1, STAGE_ACTS), (0, HEAD_ACTS)):
            for number, name in enumerate(acts):
                ring = HandRing(yard, small, stack.enter_context(free_addresses(2)), f"{played}-{number}-")
                if played:
                    ring.run(*LONG)
                else:
                    ring.stage(1, "--context", "32000")
                rings[played, name] = ring
        yield rings


@pytest.mark.usefixtures("dialled_slowly")
@pytest.mark.parametrize("name", STAGE_ACTS)
def test_a_stage_that_breaks_the_rules_is_named(halves: dict[tuple[int, str], HandRing], name: str) -> None:
    act, code = STAGE_ACTS[name]
    ring = halves[1, name]
    with played_stage(ring) as puppet:
        act(puppet)
        check_named(ring, 0, 1, code, puppet)


@pytest.mark.parametrize("name", HEAD_ACTS)
def test_a_rank_0_that_breaks_the_rules_is_named(halves: dict[tuple[int, str], HandRing], name: str) -> None:
    act, code = HEAD_ACTS[name]
    ring = halves[0, name]
    with played_head(ring) as puppet:
        act(puppet)
        check_named(ring, 1, 0, code, puppet)


def test_a_slow_dialer_is_dropped_and_holds_nobody_up(dialled_slowly: tuple[HandRing, SlowDialer]) -> None:
    ring, dialer = dialled_slowly
    rank0 = ring.ranks[0]
    stage = ring.stage(1, "--context", "32000")
    rank0.until(lambda rank0: bool(rank0.out))
    assert dialer.dropped.wait(LIMIT_S)
    rank0.until(lambda rank0: "did not prove itself in time" in rank0.err)
    rank0.signal(signal.SIGINT)
    assert (rank0.status(), stage.status()) == (130, 0), ring.said()


def check_named(ring: HandRing, real: int, played: int, code: ErrorCode, puppet: Puppet) -> None:
    """The process has ended and says why; the rank that the test plays hears the same."""
    heard = puppet.back.fate()
    assert (heard.error, heard.rank) == (code, played)
    assert f"rank {played} ({ring.addresses[played]})" in heard.text
    process = ring.ranks[real]
    assert process.status() == 70, process.said()
    assert f"{code.label}: {heard.text}" in process.err, process.said()
    assert "Traceback" not in process.err

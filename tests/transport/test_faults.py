"""A proved peer that breaks the rules, leaves, or tells of an end: who is named, and what the others hear."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ropeway.transport import RingEnded, RingLost, RingStopped, join
from ropeway.transport.ending import failure
from ropeway.wire import (
    Channel,
    Done,
    ErrorCode,
    Fate,
    FateKind,
    Header,
    Kind,
    Op,
    Plan,
    Returns,
    StreamEntry,
    encode_header,
)
from transport.puppet import Puppet, Wire, accept, dial, puppet_head, puppet_stage
from transport.rings import ROW_BYTES, layout, place, prompt, wait_until

PROMPTLY_S = 1.0


def end_of(call: Callable[[], object]) -> RingEnded:
    """How a call that waits ended, which must be soon."""
    started = time.monotonic()
    with pytest.raises(RingEnded) as caught:
        call()
    assert time.monotonic() - started < PROMPTLY_S
    return caught.value


def rows_header(
    round_: int = 1, rows: int = 1, part: int = 0, length: int = ROW_BYTES, kind: Kind = Kind.ROWS
) -> bytes:
    """A header as the last rank would send it."""
    return encode_header(Header(kind, round_, rows, part, length))


def break_control(puppet: Puppet) -> None:
    puppet.control.send(b"GET / HTTP/1.1\r\nHost: ring\r\n\r\n" + bytes(32))


def send_plan_backwards(puppet: Puppet) -> None:
    puppet.control.send_frame(Kind.PLAN, Plan().encode(), round_=1)


def lie_about_rank(puppet: Puppet) -> None:
    puppet.control.send_frame(Kind.DONE, Done(0).encode(), round_=1)


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (break_control, ErrorCode.BAD_MAGIC),
        (send_plan_backwards, ErrorCode.ILLEGAL_FRAME),
        (lie_about_rank, ErrorCode.WRONG_RANK),
    ],
)
def test_a_broken_rule_on_control_is_named_on_both_sides(act: Callable[[Puppet], None], code: ErrorCode) -> None:
    with puppet_stage() as (ring, puppet):
        ring.send_plan(prompt(1, 1))
        act(puppet)
        end = end_of(lambda: ring.receive_rows(1, 0))
        assert (end.code, end.rank) == (code, 1)
        assert "rank 1 (" in end.text
        for wire in puppet.wires:
            fate = wire.fate()
            assert (fate.what, fate.error, fate.rank, fate.text) == (FateKind.FAIL, code, 1, end.text)


@pytest.mark.parametrize(
    ("sent", "code", "words"),
    [
        (
            rows_header(rows=2, length=2 * ROW_BYTES),
            ErrorCode.ROWS_LENGTH,
            "2 rows in 512 bytes, the plan implies part 0",
        ),
        (rows_header(length=ROW_BYTES + 4), ErrorCode.ROWS_LENGTH, "1 rows in 260 bytes"),
        (rows_header(round_=2), ErrorCode.ROUND_ORDER, "round is 2"),
        (rows_header(part=1), ErrorCode.ROUND_ORDER, "part is 1"),
        (rows_header(rows=0, length=24, kind=Kind.TOKENS), ErrorCode.ILLEGAL_FRAME, "a tokens frame"),
        (rows_header(rows=0, length=0, kind=Kind.HELLO), ErrorCode.ILLEGAL_FRAME, "a hello frame"),
        (bytes(32), ErrorCode.BAD_MAGIC, "magic"),
        (rows_header()[:31] + b"\x00", ErrorCode.BAD_CHECK, "check"),
    ],
)
@pytest.mark.parametrize("slowly", [False, True])
def test_rows_that_the_plan_does_not_imply_are_named(sent: bytes, code: ErrorCode, words: str, slowly: bool) -> None:
    with puppet_stage() as (ring, puppet):
        number = ring.send_plan(prompt(1, 1))
        if slowly:
            for at in range(32):
                puppet.out.send(sent[at : at + 1])
        else:
            puppet.out.send(sent, bytes(ROW_BYTES))
        end = end_of(lambda: ring.receive_rows(number, 0))
        assert (end.code, end.rank) == (code, 1)
        assert words in end.text
        assert puppet.back.fate().error is code


def test_more_rows_than_the_plan_implies_are_found_with_the_next_plan() -> None:
    with puppet_stage() as (ring, puppet):
        number = ring.send_plan(prompt(1, 1))
        puppet.out.send(rows_header(), bytes(ROW_BYTES), rows_header(), bytes(ROW_BYTES))
        ring.receive_rows(number, 0)
        ring.release_rows()
        number = ring.send_plan(prompt(2, 1))
        assert end_of(lambda: ring.receive_rows(number, 0)).code is ErrorCode.ROUND_ORDER


@pytest.mark.parametrize("length", [1, 31, 32, 100])
def test_a_rows_frame_cut_short(length: int) -> None:
    with puppet_stage() as (ring, puppet):
        number = ring.send_plan(prompt(1, 1))
        puppet.out.send((rows_header() + bytes(ROW_BYTES))[:length])
        puppet.out.sock.close()
        end = end_of(lambda: ring.receive_rows(number, 0))
        assert (end.code, end.rank) == (ErrorCode.TRUNCATED, 1)
        assert "rank 1 (" in end.text
        assert puppet.control.fate().error is ErrorCode.TRUNCATED


def test_a_control_frame_cut_short() -> None:
    with puppet_stage() as (ring, puppet):
        puppet.control.send(encode_header(Header(Kind.DONE, 0, 0, 0, 32)), bytes(20))
        puppet.control.sock.close()
        end = end_of(ring.next_done)
        assert (end.code, end.rank) == (ErrorCode.TRUNCATED, 1)


@pytest.mark.parametrize("which", ["control", "out", "back"])
def test_any_connection_that_ends_without_a_word_ends_the_ring(which: str) -> None:
    with puppet_stage() as (ring, puppet):
        wire: Wire = getattr(puppet, which)
        wire.sock.close()
        end = end_of(ring.next_done)
        assert (end.code, end.rank) == (ErrorCode.PEER_LOST, 1)
        others = [other for other in puppet.wires if other is not wire]
        assert [other.fate().rank for other in others] == [1, 1]


def test_a_fate_that_comes_soon_is_preferred_to_the_end_of_a_connection() -> None:
    """Rank 2's rows connection just ends; that it left because of rank 1's engine is told on another connection."""
    with place(layout(3)) as here, ThreadPoolExecutor(1) as pool:
        joining = pool.submit(join, here.config(0))
        one, two = dial(here, Channel.CONTROL, 1, 0), dial(here, Channel.CONTROL, 2, 0)
        rows_in = accept(here, 1)
        rows_out = dial(here, Channel.ROWS, 2, 0)
        with joining.result(10) as ring:
            rows_out.sock.close()
            two.sock.close()
            one.send(*one.link.send_fate(failure(ErrorCode.ENGINE_FAILED, 1, "rank 1: no memory")))
            end = end_of(ring.next_done)
        assert (end.code, end.rank) == (ErrorCode.ENGINE_FAILED, 1)
        assert "rank 1: no memory" in end.text
        rows_in.sock.close()
        one.sock.close()


def test_a_fate_is_passed_on_as_it_was_said() -> None:
    with puppet_head() as (ring, puppet):
        said = Fate(FateKind.FAIL, ErrorCode.SILENCE, 0, "rank 0 says\x1b nothing")
        puppet.control.send(*puppet.control.link.send_fate(said))
        end = end_of(ring.next_plan)
        assert isinstance(end, RingLost)
        assert (end.code, end.rank, end.text) == (ErrorCode.SILENCE, 0, "rank 0 says? nothing")
        assert puppet.back.fate().text == end.text


def test_a_stop_is_an_orderly_end_for_all_that_wait() -> None:
    with puppet_head() as (ring, puppet):
        puppet.out.send(*puppet.out.link.send_fate(Fate(FateKind.STOP, ErrorCode.NONE, 0)))
        assert isinstance(end_of(ring.next_plan), RingStopped)
        assert puppet.control.fate().what is FateKind.STOP


def plan_frame(puppet: Puppet, number: int, plan: Plan) -> bytes:
    """A plan as rank 0 sends it."""
    return b"".join(puppet.control.link.send_plan(number, plan.encode()))


def test_rows_may_come_before_their_plan() -> None:
    with puppet_head() as (ring, puppet):
        rows = bytes(range(256)) * (2 * ROW_BYTES // 256)
        puppet.out.send(rows_header(rows=2, length=len(rows)), rows)
        assert ring._rows is not None
        reader = ring._rows.inflow._reader
        wait_until(lambda: reader.holds_early)
        puppet.control.send(plan_frame(puppet, 1, prompt(1, 2)))
        number, plan = ring.next_plan()
        assert (number, plan) == (1, prompt(1, 2))
        assert ring.receive_rows(1, 0) == rows
        ring.release_rows()


def test_rows_after_a_drain_in_one_segment_are_not_lost() -> None:
    with puppet_head() as (ring, puppet):
        puppet.control.send(plan_frame(puppet, 1, prompt(1, 2, (1,))))
        ring.next_plan()
        link = puppet.out.link
        drain = b"".join(link.send_fate(Fate(FateKind.DRAIN, ErrorCode.NONE, 0, "soon")))
        rows = [bytes([part]) * ROW_BYTES for part in range(2)]
        frames = [b"".join(link.send_rows(1, part, 1, memoryview(piece))) for part, piece in enumerate(rows)]
        puppet.out.send(drain + frames[0][:10])
        puppet.out.send(frames[0][10:] + drain[:40])
        assert ring.receive_rows(1, 0) == rows[0]
        ring.release_rows()
        puppet.out.send(drain[40:] + frames[1])
        assert ring.receive_rows(1, 1) == rows[1]
        ring.release_rows()
        assert ring.draining


def test_rows_in_any_pieces() -> None:
    with puppet_head() as (ring, puppet):
        puppet.control.send(plan_frame(puppet, 1, prompt(1, 3, (1,))))
        ring.next_plan()
        whole = (
            rows_header()
            + bytes(ROW_BYTES)
            + rows_header(rows=2, part=1, length=2 * ROW_BYTES)
            + b"\x05" * 2 * ROW_BYTES
        )

        def dribble() -> None:
            for at in range(0, len(whole), 7):
                puppet.out.send(whole[at : at + 7])

        threading.Thread(target=dribble).start()
        assert ring.receive_rows(1, 0) == bytes(ROW_BYTES)
        ring.release_rows()
        assert ring.receive_rows(1, 1) == b"\x05" * 2 * ROW_BYTES
        ring.release_rows()


def test_keepalives_are_answered_while_the_stage_computes() -> None:
    with puppet_head() as (ring, puppet):
        puppet.control.send(plan_frame(puppet, 1, Plan()))
        header, _ = puppet.control.until(Kind.DONE)
        assert header.round == 0
        puppet.control.send(plan_frame(puppet, 2, Plan((StreamEntry(1, Op.CLOSE),))))
        number, _ = ring.next_plan()
        ring.done(number, Done(1))
        assert puppet.control.until(Kind.DONE)[0].round == 2
        puppet.control.send(plan_frame(puppet, 3, Plan((StreamEntry(2, Op.CLOSE),))), plan_frame(puppet, 4, Plan()))
        assert puppet.control.until(Kind.DONE)[0].round == 2
        assert ring.next_plan()[0] == 3


def test_keepalives_come_while_rank_0_computes_and_answers_are_not_dones() -> None:
    with puppet_stage() as (ring, puppet):
        number = ring.send_plan(prompt(1, 1))
        puppet.control.until(Kind.PLAN)
        started = time.monotonic()
        header, payload = puppet.control.until(Kind.PLAN)
        assert 1.5 < time.monotonic() - started < 3.5
        assert (header.round, payload) == (number + 1, Plan().encode())
        puppet.control.send(*puppet.control.link.send_alive())
        puppet.control.send_frame(Kind.DONE, Done(1, (), 5).encode(), round_=number)
        puppet.control.send_frame(Kind.DONE, Done(1).encode(), round_=number)
        assert ring.next_done() == (1, number, Done(1, (), 5))
        assert ring.dones() == []


def test_a_plan_over_capacity_is_refused() -> None:
    with puppet_head() as (ring, puppet):
        puppet.control.send(plan_frame(puppet, 1, prompt(1, 70_000)))
        end = end_of(ring.next_plan)
        assert (end.code, end.rank) == (ErrorCode.OVER_CAPACITY, 0)


@pytest.mark.parametrize("end", [True, False])
def test_a_peer_that_takes_no_rows(end: bool) -> None:
    """Its buffers are full: neither the caller nor the watch may hang beyond the ring's end or the round's deadline."""
    rows = 80  # MiB, more than the system's buffers take
    with puppet_stage(hidden=1 << 18, round_s=30.0 if end else 0.4) as (ring, _):
        number = ring.send_plan(prompt(1, rows, tuple(range(1, rows))))
        assert ring._rows is not None
        outflow = ring._rows.outflow

        def send() -> None:
            for part in range(rows):
                ring.send_rows(number, part, 1, ring.send_buffer(1 << 20))

        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send)
            if end:
                wait_until(lambda: outflow.waiting is not None)
                ring.fail(ErrorCode.ENGINE_FAILED, "enough")
            with pytest.raises(RingLost) as caught:
                sending.result(10)
        expected = (ErrorCode.ENGINE_FAILED, 0) if end else (ErrorCode.DEADLINE, 1)
        assert (caught.value.code, caught.value.rank) == expected
        started = time.monotonic()
        ring.close()
        assert time.monotonic() - started < PROMPTLY_S


def test_a_broken_connection_to_send_on_names_its_rank() -> None:
    with puppet_stage() as (ring, puppet):
        puppet.close()

        def send() -> None:
            for stream in range(100_000):
                number = ring.send_plan(prompt(stream, 1))
                ring.send_rows(number, 0, 1, ring.send_buffer(ROW_BYTES))

        assert end_of(send).rank == 1


def test_a_bug_in_a_thread_of_the_ring_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with puppet_stage() as (ring, puppet):
        seen: list[BaseException | None] = []
        monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_value))
        monkeypatch.setattr(ring._hub, "tick", lambda now: 1 / 0)
        end = end_of(ring.next_done)
        assert (end.code, end.rank) == (ErrorCode.ENGINE_FAILED, 0)
        assert "the watch failed: ZeroDivisionError" in end.text
        assert puppet.control.fate().rank == 0
        ring.close()
        assert [type(error) for error in seen] == [ZeroDivisionError]


def test_returned_rows_of_a_stage_that_never_ends_its_round() -> None:
    with puppet_stage(round_s=0.3) as (ring, puppet):
        number = ring.send_plan(prompt(1, 1, returns=Returns.ALL))
        puppet.out.send(rows_header(number), bytes(ROW_BYTES))
        ring.receive_rows(number, 0)
        ring.release_rows()
        with pytest.raises(RingLost, match=r"a done frame of round 1 .* within 0\.3 s, and rank 1") as caught:
            ring.next_done()
        assert caught.value.rank == 1

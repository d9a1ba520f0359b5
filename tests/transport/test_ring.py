"""A ring in threads of one process: bring-up, boot, rounds, and its end in good order."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import permutations
from typing import Any

import pytest

from ropeway.transport import Ring, RingConfig, RingLost, RingStopped, join, tcp
from ropeway.transport.ending import failure
from ropeway.transport.roster import Roster
from ropeway.types import SamplerAt
from ropeway.wire import Channel, Done, ErrorCode, Op, Plan, ProtocolError, Ready, Returns, Side, StreamEntry, Token
from transport.rings import (
    MAX_ROWS,
    ROW_BYTES,
    Place,
    describe,
    echo,
    layout,
    party,
    place,
    prompt,
    receive_back,
    send_parts,
    threads_of_rings,
    wait_until,
)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_ranks_start_in_any_order(order: tuple[int, ...]) -> None:
    with place(layout(3)) as here, ThreadPoolExecutor(3) as pool:
        joins = {}
        for rank in order:
            joins[rank] = pool.submit(join, here.config(rank))
            # The next one starts only once this one is under way.
            wait_until(lambda: threads_of_rings().count("ropeway watch") == len(joins))
        rings = [joins[rank].result(20) for rank in range(3)]
        rings[0].stop()
        for ring in rings:
            ring.close()
    assert threads_of_rings() == []


def test_a_rank_that_listens_late_is_dialled_until_it_answers() -> None:
    with place(layout(2)) as here, ThreadPoolExecutor(2) as pool:
        here.listeners[1].close()
        first = pool.submit(join, here.config(0))
        wait_until(lambda: "ropeway door" in threads_of_rings())
        second = pool.submit(join, here.config(1, listener=None, listen=here.addresses[1]))
        with first.result(20) as zero, second.result(20) as one:
            assert (zero.rank, zero.world, one.rank) == (0, 2, 1)


@pytest.mark.parametrize("host", ["[::1]", "localhost"])
def test_ipv6_and_host_names(host: str) -> None:
    with place(layout(2), host=host) as here, ThreadPoolExecutor(2) as pool:
        if host == "localhost":
            ports = [tcp.parse_address(address)[1] for address in here.addresses]
            here.addresses = tuple(f"localhost:{port}" for port in ports)
        rings = [future.result(20) for future in [pool.submit(join, here.config(rank)) for rank in range(2)]]
        rings[1].stop()
        for ring in rings:
            ring.close()


def test_boot() -> None:
    with party(layout(3), boot=False) as guests:
        head, *stages = guests.rings
        for rank, ring in reversed(list(enumerate(stages, 1))):
            ring.describe(describe(guests.layout, rank))
        assert [d.rank for d in head.descriptions()] == [1, 2]
        for rank, ring in enumerate(stages, 1):
            ring.ready(Ready(rank, 5, 6, 7))
        assert head.readies() == [Ready(1, 5, 6, 7), Ready(2, 5, 6, 7)]


def test_boot_deadlines_name_the_rank() -> None:
    with party(layout(3), boot=False) as guests:
        guests.rings[1].describe(describe(guests.layout, 1))
        with pytest.raises(RingLost, match=r"rank 2 \(\S+:\d+\) did not describe itself within 0.05 s") as caught:
            guests.rings[0].descriptions(0.05)
        assert (caught.value.code, caught.value.rank) == (ErrorCode.DEADLINE, 2)
        with pytest.raises(RingLost, match="did not describe itself"):
            guests.rings[2].next_plan()


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("returns", [Returns.LAST, Returns.ALL])
def test_rounds_carry_rows_bit_for_bit(world: int, returns: Returns) -> None:
    with party(layout(world)) as guests:
        head = guests.rings[0]
        ends = guests.run(*[echo] * (world - 1))
        for stream, rows in enumerate((1, 7, 40)):
            plan = prompt(stream, rows, tuple(range(3, rows, 3)), returns)
            payload = os.urandom(rows * ROW_BYTES)
            number = head.send_plan(plan)
            if returns is Returns.LAST:
                send_parts(head, number, plan, payload)
                assert receive_back(head, number, plan) == payload[-ROW_BYTES:]
            else:
                for part, (start, stop) in enumerate(plan.part_ranges()):
                    out = head.send_buffer((stop - start) * ROW_BYTES)
                    out[:] = payload[start * ROW_BYTES : stop * ROW_BYTES]
                    head.send_rows(number, part, stop - start, out)
                    assert head.receive_rows(number, part) == out
                    head.release_rows()
            dones = sorted(head.next_done()[:2] for _ in range(world - 1))
            assert dones == [(rank, number) for rank in range(1, world)]
        traffic = head.traffic()
        assert traffic.sent_bytes > 48 * ROW_BYTES
        assert traffic.received_bytes > 0
        head.stop()
        assert [type(end.result(5)) for end in ends] == [RingStopped] * (world - 1)


def test_large_parts_go_through_both_threads() -> None:
    """Parts that no socket buffer holds, read ahead and sent behind, in both directions at once."""
    rows = 3000
    with party(layout(2, hidden=1024)) as guests:
        head = guests.rings[0]
        guests.run(echo)
        payload = random.Random(1).randbytes(rows * 4096)
        plan = prompt(1, rows, (700, 1500, 1501, 2800), Returns.ALL)
        number = head.send_plan(plan)
        sending = guests.pool.submit(send_parts, head, number, plan, payload)
        assert receive_back(head, number, plan) == payload
        sending.result(5)


def test_several_rounds_are_under_way() -> None:
    """Rank 0 sends plan r + 1, and its rows, before round r is back; sizes differ."""
    with party(layout(3)) as guests:
        head = guests.rings[0]
        guests.run(echo, echo)
        sent = []
        for stream, rows in enumerate((5, 1, 9, 2)):
            plan = prompt(stream, rows, returns=Returns.ALL)
            payload = os.urandom(rows * ROW_BYTES)
            number = head.send_plan(plan)
            send_parts(head, number, plan, payload)
            sent.append((number, plan, payload))
        assert [number for number, _, _ in sent] == [1, 2, 3, 4]
        for number, plan, payload in sent:
            assert receive_back(head, number, plan) == payload
        assert sorted(head.next_done()[:2] for _ in range(8)) == [(rank, n) for rank in (1, 2) for n in (1, 2, 3, 4)]
        assert head.dones() == []


def test_rounds_without_rows_are_closed_by_their_dones() -> None:
    with party(layout(2)) as guests:
        head = guests.rings[0]
        guests.run(echo)
        number = head.send_plan(Plan((StreamEntry(3, Op.CLOSE),)))
        assert head.next_done() == (1, number, Done(1))
        plan = Plan((StreamEntry(4, Op.OPEN, rows=4),), (2,), returns=Returns.LISTED, listed=(0,))
        number = head.send_plan(plan)
        send_parts(head, number, plan, bytes(4 * ROW_BYTES))
        assert head.next_done()[:2] == (1, number)
        plan = prompt(5, 2)
        number = head.send_plan(plan)
        send_parts(head, number, plan, bytes(ROW_BYTES) + b"\x07" * ROW_BYTES)
        assert receive_back(head, number, plan) == b"\x07" * ROW_BYTES


def test_tokens_come_back_in_place_of_rows() -> None:
    with party(layout(2, sampler=SamplerAt.LAST)) as guests:
        head = guests.rings[0]
        guests.run(echo)
        plan = prompt(9, 3, (2,))
        number = head.send_plan(plan)
        send_parts(head, number, plan, bytes(3 * ROW_BYTES))
        assert head.receive_tokens(number).tokens == (Token(9, 7, 3, False),)


def test_draft_width_adds_to_a_row() -> None:
    with place(layout(2)) as here, ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(join, here.config(rank, draft_width=8)) for rank in range(2)]
        with futures[0].result(20) as head, futures[1].result(20) as stage:
            stage.describe(describe(here.layout, 1))
            stage.ready(Ready(1, 0, 0, 0))
            head.readies()
            number = head.send_plan(prompt(1, 2))
            head.send_rows(number, 0, 2, head.send_buffer(2 * (ROW_BYTES + 32)))
            stage.next_plan()
            assert len(stage.receive_rows(number, 0)) == 2 * (ROW_BYTES + 32)
            stage.release_rows()
            head.stop()


def test_waits_are_counted() -> None:
    with party(layout(2)) as guests:
        head = guests.rings[0]
        number = head.send_plan(prompt(1, 1))
        head.send_rows(number, 0, 1, head.send_buffer(ROW_BYTES))

        def late(ring: Ring) -> None:
            ring.next_plan()
            ring.receive_rows(number, 0)
            ring.release_rows()
            assert not released.wait(0.05)
            ring.send_rows(number, 0, 1, ring.send_buffer(ROW_BYTES))

        released = threading.Event()
        (stage,) = guests.run(late)
        head.receive_rows(number, 0)
        stage.result(5)
        assert 0.04e9 < head.waits.rows_ns < 5e9
        assert head.waits.send_ns == 0


def test_our_own_mistakes_are_refused_before_a_byte_leaves() -> None:
    with party(layout(2)) as guests:
        head, stage = guests.rings
        with pytest.raises(ProtocolError, match="over_capacity"):
            head.send_plan(prompt(1, MAX_ROWS + 1))
        with pytest.raises(ProtocolError, match="empty_rows"):
            head.send_plan(prompt(1, 0))
        number = head.send_plan(prompt(1, 2))
        with pytest.raises(ProtocolError, match="rows_length: asked for 256 bytes to send, the plans imply part 0"):
            head.send_buffer(ROW_BYTES)
        out = head.send_buffer(2 * ROW_BYTES)
        with pytest.raises(ProtocolError, match="rows_length: asked to send rows of part 1 of round 1 with 2 rows"):
            head.send_rows(number, 1, 2, out)
        head.send_rows(number, 0, 2, out)
        with pytest.raises(ProtocolError, match=r"rows_length: .* the plans imply nothing more"):
            head.send_buffer(2 * ROW_BYTES)
        with pytest.raises(ProtocolError, match="round_order"):
            stage.done(5, Done(1))
        head.check()


def test_stop_by_any_rank_ends_all_in_good_order() -> None:
    with party(layout(3)) as guests:
        ends = guests.run(echo, echo)
        guests.rings[2].stop()
        with pytest.raises(RingStopped) as caught:
            guests.rings[0].next_done()
        assert caught.value.rank == 2
        assert [end.result(5).rank for end in ends] == [2, 2]
        assert guests.rings[0].lost is None
        assert isinstance(guests.rings[0].end, RingStopped)
        with pytest.raises(RingStopped):
            guests.rings[0].send_plan(prompt(1, 1))


def test_drain_is_heard_and_nothing_ends() -> None:
    with party(layout(3)) as guests:
        head = guests.rings[0]
        guests.run(echo, echo)
        guests.rings[1].drain("maintenance")
        plan = prompt(1, 2, returns=Returns.ALL)
        number = head.send_plan(plan)
        send_parts(head, number, plan, b"\x01" * 2 * ROW_BYTES)
        assert receive_back(head, number, plan) == b"\x01" * 2 * ROW_BYTES
        assert head.draining
        assert not guests.rings[1].draining


def test_fail_tells_every_rank_the_same() -> None:
    with party(layout(4)) as guests:
        ends = guests.run(echo, echo, echo)
        guests.rings[2].fail(ErrorCode.ENGINE_FAILED, "rank 2: out of memory")
        with pytest.raises(RingLost) as caught:
            guests.rings[0].next_done()
        texts = {str(end.result(5)) for end in ends} | {str(caught.value)}
        assert texts == {"engine_failed: rank 2: out of memory. That rank's own output says more."}
        assert caught.value.rank == 2
        assert guests.rings[0].lost is not None


def test_leaving_a_with_block_by_an_error_fails_the_ring() -> None:
    with party(layout(2)) as guests:
        with pytest.raises(KeyError), guests.rings[1]:
            raise KeyError("a bug")
        with pytest.raises(RingLost, match=r"engine_failed: rank 1 \(.*\) has failed: KeyError\('a bug'\)"):
            guests.rings[0].next_done()


def test_closing_without_stopping_is_a_loss() -> None:
    with party(layout(2)) as guests:
        guests.rings[1].close()
        with pytest.raises(RingLost, match=r"peer_lost: rank 1 \(.*\) has left without stopping the ring"):
            guests.rings[0].next_done()


def test_the_end_is_announced_to_callbacks() -> None:
    with party(layout(2)) as guests:
        called, late = threading.Event(), threading.Event()
        guests.rings[1].on_end(called.set)
        guests.rings[0].stop()
        assert called.wait(5)
        guests.rings[1].close()
        guests.rings[1].on_end(late.set)
        assert late.is_set()


def test_everything_that_waits_raises_at_the_end() -> None:
    """Waiting for rows, for a buffer, for a plan and for a done, each in a thread of its own."""
    with party(layout(2, hidden=1 << 16)) as guests:
        head, stage = guests.rings
        # 80 MiB, more than the system's buffers take.
        number = head.send_plan(prompt(1, 320, tuple(range(16, 320, 16))))

        def send() -> None:
            for part in range(20):
                head.send_rows(number, part, 16, head.send_buffer(16 << 18))

        waits: list[Future[Any]] = [
            guests.pool.submit(send),
            guests.pool.submit(head.receive_rows, number, 0),
            guests.pool.submit(lambda: [stage.next_plan(), stage.next_plan()]),
        ]
        rows = head._rows
        assert rows is not None
        wait_until(lambda: rows.outflow.waiting is not None and rows.inflow.waiting is not None)
        started = time.monotonic()
        head.fail(ErrorCode.ENGINE_FAILED, "broken")
        for wait in waits:
            with pytest.raises(RingLost, match="broken"):
                wait.result(5)
        assert time.monotonic() - started < 1.0


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_a_missing_rank_is_named_at_the_deadline(absent: int) -> None:
    with place(layout(3), bring_up_s=0.5) as here, ThreadPoolExecutor(2) as pool:
        here.listeners[absent].close()
        joins = [pool.submit(join, here.config(rank)) for rank in range(3) if rank != absent]
        for future in joins:
            with pytest.raises(RingLost) as caught:
                future.result(20)
            assert (caught.value.code, caught.value.rank) == (ErrorCode.DEADLINE, absent)
            assert here.addresses[absent] in str(caught.value)
            assert "within 0.5 s" in str(caught.value)
    assert threads_of_rings() == []


def test_a_rank_that_says_nothing_is_named_at_the_deadline() -> None:
    """Its listener takes connections (a parent bound it), but the process never came up."""
    with place(layout(2), bring_up_s=0.3) as here:
        with pytest.raises(RingLost, match="said nothing") as caught:
            join(here.config(0))
        assert (caught.value.code, caught.value.rank) == (ErrorCode.DEADLINE, 1)


def test_a_late_round_is_blamed_on_the_rank_that_has_not_ended_it() -> None:
    with party(layout(3), round_s=0.3) as guests:
        head = guests.rings[0]
        plan = prompt(1, 1)
        guests.run(echo)  # rank 2 never takes its plan
        number = head.send_plan(plan)
        send_parts(head, number, plan, bytes(ROW_BYTES))
        with pytest.raises(RingLost) as caught:
            head.receive_rows(number, 0)
        assert (caught.value.code, caught.value.rank) == (ErrorCode.DEADLINE, 2)
        assert "part 0 of round 1 did not come within 0.3 s" in str(caught.value)


def test_a_ring_of_one() -> None:
    config = RingConfig(0, layout(1), bytes(32), (), MAX_ROWS)
    with join(config) as ring:
        assert ring.descriptions() == []
        assert ring.readies() == []
        assert ring.send_plan(prompt(1, 1)) == 1
    assert threads_of_rings() == []


def test_configurations_are_judged() -> None:
    shape = layout(2)
    good = ("a:1", "b:1")
    with pytest.raises(ValueError, match="rank: 2"):
        RingConfig(2, shape, bytes(32), good, MAX_ROWS)
    with pytest.raises(ValueError, match="key: 31 bytes"):
        RingConfig(0, shape, bytes(31), good, MAX_ROWS)
    with pytest.raises(ValueError, match="addresses: 1 for 2 ranks"):
        RingConfig(0, shape, bytes(32), ("a:1",), MAX_ROWS)
    with pytest.raises(ValueError, match="address: 'b'"):
        RingConfig(0, shape, bytes(32), ("a:1", "b"), MAX_ROWS)
    with pytest.raises(ValueError, match="max_rows"):
        RingConfig(0, shape, bytes(32), good, 0)


def test_a_wildcard_is_refused_before_anything_is_dialled() -> None:
    config = RingConfig(1, layout(2), bytes(32), ("127.0.0.1:1", "0.0.0.0:2"), MAX_ROWS)
    with pytest.raises(ValueError, match="every interface"):
        join(config)
    with socket.create_server(("", 0)) as listener, pytest.raises(ValueError, match="every interface"):
        join(RingConfig(1, layout(2), bytes(32), ("127.0.0.1:1", "127.0.0.1:2"), MAX_ROWS, listener=listener))
    assert threads_of_rings() == []


def test_a_key_is_never_in_words() -> None:
    here = Place(layout(2))
    with pytest.raises(ValueError, match="key") as caught:
        here.config(0, key=b"secret")
    assert "secret" not in str(caught.value)
    here.close()


def test_a_ring_that_ends_just_as_it_is_formed_ends_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank has failed and the sockets are closed before rows have got their threads."""
    form = Roster.form

    def form_and_lose(roster: Roster) -> None:
        form(roster)
        if roster._config.rank == 0:
            roster.life.settle(failure(ErrorCode.ENGINE_FAILED, 1, "rank 1 has no engine"))
            wait_until(lambda: roster.connection(Channel.ROWS, Side.DIALER).sock.fileno() < 0)

    monkeypatch.setattr(Roster, "form", form_and_lose)
    with place(layout(2)) as here, ThreadPoolExecutor(2) as pool:
        joins = [pool.submit(join, here.config(rank)) for rank in range(2)]
        with pytest.raises(RingLost, match="rank 1 has no engine"):
            joins[0].result(20)
        with contextlib.suppress(RingLost), joins[1].result(20):
            pass

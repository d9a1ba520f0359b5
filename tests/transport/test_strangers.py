"""Whoever comes to the port: each is refused by name or dropped, logged, and stops no ring from forming or running."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from ropeway.transport import RingLost, join, tcp
from ropeway.transport.connection import Connection
from ropeway.transport.door import Door
from ropeway.wire import (
    Channel,
    EchoHeard,
    ErrorCode,
    Header,
    Hello,
    Kind,
    Link,
    ProtocolError,
    Ready,
    Side,
    decode_fate,
    encode_header,
)
from transport.puppet import Wire, accept, dial
from transport.rings import (
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
    wait_until,
)


def reach(address: str) -> socket.socket:
    """A stranger's connection."""
    sock = tcp.connect(address, 5.0)
    sock.settimeout(10.0)
    return sock


def last_words(sock: socket.socket) -> str:
    """The fate that a stranger reads before the connection is closed: its error's label, or nothing."""
    data = b""
    try:
        while piece := sock.recv(4096):
            data += piece
    except ConnectionResetError:
        pass
    finally:
        sock.close()
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at + 24 : at + 28], "little")
        if data[at + 6] == Kind.FATE:
            return decode_fate(data[at + 32 : at + 32 + length]).error.label
        at += 32 + length
    return ""


def hello_frame(hello: Hello) -> bytes:
    """A hello as a frame."""
    payload = hello.encode()
    return encode_header(Header(Kind.HELLO, 0, 0, 0, len(payload))) + payload


def scan(here: Place) -> None:
    """A port scan: connect and close."""
    reach(here.addresses[0]).close()


def half_header(here: Place) -> None:
    sock = reach(here.addresses[0])
    sock.sendall(hello_frame(here.config(1).hello(Channel.CONTROL))[:20])
    sock.close()


def reset(here: Place) -> None:
    """Close with a reset in the middle of the hello."""
    sock = reach(here.addresses[0])
    sock.sendall(hello_frame(here.config(1).hello(Channel.CONTROL))[:50])
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    sock.close()


def web_browser(here: Place) -> str:
    sock = reach(here.addresses[0])
    sock.sendall(b"GET / HTTP/1.1\r\nHost: ring.example\r\nUser-Agent: curious\r\n\r\n")
    return last_words(sock)


def flipped_bit(here: Place) -> str:
    sock = reach(here.addresses[0])
    frame = bytearray(hello_frame(here.config(1).hello(Channel.CONTROL)))
    frame[10] ^= 1
    sock.sendall(frame)
    return last_words(sock)


def greedy(here: Place) -> str:
    """A header that announces 4 GiB."""
    sock = reach(here.addresses[0])
    sock.sendall(encode_header(Header(Kind.HELLO, 0, 0, 0, 0xFFFFFFFF)))
    return last_words(sock)


def plan_first(here: Place) -> str:
    """A plan before any hello."""
    sock = reach(here.addresses[0])
    sock.sendall(encode_header(Header(Kind.PLAN, 1, 0, 0, 32)) + bytes(32))
    return last_words(sock)


def garbage_proof(here: Place) -> str:
    """A fair hello, then garbage."""
    sock = reach(here.addresses[0])
    sock.sendall(hello_frame(here.config(1).hello(Channel.CONTROL)) + os.urandom(64))
    return last_words(sock)


def refused(here: Place, channel: Channel = Channel.CONTROL, ours: int = 1, **changes: object) -> str:
    """Dial rank 0 with something wrong."""
    with pytest.raises((ConnectionRefusedError, ProtocolError)) as caught:
        dial(here, channel, ours, 0, **changes)
    return str(caught.value).partition(":")[0]


def wrong_key(here: Place) -> str:
    return refused(here, key=bytes(32))


def wrong_fingerprint(here: Place) -> str:
    return refused(here, layout=layout(2, checkpoint="11" * 32))


def wrong_world(here: Place) -> str:
    return refused(here, layout=layout(3), addresses=(*here.addresses, "127.0.0.1:1"))


def wrong_rank(here: Place) -> str:
    """Rank 0 itself on control."""
    return refused(here, ours=0)


def replayed_hello(here: Place) -> str:
    """The hello and proof of another connection, whose nonces differ."""
    sock = reach(here.addresses[0])
    config = here.config(1)
    other = Link(Side.DIALER, Channel.CONTROL, config.hello(Channel.CONTROL), config.key)
    answer = Link(Side.ACCEPTOR, None, here.config(0).hello(Channel.CONTROL), config.key)
    frames = other.outgoing()
    _feed(answer, frames[0])
    for frame in answer.outgoing():
        _feed(other, frame)
    sock.sendall(b"".join(frames + other.outgoing()))
    return last_words(sock)


def _feed(link: Link, data: bytes) -> None:
    while data:
        room = link.buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        link.received(count)
        data = data[count:]


SILENT = [scan, half_header, reset]
NAMED = [
    (web_browser, "bad_magic"),
    (flipped_bit, "bad_check"),
    (greedy, "too_long"),
    (plan_first, "illegal_frame"),
    (garbage_proof, "bad_magic"),
    (wrong_key, "wrong_key"),
    (replayed_hello, "wrong_key"),
    (wrong_fingerprint, "wrong_fingerprint"),
    (wrong_world, "wrong_world"),
    (wrong_rank, "wrong_rank"),
]


def test_strangers_do_not_stop_a_ring_from_forming_or_running(caplog: pytest.LogCaptureFixture) -> None:
    """Every stranger twice: while rank 0 waits for rank 1, and while rounds run."""
    caplog.set_level(logging.WARNING, "ropeway.transport")
    with place(layout(2)) as here, ThreadPoolExecutor(4) as pool:
        joining = pool.submit(join, here.config(0))
        for stranger in SILENT:
            stranger(here)
        assert [act(here) for act, _ in NAMED] == [name for _, name in NAMED]
        assert not joining.done()
        wait_until(lambda: all(any(f": {name}: " in r.getMessage() for r in caplog.records) for _, name in NAMED))
        with join(here.config(1)) as stage, joining.result(20) as head:
            stage.describe(describe(here.layout, 1))
            stage.ready(Ready(1, 0, 0, 0))
            head.readies()
            following = pool.submit(echo, stage)
            for stream, (act, name) in enumerate(NAMED):
                plan = prompt(stream, 2)
                number = head.send_plan(plan)
                assert act(here) in (name, "duplicate_rank")
                send_parts(head, number, plan, bytes(2 * ROW_BYTES))
                assert receive_back(head, number, plan) == bytes(ROW_BYTES)
            head.stop()
            following.result(5)
    assert all("127.0.0.1:" in record.getMessage() for record in caplog.records)


def test_a_rank_twice_is_told_so_and_the_ring_goes_on() -> None:
    with party(layout(3)) as guests:
        ends = guests.run(echo, echo)
        head = guests.rings[0]
        twin = replace(guests.rings[1]._config, listener=None, listen="127.0.0.1:0")
        with pytest.raises(RingLost) as caught:
            join(twin)
        assert (caught.value.code, caught.value.rank) == (ErrorCode.DUPLICATE_RANK, 1)
        assert "refused rank 1: rank 1 is connected already on control. Stop the other process" in str(caught.value)
        plan = prompt(1, 1)
        number = head.send_plan(plan)
        send_parts(head, number, plan, bytes(ROW_BYTES))
        assert receive_back(head, number, plan) == bytes(ROW_BYTES)
        assert not any(end.done() for end in ends)


def test_of_two_handshakes_for_one_rank_the_first_proof_wins() -> None:
    """Both hellos are fair when they come; the second proof finds the place taken."""
    with place(layout(3)) as here, ThreadPoolExecutor(1) as pool:
        joining = pool.submit(join, here.config(0, bring_up_s=5.0))
        slow = Wire(
            reach(here.addresses[0]),
            Link(Side.DIALER, Channel.CONTROL, here.config(1).hello(Channel.CONTROL), here.key),
        )
        slow.send(*slow.link.outgoing())
        count = slow.sock.recv_into(slow.link.buffer())
        assert slow.link.received(count) is None  # the header of the acceptor's hello: ours has been judged
        first = dial(here, Channel.CONTROL, 1, 0)
        with pytest.raises(ConnectionRefusedError, match="duplicate_rank"):
            slow.greet()
        slow.sock.close()
        first.sock.close()
        with pytest.raises(RingLost):
            joining.result(10)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"key": bytes(32)}, ErrorCode.WRONG_KEY),
        ({"layout": layout(2, checkpoint="11" * 32)}, ErrorCode.WRONG_FINGERPRINT),
    ],
)
def test_a_rank_that_is_refused_gives_up_at_once_by_name(changes: dict[str, object], code: ErrorCode) -> None:
    with place(layout(2), bring_up_s=30.0) as here, door(here):
        started = time.monotonic()
        with pytest.raises(RingLost) as caught:
            join(here.config(1, **changes))
        assert time.monotonic() - started < 10.0
        assert (caught.value.code, caught.value.rank) == (code, 1)
        assert f"rank 0 ({here.addresses[0]}) refused rank 1: the peer's" in str(caught.value)


def test_rank_0_waits_for_the_right_one_and_says_whom_it_refused() -> None:
    with place(layout(2), bring_up_s=0.5) as here, ThreadPoolExecutor(1) as pool:
        joining = pool.submit(join, here.config(0))
        assert wrong_key(here) == "wrong_key"
        with pytest.raises(RingLost, match=r"refused meanwhile: 127\.0\.0\.1:\d+: wrong_key: ") as caught:
            joining.result(20)
        assert (caught.value.code, caught.value.rank) == (ErrorCode.DEADLINE, 1)


def test_a_wrong_one_at_a_ranks_own_address_can_be_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """It refuses rank 0, which waits: the right one may come to the same address."""
    with place(layout(2)) as here, ThreadPoolExecutor(2) as pool:
        joining = pool.submit(join, here.config(0))
        wrong = Door(here.config(1, key=bytes(32)), here.listeners[1], lambda hello: None, lambda connection: None)
        wait_until(lambda: "it refused us: wrong_key: " in caplog.text)
        wrong.close()
        right = join(here.config(1))
        head = joining.result(20)
        head.stop()
        head.close()
        right.close()


def test_something_else_at_a_ranks_address_is_named() -> None:
    with place(layout(2)) as here:

        def web_server() -> None:
            sock, _ = here.listeners[1].accept()
            with sock:
                sock.recv(200)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        server = threading.Thread(target=web_server)
        server.start()
        with pytest.raises(RingLost) as caught:
            join(here.config(0))
        server.join()
        assert (caught.value.code, caught.value.rank) == (ErrorCode.BAD_MAGIC, 1)
        assert "Something that is not Ropeway speaks there" in str(caught.value)


def test_an_acceptor_without_the_key_is_refused() -> None:
    """It answers the hello, but cannot prove anything, nor see anything but our proof."""
    with place(layout(2)) as here, ThreadPoolExecutor(1) as pool:
        joining = pool.submit(join, here.config(0))
        here.listeners[1].settimeout(10)
        sock, _ = here.listeners[1].accept()
        config = here.config(1)
        thief = Wire(sock, Link(Side.ACCEPTOR, None, config.hello(Channel.ROWS), config.key))
        thief.until(Kind.HELLO)
        thief.send(hello_frame(replace(config.hello(Channel.ROWS))))
        thief.until(Kind.PROOF)
        thief.send_frame(Kind.PROOF, bytes(32))
        with pytest.raises(RingLost) as caught:
            joining.result(10)
        assert (caught.value.code, caught.value.rank) == (ErrorCode.WRONG_KEY, 1)
        assert thief.fate().error is ErrorCode.WRONG_KEY
        sock.close()


@contextmanager
def door(here: Place, proof_s: float = 10.0) -> Iterator[list[Connection]]:
    """Rank 0's door alone; gives whom it has let in."""
    inside: list[Connection] = []
    keeper = Door(here.config(0), here.listeners[0], lambda hello: None, inside.append, proof_s)
    try:
        yield inside
    finally:
        keeper.close()
        for connection in inside:
            connection.close()


def closed(sock: socket.socket) -> bool:
    """Wait until the other side has closed."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_slow_dialer_is_dropped_and_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    """One byte now and then: it does not prove itself in time, while another is let in at once."""
    with place(layout(2)) as here, door(here, proof_s=0.3) as inside, reach(here.addresses[0]) as slow:
        frame = hello_frame(here.config(1).hello(Channel.CONTROL))
        dropped = threading.Event()

        def dribble() -> None:
            for at in range(len(frame)):
                try:
                    slow.sendall(frame[at : at + 1])
                except OSError:
                    return
                if dropped.wait(0.05):
                    return

        with ThreadPoolExecutor(1) as pool:
            pool.submit(dribble)
            fair = dial(here, Channel.CONTROL, 1, 0)
            wait_until(lambda: len(inside) == 1)
            assert closed(slow)
            dropped.set()
        fair.sock.close()
    assert "did not prove itself in time" in caplog.text


def test_a_flood_of_strangers_does_not_shut_a_rank_out() -> None:
    """More silent connections than the door holds: the oldest make room."""
    with place(layout(2)) as here, door(here) as inside, ExitStack() as stack:
        strangers = [stack.enter_context(reach(here.addresses[0])) for _ in range(30)]
        fair = dial(here, Channel.CONTROL, 1, 0)
        stack.enter_context(fair.sock)
        wait_until(lambda: len(inside) == 1)
        assert all(closed(sock) for sock in strangers[: 30 - 8])
        strangers[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            strangers[-1].recv(1)


def test_a_stranger_that_sends_on_after_its_refusal_is_thrown_out() -> None:
    with place(layout(2)) as here, door(here), reach(here.addresses[0]) as sock:

        def shout() -> None:
            while True:
                sock.sendall(bytes(4096))

        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            shout()


def test_probes_are_answered() -> None:
    with party(layout(2)) as guests:
        config = guests.rings[1]._config
        with reach(config.addresses[0]) as sock:
            wire = Wire(sock, Link(Side.DIALER, Channel.PROBE, config.hello(Channel.PROBE), config.key)).greet()
            for number, size in enumerate((0, 10, 1 << 20)):
                wire.send(*wire.link.send_probe(number, memoryview(bytes(size))))
                assert wire.hear() == EchoHeard(number)
            wire.send_frame(Kind.DONE, bytes(32), round_=9)
            assert wire.fate().error is ErrorCode.ILLEGAL_FRAME
        guests.rings[0].check()


def test_the_listener_that_was_handed_over_stays_open() -> None:
    with place(layout(2)) as here, ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            rings = [future.result(20) for future in [pool.submit(join, here.config(rank)) for rank in range(2)]]
            rings[0].stop()
            for ring in rings:
                ring.close()


def test_the_watch_of_an_accept_failure_is_quiet(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Out of descriptors: the door says so, waits, and goes on."""
    with place(layout(2)) as here:
        real = here.listeners[0]
        tries: list[int] = []

        class Listener:
            def accept(self) -> tuple[socket.socket, object]:
                tries.append(1)
                if len(tries) == 1:
                    raise OSError(24, "Too many open files")
                return real.accept()

            def __getattr__(self, name: str) -> Callable[..., object]:
                return getattr(real, name)  # type: ignore[no-any-return]

        monkeypatch.setitem(here.__dict__, "listeners", [Listener(), here.listeners[1]])
        with door(here) as inside:
            fair = dial(here, Channel.CONTROL, 1, 0)
            wait_until(lambda: len(inside) == 1)
            fair.sock.close()
        monkeypatch.undo()
    assert "cannot accept a connection: Too many open files" in caplog.text


def test_a_puppet_can_be_accepted() -> None:
    with place(layout(2)) as here, ThreadPoolExecutor(1) as pool:
        dialling = pool.submit(dial, here, Channel.ROWS, 0, 1)
        wire = accept(here, 1)
        dialling.result(5).sock.close()
        wire.sock.close()

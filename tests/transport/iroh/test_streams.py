"""Lines and pumps between two sockets, which stand for any two streams."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from ropeway.transport.iroh.streams import Lines, SocketStream, StreamEnded, join, read_exactly
from ropeway.transport.lines import LINE_BYTES, LineError


def pair() -> tuple[SocketStream, socket.socket]:
    """A stream and the blocking socket at its other end."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    return SocketStream(ours), theirs


def test_lines_and_what_comes_behind_them() -> None:
    async def play() -> None:
        stream, far = pair()
        far.sendall(b'{"a":1}\n{"b":[2]}\nraw bytes')
        lines = Lines(stream)
        assert await lines.read_line() == {"a": 1}
        assert await lines.read_line() == {"b": [2]}
        assert await lines.read(3) == b"raw"
        assert await lines.read(64) == b" bytes"
        await lines.write_line({"ok": True})
        assert far.recv(64) == b'{"ok":true}\n'
        far.close()
        assert await lines.read_line() is None
        stream.abandon()

    asyncio.run(play())


@pytest.mark.parametrize("line", [b"no json\n", b"[1]\n", b"[" * 100_000 + b"\n"])
def test_lines_that_are_no_objects(line: bytes) -> None:
    async def play() -> None:
        stream, far = pair()
        sending = asyncio.get_running_loop().run_in_executor(None, far.sendall, line)
        with pytest.raises(LineError):
            await Lines(stream).read_line()
        await sending
        far.close()
        stream.abandon()

    asyncio.run(play())


def test_a_line_that_does_not_end() -> None:
    async def play() -> None:
        stream, far = pair()

        def flood() -> None:
            with contextlib.suppress(OSError):
                while True:
                    far.sendall(bytes(1 << 16))

        flooding = asyncio.get_running_loop().run_in_executor(None, flood)
        with pytest.raises(StreamEnded, match=str(LINE_BYTES)):
            await Lines(stream).read_line()
        stream.abandon()
        await flooding
        far.close()

    asyncio.run(play())


def test_a_stream_that_ends_early() -> None:
    async def play() -> None:
        stream, far = pair()
        far.sendall(b'{"a":')
        far.close()
        with pytest.raises(StreamEnded, match="in the middle of a line"):
            await Lines(stream).read_line()
        with pytest.raises(StreamEnded, match="4 bytes early"):
            await read_exactly(stream, 4)
        stream.abandon()

    asyncio.run(play())


def test_joined_streams_carry_bytes_both_ways_and_end_half_by_half() -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        one, far_one = pair()
        other, far_other = pair()
        joined = asyncio.ensure_future(join(one, other))
        payload = bytes(range(256)) * 8192
        sending = loop.run_in_executor(None, far_one.sendall, payload)
        got = await loop.run_in_executor(None, _receive, far_other, len(payload))
        await sending
        assert got == payload
        far_one.shutdown(socket.SHUT_WR)
        assert await loop.run_in_executor(None, far_other.recv, 1) == b""
        far_other.sendall(b"still")
        assert await loop.run_in_executor(None, far_one.recv, 16) == b"still"
        far_other.close()
        assert await loop.run_in_executor(None, far_one.recv, 1) == b""
        await joined
        far_one.close()

    asyncio.run(play())


def test_where_one_end_breaks_the_other_hears_of_it() -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        one, far_one = pair()
        other, far_other = pair()
        joined = asyncio.ensure_future(join(one, other))
        far_other.sendall(b"never read")
        await asyncio.sleep(0)
        far_one.close()  # what it has not read is lost, and what comes cannot be written
        far_other.sendall(b"more")
        assert await loop.run_in_executor(None, far_other.recv, 1) == b""
        far_other.close()
        await joined

    asyncio.run(play())


def _receive(sock: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        piece = sock.recv(1 << 16)
        if not piece:
            break
        got += piece
    return bytes(got)

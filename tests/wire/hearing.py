"""Joins a link to bytes by hand, in any pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat

import pytest

from ropeway.wire import (
    Channel,
    Described,
    ErrorCode,
    Event,
    Header,
    Hello,
    HelloDone,
    Link,
    ProtocolError,
    Ready,
    ReadyHeard,
    Side,
)
from wire.golden_files import ACCEPTOR_NONCE, DIALER_NONCE, FINGERPRINT, KEY, Golden, listener
from wire.golden_values import LLAMACPP

READY = Ready(1, load_ms=1800, warm_ms=40, weights_bytes=35_000_000)


def lend(header: Header) -> memoryview:
    """Memory for any rows frame that a test sends."""
    if header.length > 1 << 16:
        raise ProtocolError(ErrorCode.ROWS_LENGTH, f"{header.length} bytes of rows in a test", 24)
    return memoryview(bytearray(header.length))


def refuse(hello: Hello) -> None:
    """As if every rank were connected already."""
    raise ProtocolError(ErrorCode.DUPLICATE_RANK, f"rank {hello.rank} is connected already")


def make_link(hears: str, accept: Callable[[Hello], None] | None = None) -> Link:
    """The link of a conversation file's listener."""
    side, channel, hello = listener(hears)
    return Link(side, channel, hello, KEY, accept, lend)


def follow(link: Link, raw: bytes | memoryview, sizes: Iterable[int] = repeat(1 << 20)) -> list[Event]:
    """What the link hears when `raw` comes in pieces of at most these sizes, and its owner answers as a stage does."""
    return feed(link, raw, sizes, answer)


def feed(
    link: Link,
    raw: bytes | memoryview,
    sizes: Iterable[int] = repeat(1 << 20),
    owner: Callable[[Link, Event], None] | None = None,
) -> list[Event]:
    """What the link hears when `raw` comes in pieces of at most these sizes."""
    events: list[Event] = []
    rest = memoryview(raw)
    for size in sizes:
        if not rest:
            break
        room = link.buffer()
        count = min(size, len(room), len(rest))
        room[:count] = rest[:count]
        rest = rest[count:]
        event = link.received(count)
        if event is not None:
            events.append(event)
            if owner is not None:
                owner(link, event)
    assert not rest, "the sizes must cover the bytes"
    return events


def answer(link: Link, event: Event) -> None:
    """What a stage sends to rank 0 before it may hear plans: its description, and that it is ready."""
    if isinstance(event, HelloDone) and event.peer.channel is Channel.CONTROL and event.peer.rank == 0:
        link.send_describe(LLAMACPP)
        link.send_ready(READY)


def hear(golden: Golden) -> list[Event]:
    """Hear a whole conversation file and then the connection's end."""
    link = make_link(golden.hears, refuse if golden.error == "duplicate_rank" else None)
    events = follow(link, golden.raw)
    if golden.error == "truncated":
        link.eof()
    return events


def shake_hands(dialer: Link, acceptor: Link) -> None:
    """Join both ends until nothing is left to say."""
    while (there := dialer.outgoing()) or (back := acceptor.outgoing()):
        for frame in there:
            feed(acceptor, frame)
        back = acceptor.outgoing()
        for frame in back:
            feed(dialer, frame)


def pair(channel: Channel, dialer: int, acceptor: int, world: int = 2) -> tuple[Link, Link]:
    """Both ends of a proved connection."""
    there = Link(Side.DIALER, channel, Hello(dialer, world, channel, FINGERPRINT, DIALER_NONCE), KEY, lend=lend)
    back = Link(
        Side.ACCEPTOR, None, Hello(acceptor, world, Channel.CONTROL, FINGERPRINT, ACCEPTOR_NONCE), KEY, lend=lend
    )
    shake_hands(there, back)
    assert (there.proved, back.proved) == (True, True)
    return there, back


def control() -> tuple[Link, Link]:
    """A stage's and rank 0's end of a control connection, in its rounds."""
    stage, first = pair(Channel.CONTROL, 1, 0)
    assert carry(first, stage.send_describe(LLAMACPP)) == [Described(LLAMACPP)]
    assert carry(first, stage.send_ready(READY)) == [ReadyHeard(READY)]
    return stage, first


def carry(to: Link, frame: tuple[bytes | memoryview, ...]) -> list[object]:
    events: list[object] = []
    for piece in frame:
        events += feed(to, piece)
    return events


def code_of(error: pytest.ExceptionInfo[ProtocolError]) -> ErrorCode:
    return error.value.code

"""Properties of every decoder and of the link: round trips, any split, and nothing but ProtocolError."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ropeway.wire import (
    Header,
    Link,
    ProtocolError,
    decode_describe,
    decode_done,
    decode_fate,
    decode_header,
    decode_hello,
    decode_plan,
    decode_ready,
    decode_tokens,
    encode_header,
)
from ropeway.wire.capture import Message, Raw, read_capture
from wire import strategies
from wire.golden_files import Golden, alone, conversations
from wire.hearing import follow, make_link

steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=150)

Decoder = Callable[[bytes | memoryview], Message]

DECODERS: dict[str, Decoder] = {
    "hello": decode_hello,
    "describe": decode_describe,
    "ready": decode_ready,
    "plan": decode_plan,
    "tokens": decode_tokens,
    "done": decode_done,
    "fate": decode_fate,
}
MESSAGES: dict[str, st.SearchStrategy[Message]] = {
    "hello": strategies.hellos,
    "describe": strategies.describes(),
    "ready": strategies.readies,
    "plan": strategies.plans(),
    "tokens": strategies.tokens(),
    "done": strategies.dones,
    "fate": strategies.fates,
}
PAYLOADS = {
    kind: [golden.raw[32:] for golden in alone() if golden.name.startswith(f"{kind}-") and len(golden.raw) > 32]
    for kind in DECODERS
}
TALKS = conversations()


@st.composite
def mutated(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """Golden bytes with some bytes changed, some cut out and some put in."""
    raw = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(raw)))
        match draw(st.sampled_from(["set", "cut", "put"])):
            case "set" if at < len(raw):
                raw[at] = draw(st.sampled_from([0, 1, 2, 3, 5, 6, 7, 0x7F, 0x80, 0xFF]))
            case "cut":
                del raw[at : at + draw(st.integers(1, 32))]
            case _:
                raw[at:at] = draw(st.binary(max_size=32))
    return bytes(raw)


@steady
@given(strategies.headers)
def test_headers_come_back(header: Header) -> None:
    raw = encode_header(header)
    assert len(raw) == 32
    assert decode_header(raw) == header


@pytest.mark.parametrize("kind", MESSAGES)
@steady
@given(data=st.data())
def test_messages_come_back(kind: str, data: st.DataObject) -> None:
    message = data.draw(MESSAGES[kind])
    assert not isinstance(message, Raw)
    raw = message.encode()
    assert DECODERS[kind](raw) == message
    assert DECODERS[kind](memoryview(bytearray(raw))) == message


@pytest.mark.parametrize("kind", DECODERS)
@steady
@given(data=st.data())
def test_a_decoder_raises_only_protocol_errors(kind: str, data: st.DataObject) -> None:
    raw = data.draw(st.binary(max_size=200) | mutated(PAYLOADS[kind]))
    try:
        message = DECODERS[kind](raw)
    except ProtocolError as error:
        at = error.at
    else:
        assert not isinstance(message, Raw)
        assert message.encode() == raw, "what is accepted has one form"
        at = 0
    assert 0 <= at <= len(raw)


@steady
@given(data=st.data())
def test_captures_raise_nothing(data: st.DataObject) -> None:
    raw = data.draw(st.binary(max_size=200) | mutated([golden.raw for golden in alone()]))
    for frame in read_capture(raw):
        assert 0 <= frame.offset <= len(raw)


@pytest.mark.parametrize("golden", [talk for talk in TALKS if not talk.error], ids=lambda golden: golden.name)
@steady
@given(sizes=st.lists(st.integers(1, 100), max_size=60))
def test_any_split_gives_the_same_events(golden: Golden, sizes: list[int]) -> None:
    whole = follow(make_link(golden.hears), golden.raw)
    assert whole
    assert follow(make_link(golden.hears), golden.raw, chain(sizes, repeat(1))) == whole


@steady
@given(data=st.data())
def test_a_link_raises_only_protocol_errors(data: st.DataObject) -> None:
    """After any number of good frames, that is in any state, come any bytes."""
    golden = data.draw(st.sampled_from(TALKS))
    kept = data.draw(st.sampled_from(edges(golden.raw)))
    tail = data.draw(st.binary(max_size=100) | mutated([golden.raw[kept:], *frames()]))
    link = make_link(golden.hears)
    try:
        follow(link, golden.raw[:kept] + tail)
        link.eof()
    except ProtocolError as error:
        failed = error
    else:
        return
    check_ended(link, failed)


@steady
@given(data=st.data())
def test_a_link_judges_mutated_fields_behind_a_good_check(data: st.DataObject) -> None:
    """Headers with a right check but any fields reach the state table and the limits."""
    golden = data.draw(st.sampled_from(TALKS))
    kept = data.draw(st.sampled_from(edges(golden.raw)))
    small = st.integers(0, 100)
    fields = [data.draw(small | strategies.U32) for _ in range(4)]
    header = Header(data.draw(strategies.headers).kind, *fields)
    link = make_link(golden.hears)
    try:
        follow(link, golden.raw[:kept] + encode_header(header) + bytes(min(header.length, 200)))
    except ProtocolError as error:
        check_ended(link, error)


def check_ended(link: Link, error: ProtocolError) -> None:
    """A link that has raised raises the same again; only a connection that just ended may not."""
    if error.code.label in ("peer_lost", "truncated"):
        return
    with pytest.raises(ProtocolError) as again:
        link.buffer()
    assert again.value is error


def edges(raw: bytes) -> list[int]:
    """Where frames begin, and the end."""
    return [frame.offset for frame in read_capture(raw)] + [len(raw)]


def frames() -> list[bytes]:
    return [golden.raw for golden in alone()]

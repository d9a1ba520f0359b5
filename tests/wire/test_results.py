"""Tokens, done and fate where the encoder judges them."""

from __future__ import annotations

import pytest

from ropeway.wire import CacheAck, Done, ErrorCode, Fate, FateKind, ProtocolError, Token, Tokens, decode_fate

ON = Token(3, 9906, 6, done=False)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("empty_rows", Tokens(())),
        ("stream_order", Tokens((ON, ON))),
        ("bad_value", Tokens((Token(3, -1, 0, done=False),))),
        ("bad_value", Tokens((Token(3, 1 << 32, 0, done=False),))),
        ("bad_value", Done(-1)),
        ("bad_value", Done(1, (CacheAck(bytes(15), ok=True),))),
        ("bad_value", Done(1, forward_ns=-1)),
        ("bad_value", Fate(FateKind.FAIL, ErrorCode.PEER_LOST, -1)),
    ],
)
def test_what_does_not_fit_never_becomes_bytes(label: str, message: Tokens | Done | Fate) -> None:
    with pytest.raises(ProtocolError) as caught:
        message.encode()
    assert caught.value.code.label == label


@pytest.mark.parametrize(("text", "kept"), [("x" * 600, 512), ("ü" * 300, 512), ("€" * 200, 510), ("🚡" * 129, 512)])
def test_a_long_text_is_cut_between_characters(text: str, kept: int) -> None:
    raw = Fate(FateKind.FAIL, ErrorCode.PEER_LOST, 1, text).encode()
    assert len(raw) == 8 + kept
    assert text.startswith(decode_fate(raw).text)


def test_a_text_that_is_no_unicode_still_leaves() -> None:
    assert decode_fate(Fate(FateKind.FAIL, ErrorCode.PEER_LOST, 1, "a\udc80b").encode()).text == "a?b"

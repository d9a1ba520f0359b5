"""Golden files: bytes and values agree both ways, and bad bytes raise the error that their file names."""

from __future__ import annotations

import pytest

from ropeway.wire import ErrorCode, Header, Kind, ProtocolError, encode_header
from ropeway.wire.capture import Broken, Captured, Raw, read_capture
from wire.golden_files import Golden, alone, conversations, load, names
from wire.golden_values import GOOD, Frame
from wire.hearing import hear

BAD = [golden for golden in alone() if golden.error]
TALKS = [golden for golden in conversations() if golden.error]

# What a decoder or a link cannot tell: it needs a stage's slots, or is a ring's end and not a peer's mistake.
ELSEWHERE = {
    "none",
    *(code.label for code in ErrorCode if code.name.startswith("REFUSED_")),
    "deadline",
    "peer_lost",
    "engine_failed",
    "silence",
}


def encode(frame: Frame) -> bytes:
    (kind, round_, rows, part), message = frame
    payload = message.payload if isinstance(message, Raw) else message.encode()
    return encode_header(Header(kind, round_, rows, part, len(payload))) + payload


@pytest.mark.parametrize("name", GOOD)
def test_good_values_encode_to_the_file(name: str) -> None:
    assert b"".join(encode(frame) for frame in GOOD[name]).hex() == load(name).raw.hex()


@pytest.mark.parametrize("name", GOOD)
def test_good_files_decode_to_the_values(name: str) -> None:
    heard: list[Frame] = []
    for frame in read_capture(load(name).raw):
        assert isinstance(frame, Captured), frame
        header = frame.header
        heard.append(((header.kind, header.round, header.rows, header.part), frame.message))
    assert heard == GOOD[name]


@pytest.mark.parametrize("golden", BAD, ids=lambda golden: golden.name)
def test_bad_files_raise_their_error(golden: Golden) -> None:
    frames = list(read_capture(golden.raw))
    assert [frame.error.code.label for frame in frames if isinstance(frame, Broken)] == [golden.error]


@pytest.mark.parametrize("golden", TALKS, ids=lambda golden: golden.name)
def test_bad_conversations_raise_their_error(golden: Golden) -> None:
    with pytest.raises(ProtocolError) as caught:
        hear(golden)
    assert caught.value.code.label == golden.error


def test_every_file_is_tested() -> None:
    files = set(names())
    good = {golden.name for golden in map(load, files) if not golden.error and not golden.hears}
    assert good == set(GOOD)
    for golden in map(load, files):
        named = golden.name.partition("-")[2].partition("-")[0]
        assert not golden.error or named in (golden.error, "order"), golden.name


def test_every_error_that_a_decoder_raises_has_a_bad_file() -> None:
    shown = {golden.error for golden in [*BAD, *TALKS]}
    assert shown == {code.label for code in ErrorCode} - ELSEWHERE


def test_every_kind_has_good_and_bad_files() -> None:
    for kind in Kind:
        files = [load(name) for name in names() if name.startswith(f"{kind.label}-")]
        assert any(not file.error for file in files), kind
        assert any(file.error for file in files), kind

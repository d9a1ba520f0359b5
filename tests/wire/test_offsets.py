"""A few offsets of wire.md, literally, so that the encoder and the golden files cannot be wrong together."""

from __future__ import annotations

import struct
import zlib

import pytest

from ropeway.types import Boundary, Layout
from ropeway.wire import Channel, ErrorCode, Kind
from ropeway.wire.capture import Broken, Captured, read_capture
from wire.golden_files import CANONICAL, FINGERPRINT, load

Fields = list[tuple[int, str, int]]

HEADER: Fields = [(0, "<I", 0x4C534654), (4, "<H", 1), (7, "B", 0)]

PAYLOADS: dict[str, Fields] = {
    "hello-dialer": [
        (0, "<I", 1),
        (4, "<I", 2),
        (8, "B", 1),
        (16, "B", FINGERPRINT[0]),
        (47, "B", FINGERPRINT[31]),
        (48, "B", 0x11),
        (79, "B", 0x11),
    ],
    "describe-fields": [
        (0, "<I", 0x50534654),
        (4, "<H", 1),
        (6, "B", 1),
        (8, "<I", 2),
        (12, "<I", 3),
        (16, "<I", 0x10),
        (20, "<I", 0x20),
        (24, "<I", 0x01020304),
        (28, "B", 4),
        (29, "B", 2),
        (30, "B", 3),
        (31, "B", 2),
        (32, "<I", 0x11),
        (36, "<I", 0x22),
        (40, "<I", 0x33),
        (44, "<I", 0x44),
        (48, "<Q", 0x5566778899AABBCC),
        (56, "<I", 0x77),
        (60, "<I", 0x88),
        (64, "<H", 2),
        (66, "<H", 11),
        (68, "B", 1),
        (72, "<I", 0x12),
        (76, "<I", 0x1F),
        (80, "B", ord("S")),
    ],
    "ready-fields": [
        (6, "B", 2),
        (8, "<I", 0x01020304),
        (12, "<I", 0x11121314),
        (16, "<I", 0x21222324),
        (24, "<Q", 0x3132333435363738),
    ],
    "plan-fields": [
        (0, "<I", 0x50534654),
        (4, "<H", 1),
        (6, "B", 3),
        (8, "<I", 1),
        (12, "<I", 2),
        (16, "<I", 3),
        (20, "<I", 2),
        (24, "<I", 2),
        (32, "<I", 0xFFFFFFFF),
        (36, "B", 2),
        (40, "<I", 0x01020304),
        (44, "<I", 3),
        (48, "<I", 0x21222324),
        (52, "<I", 0),
        (56, "<I", 0x31323334),
        (60, "<I", 1),
        (64, "<I", 2),
        (68, "<I", 0x41424344),
        (76, "<I", 0xFFFFFFFF),
        (80, "B", 1),
        (84, "<I", 0x51525354),
        (88, "B", 0x40),
        (103, "B", 0x4F),
        (104, "B", 3),
        (112, "B", 0x60),
        (128, "<I", 3),
    ],
    "tokens-fields": [
        (0, "<I", 1),
        (8, "<I", 0x01020304),
        (12, "<I", 0x11121314),
        (16, "<I", 0x21222324),
        (20, "B", 1),
    ],
    "done-fields": [
        (0, "<I", 0x01020304),
        (4, "<I", 0),
        (8, "<Q", 0x1112131415161718),
        (16, "<Q", 0x2122232425262728),
        (24, "<Q", 0x3132333435363738),
    ],
    "done-acks": [(4, "<I", 2), (32, "B", 0x40), (47, "B", 0x4F), (48, "B", 1), (52, "B", 0x60), (68, "B", 0)],
    "fate-fields": [(0, "B", 1), (2, "<H", 54), (4, "<I", 0x01020304), (8, "B", ord("S"))],
}

LENGTHS = {
    "hello-dialer": 80,
    "proof-dialer": 32,
    "describe-enums-1": 72,
    "describe-fields": 72 + 2 * 4 + 11,
    "ready-plain": 32,
    "plan-keepalive": 32,
    "plan-open": 32 + 28,
    "plan-fields": 32 + 28 + 2 * 4 + 3 * 4 + 2 * 24 + 4,
    "tokens-two": 8 + 2 * 16,
    "done-plain": 32,
    "done-acks": 32 + 2 * 20,
    "fate-stop": 8,
    "fate-longest": 520,
    "echo-plain": 0,
}

RESERVED: dict[str, list[int]] = {
    "hello-dialer": [*range(9, 16)],
    "describe-fields": [7, 69, 70, 71],
    "ready-fields": [7, *range(20, 24)],
    "plan-fields": [7, *range(28, 32), 37, 38, 39, 81, 82, 83, 105, 106, 107],
    "tokens-fields": [*range(4, 8), 21, 22, 23],
    "done-acks": [49, 50, 51, 69, 70, 71],
    "fate-fields": [1],
}

ENUMS: list[tuple[str, int, set[int]]] = [
    ("hello-dialer", 8, {1, 2, 3}),
    ("describe-enums-1", 29, {1, 2, 3}),
    ("describe-enums-1", 30, {1, 2, 3, 4, 5, 6}),
    ("describe-enums-1", 31, {1, 2, 3, 4, 5, 6}),
    ("describe-enums-1", 68, {1, 2, 3, 4, 5}),
    ("plan-drop", 32, {1, 3}),
    ("plan-save", 60, {1}),
    ("tokens-fields", 20, {0, 1}),
    ("done-acks", 48, {0, 1}),
    ("fate-stop", 0, {1, 2, 3}),
    ("fate-stop", 2, {0, *range(1, 36), *range(40, 55), 60, 61, 62, 63}),
]
"""Payload bytes that hold an enum or a flag, and the values that they can take with the file's other bytes."""

KINDS = ["hello", "proof", "describe", "ready", "plan", "rows", "tokens", "done", "fate", "probe", "echo"]


@pytest.mark.parametrize("name", PAYLOADS)
def test_fields_lie_where_the_page_says(name: str) -> None:
    raw = load(name).raw
    for fields, base in ((HEADER, 0), (PAYLOADS[name], 32)):
        for offset, form, value in fields:
            assert struct.unpack_from(form, raw, base + offset) == (value,), offset


@pytest.mark.parametrize("name", LENGTHS)
def test_payloads_have_the_lengths_of_the_page(name: str) -> None:
    raw = load(name).raw
    assert len(raw) == 32 + LENGTHS[name]
    assert struct.unpack_from("<I", raw, 24) == (LENGTHS[name],)


@pytest.mark.parametrize(("name", "offset"), [(name, at) for name, offsets in RESERVED.items() for at in offsets])
def test_each_reserved_byte_must_be_zero(name: str, offset: int) -> None:
    for value in (1, 0x80):
        raw = bytearray(load(name).raw)
        assert raw[32 + offset] == 0
        raw[32 + offset] = value
        [frame] = read_capture(bytes(raw))
        assert isinstance(frame, Broken)
        assert frame.error.code is ErrorCode.RESERVED_NOT_ZERO


@pytest.mark.parametrize(("name", "offset", "values"), ENUMS)
def test_each_enum_takes_its_values_only(name: str, offset: int, values: set[int]) -> None:
    taken = set()
    for value in range(256):
        raw = bytearray(load(name).raw)
        raw[32 + offset] = value
        [frame] = read_capture(bytes(raw))
        if isinstance(frame, Captured):
            taken.add(value)
    assert taken == values


def test_headers_count_and_number() -> None:
    part = load("rows-part").raw
    assert struct.unpack_from("<QIII", part, 8) == (41, 3, 2, 48)
    assert struct.unpack_from("<I", part, 28) == (zlib.crc32(part[:28]),)
    assert part[:4] == b"TFSL"
    assert struct.unpack_from("<Q", load("plan-fields").raw, 8) == (0xFFFFFFFFFFFFFFFF,)


def test_kinds_and_channels_have_the_numbers_of_the_page() -> None:
    assert [kind.label for kind in Kind] == KINDS
    assert [int(kind) for kind in Kind] == list(range(1, 12))
    assert [(channel.label, int(channel)) for channel in Channel] == [("control", 1), ("rows", 2), ("probe", 3)]


def test_the_fingerprint_is_that_of_the_canonical_layout() -> None:
    layout = Layout(Boundary(576), "ab" * 32, 30, ((0, 15), (15, 30)))
    assert layout.canonical() == CANONICAL
    assert layout.fingerprint() == FINGERPRINT == load("hello-dialer").raw[48:80]

"""Packets: golden files both ways, every fault by a file, any bytes raise only PacketError, sizes bounded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.swim.golden_values import CLUSTER, GOOD
from cluster.swim.strategies import packets, steady
from ropeway.cluster.names import NAME_BYTES, VALUE_BYTES, Entry
from ropeway.cluster.swim.errors import Fault, PacketError
from ropeway.cluster.swim.packets import (
    HEADER_BYTES,
    PACKET_BYTES,
    PAGE_ENTRIES,
    PULL_KEYS,
    Packet,
    Pull,
    Sync,
    decode_packet,
    encode_body,
    with_records,
)
from ropeway.cluster.swim.records import MemberRecord, NameRecord, encode_record
from ropeway.cluster.swim.values import State, Statement
from ropeway.wire.capture import parse_hex

GOLDEN = Path(__file__).parent / "golden"
TEXTS = {path.stem: path.read_text() for path in sorted(GOLDEN.glob("*.hex"))}
ERRORS = {name: match[1] for name, text in TEXTS.items() if (match := re.search(r"^# error: (\w+)$", text, re.M))}
JUDGED_BY_THE_CORE = {"wrong_cluster", "wrong_sender", "bad_seal", "label_taken", "cluster_full"}


def encode(packet: Packet) -> bytes:
    return with_records(encode_body(packet.cluster, packet.body), [encode_record(record) for record in packet.records])


@pytest.mark.parametrize("name", GOOD)
def test_good_values_encode_to_the_file(name: str) -> None:
    assert encode(GOOD[name]).hex() == parse_hex(TEXTS[name]).hex()


@pytest.mark.parametrize("name", GOOD)
def test_good_files_decode_to_the_values(name: str) -> None:
    assert decode_packet(parse_hex(TEXTS[name])) == GOOD[name]


@pytest.mark.parametrize("name", ERRORS)
def test_bad_files_raise_their_error(name: str) -> None:
    raw = parse_hex(TEXTS[name])
    with pytest.raises(PacketError) as caught:
        decode_packet(raw)
    assert caught.value.fault.label == ERRORS[name]
    assert 0 <= caught.value.at <= len(raw)
    assert name.partition("-")[2].startswith(ERRORS[name])


def test_every_file_and_every_fault_is_tested() -> None:
    assert set(TEXTS) == set(GOOD) | set(ERRORS)
    assert set(ERRORS.values()) == {fault.label for fault in Fault} - JUDGED_BY_THE_CORE


@steady
@given(packets)
def test_packets_come_back_as_they_were(packet: Packet) -> None:
    raw = encode(packet)
    if len(raw) <= PACKET_BYTES:
        assert decode_packet(raw) == packet


@steady
@given(st.binary(max_size=PACKET_BYTES + 1))
def test_any_bytes_raise_only_packet_error(raw: bytes) -> None:
    judge(raw)


@steady
@given(packets, st.data())
def test_changed_packets_raise_only_packet_error(packet: Packet, data: st.DataObject) -> None:
    raw = bytearray(encode(packet))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    judge(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    judge(bytes(raw))


def judge(raw: bytes) -> None:
    """What is accepted must encode to the same bytes; all else is a PacketError."""
    try:
        packet = decode_packet(raw)
    except PacketError:
        return
    assert encode(packet) == raw


@pytest.mark.parametrize("name", GOOD)
def test_every_cut_of_a_good_packet_is_refused(name: str) -> None:
    raw = encode(GOOD[name])
    for length in range(len(raw)):
        with pytest.raises(PacketError):
            decode_packet(raw[:length])


def test_the_largest_of_everything_fits_one_packet() -> None:
    page = Sync(True, 0, (1 << 64) - 1, tuple((key, 0) for key in range(PAGE_ENTRIES)))
    assert PACKET_BYTES - 12 < len(encode_body(CLUSTER, page)) <= PACKET_BYTES
    pull = encode_body(CLUSTER, Pull(tuple(range(PULL_KEYS))))
    assert PACKET_BYTES - 8 < len(pull) <= PACKET_BYTES
    statement = Statement(bytes(32), 1, 1, "l" * 63, bytes(255), seal=bytes(64))
    member = encode_record(MemberRecord(statement, State.SUSPECT, 1, b"\1" * 32))
    name = encode_record(NameRecord(Entry("n" * NAME_BYTES, 1, 1, bytes(32), value=bytes(VALUE_BYTES), seal=bytes(64))))
    assert len(member) == 471
    assert HEADER_BYTES + len(member) + len(name) <= PACKET_BYTES

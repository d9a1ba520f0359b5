"""The exchange between nodes as pure bytes: any split gives the same, any bytes raise only its own error."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.checkpoints.fetch.exchange import (
    DATA_BYTES,
    MAX_RANGES,
    PREFACE,
    READ_BYTES,
    Answer,
    Ask,
    Asker,
    Data,
    End,
    ExchangeError,
    Giver,
    Have,
    Read,
    Refused,
    Request,
)
from ropeway.checkpoints.fetch.source import FileFacts

KEY = "ab" * 32
FACTS = FileFacts("modèle.gguf", 1000, "sha256:" + "1" * 64)
BODY = b"0123456789" * 5
SHA = hashlib.sha256(BODY).hexdigest()


def golden(request: Request) -> bytes:
    return PREFACE + Asker().request(request)


@pytest.mark.parametrize(
    ("request_", "raw"),
    [
        (Ask(KEY), "54465758 01000000 20000000 01" + KEY),
        (Read(KEY, 5, 258), "54465758 01000000 30000000 03" + KEY + "0500000000000000 0201000000000000"),
        (Read(KEY, 5, 258, True), "54465758 01000000 30000000 06" + KEY + "0500000000000000 0201000000000000"),
    ],
)
def test_requests_byte_by_byte(request_: Request, raw: str) -> None:
    assert golden(request_) == bytes.fromhex(raw.replace(" ", ""))
    giver = Giver()
    found = [request for byte in golden(request_) for request in giver.feed(bytes([byte]))]
    assert found == [request_]


def answers(*answers: Answer) -> bytes:
    return PREFACE + b"".join(Giver.answer(answer) for answer in answers)


CONVERSATIONS: list[tuple[Request, list[Answer]]] = [
    (Ask(KEY), [Have(FACTS, ((0, 10), (500, 1000)))]),
    (Ask(KEY), [Have(FACTS, ())]),
    (Ask(KEY), [Refused("not here", lasting=True)]),
    (Read(KEY, 0, 50), [Data(memoryview(BODY[:20])), Data(memoryview(BODY[20:])), End(SHA)]),
    (Read(KEY, 0, 50), [Data(memoryview(BODY[:20])), Refused("it is gone", lasting=False)]),
    (Read(KEY, 0, 50, True), [End(SHA)]),
]


@pytest.mark.parametrize(("request_", "replies"), CONVERSATIONS)
@given(cuts=st.lists(st.integers(0, 300), max_size=5))
def test_any_split_gives_the_same_answers(request_: Request, replies: list[Answer], cuts: list[int]) -> None:
    raw = answers(*replies)
    asker = Asker()
    asker.request(request_)
    places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    found: list[Answer] = []
    for start, end in pairwise(places):
        found += asker.feed(raw[start:end])
    assert found == replies
    assert asker.request(Ask(KEY))  # free for the next


@pytest.mark.parametrize(
    ("request_", "raw", "match"),
    [
        (Ask(KEY), b"HTTP/1.1", "does not speak this version"),
        (Ask(KEY), b"TFWX\x02", "does not speak this version"),
        (Ask(KEY), PREFACE + struct.pack("<IB", 32, 1), "kind 1 has no place"),
        (Ask(KEY), PREFACE + struct.pack("<IB", 0, 99), "kind 99 has no place"),
        (Ask(KEY), PREFACE + struct.pack("<IB", DATA_BYTES + 1, 4), f"data has at most {DATA_BYTES}"),
        (Ask(KEY), PREFACE + struct.pack("<IB", 0xFFFFFFFF, 2), "have has at most"),
        (Ask(KEY), answers(Data(memoryview(b"x"))), "data came where it has no place"),
        (Ask(KEY), answers(End(SHA)), "end came where it has no place"),
        (Ask(KEY), answers(Have(FACTS, ((0, 1001),))), "bytes outside its file"),
        (Ask(KEY), answers(Have(FileFacts("f", 1 << 60, "t"), ())), "bytes outside its file"),
        (Ask(KEY), PREFACE + struct.pack("<IB", 3, 2) + b"abc", "have cannot be read"),
        (Ask(KEY), PREFACE + struct.pack("<IBQHHI", 16, 2, 9, 0, 0, 5), "another length than its count"),
        (Ask(KEY), PREFACE + struct.pack("<IBQH", 10, 2, 9, 600), "a text of have is too long"),
        (Read(KEY, 0, 50), answers(Have(FACTS, ())), "have came where it has no place"),
        (Read(KEY, 0, 50), answers(Data(memoryview(BODY + b"x"))), "data came where it has no place"),
        (Read(KEY, 0, 50), answers(Data(memoryview(BODY[:9])), End(SHA)), "end came where it has no place"),
        (Read(KEY, 0, 50), answers(Data(memoryview(BODY)), End("00" * 32)), "their SHA-256 differs"),
        (Read(KEY, 0, 50), PREFACE + struct.pack("<IB", 0, 4), "data came where it has no place"),
        (Read(KEY, 0, 50, True), answers(Data(memoryview(b"x"))), "data came where it has no place"),
        (Ask(KEY), answers(Refused("a", lasting=True), Refused("b", lasting=True)), "refused came where it has no"),
        (Ask(KEY), PREFACE + struct.pack("<IB", 0, 7), "refused came where it has no place"),
    ],
)
def test_answers_that_break_the_rules(request_: Request, raw: bytes, match: str) -> None:
    asker = Asker()
    asker.request(request_)
    with pytest.raises(ExchangeError, match=match):
        list(asker.feed(raw))


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (PREFACE + struct.pack("<IB", 31, 1) + b"x" * 31, "a request of 31 bytes"),
        (PREFACE + struct.pack("<IB", 33, 1), "ask has at most 32"),
        (PREFACE + struct.pack("<IB", 0, 4), "kind 4 has no place"),
        (golden(Read(KEY, 0, 1))[:-8] + struct.pack("<Q", 0), "a request for 0 bytes"),
        (golden(Read(KEY, 0, 1))[:-8] + struct.pack("<Q", READ_BYTES + 1), "a request for"),
        (golden(Read(KEY, 0, 1))[:-16] + struct.pack("<QQ", 1 << 63, 1), "a request for 1 bytes from byte"),
    ],
)
def test_requests_that_break_the_rules(raw: bytes, match: str) -> None:
    with pytest.raises(ExchangeError, match=match):
        list(Giver().feed(raw))


def listening() -> Asker:
    asker = Asker()
    asker.request(Read(KEY, 0, 50))
    return asker


@pytest.mark.parametrize("make", [Giver, listening])
@given(raw=st.binary(max_size=200), greeted=st.booleans())
def test_any_bytes_raise_only_its_own_error(make: Callable[[], Giver | Asker], raw: bytes, greeted: bool) -> None:
    side = make()
    try:
        list(side.feed(PREFACE + raw if greeted else raw))
    except ExchangeError:
        return


def test_a_list_of_ranges_has_a_limit() -> None:
    held = tuple((2 * n, 2 * n + 1) for n in range(MAX_RANGES + 5))
    facts = FileFacts("f", 2 * len(held), "t")
    asker = Asker()
    asker.request(Ask(KEY))
    (have,) = asker.feed(answers(Have(facts, held)))
    assert isinstance(have, Have)
    assert have.held == held[:MAX_RANGES]

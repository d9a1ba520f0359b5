"""Hello and proof between nodes: what is refused, and by which name."""

from __future__ import annotations

import os

import pytest

from ropeway.transport.iroh.proof import (
    ACCEPTOR,
    DIALER,
    HELLO_BYTES,
    PROOF_BYTES,
    NotProved,
    check_proof,
    cluster_id,
    judge_hello,
    make_hello,
    make_proof,
)

KEY = bytes(range(32))
IDS = (b"d" * 32, b"a" * 32)
HELLOS = make_hello(KEY, b"1" * 32), make_hello(KEY, b"2" * 32)


def test_a_hello_is_what_the_page_says() -> None:
    hello = make_hello(KEY, b"n" * 32)
    assert len(hello) == HELLO_BYTES
    assert hello == b"RPWN\x01\0\0\0" + cluster_id(KEY) + b"n" * 32
    judge_hello(hello, KEY)
    assert KEY not in hello


@pytest.mark.parametrize(
    ("hello", "name"),
    [
        (b"", "wrong_magic"),
        (b"HTTP" + bytes(52), "wrong_magic"),
        (make_hello(KEY, bytes(32))[:-1], "wrong_magic"),
        (b"RPWN\x02\0\0\0" + cluster_id(KEY) + bytes(32), "wrong_version"),
        (b"RPWN\x01\0\1\0" + cluster_id(KEY) + bytes(32), "wrong_version"),
        (make_hello(bytes(32), bytes(32)), "wrong_cluster"),
    ],
)
def test_hellos_are_refused_by_name(hello: bytes, name: str) -> None:
    with pytest.raises(NotProved) as caught:
        judge_hello(hello, KEY)
    assert caught.value.name == name


def test_a_proof_is_good_for_its_own_connection_only() -> None:
    proof = make_proof(KEY, DIALER, IDS, HELLOS)
    assert len(proof) == PROOF_BYTES
    check_proof(KEY, DIALER, IDS, HELLOS, proof)
    fresh = make_hello(KEY, os.urandom(32))
    for key, side, ids, hellos in (
        (bytes(32), DIALER, IDS, HELLOS),  # another cluster's key
        (KEY, ACCEPTOR, IDS, HELLOS),  # sent back as it came
        (KEY, DIALER, IDS[::-1], HELLOS),  # between others
        (KEY, DIALER, (b"x" * 32, IDS[1]), HELLOS),
        (KEY, DIALER, IDS, (HELLOS[0], fresh)),  # replayed
        (KEY, DIALER, IDS, (fresh, HELLOS[1])),
    ):
        with pytest.raises(NotProved, match="wrong_key"):
            check_proof(key, side, ids, hellos, proof)
    with pytest.raises(NotProved, match="wrong_key"):
        check_proof(KEY, DIALER, IDS, HELLOS, b"")

"""Hello and proof between two nodes: both hold the cluster's key, for this connection alone.

TLS has proved each side's endpoint id before; the proofs bind the key to both ids and to two fresh nonces, so that
neither can be used anywhere else. Pure: bytes in, bytes out.

Hello, 56 bytes: 0 the bytes `RPWN`; 4 u8 version, 1; 5 three reserved bytes, zero; 8 the cluster's id, 16 bytes; 24 a
nonce of 32 random bytes. Proof, 32 bytes: HMAC-SHA256(key, b"ropeway node proof 1" + side + dialer id + acceptor id +
dialer hello + acceptor hello), `side` being the byte `d` or `a` for who sends it. The order: the dialer's hello, the
acceptor's, the dialer's proof, and the acceptor's only after that has passed.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

MAGIC: Final = b"RPWN"
VERSION: Final = 1
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 32
CLUSTER_BYTES: Final = 16
HELLO_BYTES: Final = 56
PROOF_BYTES: Final = 32
DIALER: Final = b"d"
ACCEPTOR: Final = b"a"


class NotProved(Exception):
    """The other node is refused; `name` is why, one word: wrong_magic, wrong_version, wrong_cluster, wrong_key."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


def cluster_id(key: bytes) -> bytes:
    """A cluster's public id, which its key gives and which does not give the key."""
    return hashlib.sha256(b"ropeway cluster 1" + key).digest()[:CLUSTER_BYTES]


def make_hello(key: bytes, nonce: bytes) -> bytes:
    """Our hello. `nonce` is fresh random bytes."""
    assert len(nonce) == NONCE_BYTES
    return MAGIC + bytes((VERSION, 0, 0, 0)) + cluster_id(key) + nonce


def judge_hello(hello: bytes, key: bytes) -> None:
    """Judge the other side's hello. Raises NotProved."""
    if len(hello) != HELLO_BYTES or hello[:4] != MAGIC:
        raise NotProved("wrong_magic", "it does not speak as a node does")
    if hello[4] != VERSION or any(hello[5:8]):
        raise NotProved("wrong_version", f"it speaks version {hello[4]}, we speak {VERSION}")
    if hello[8:24] != cluster_id(key):
        raise NotProved("wrong_cluster", "it belongs to another cluster")


def make_proof(key: bytes, side: bytes, ids: tuple[bytes, bytes], hellos: tuple[bytes, bytes]) -> bytes:
    """The proof that `side` sends; `ids` and `hellos` are the dialer's and the acceptor's."""
    assert side in (DIALER, ACCEPTOR)
    text = b"ropeway node proof 1" + side + b"".join(ids) + b"".join(hellos)
    return hmac.new(key, text, hashlib.sha256).digest()


def check_proof(key: bytes, side: bytes, ids: tuple[bytes, bytes], hellos: tuple[bytes, bytes], proof: bytes) -> None:
    """Check the proof that `side` has sent, in constant time. Raises NotProved."""
    if not hmac.compare_digest(make_proof(key, side, ids, hellos), proof):
        raise NotProved("wrong_key", "its proof is not made with this cluster's key, or not for this connection")

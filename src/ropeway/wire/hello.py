"""Hello and proof (wire.md 4): who speaks, of which layout, and that both hold the same key.

Draws no randomness: the nonce is given. Whether a hello suits this rank is judged here too; whether the rank is
connected already is for the owner.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ropeway.wire.errors import ErrorCode, ProtocolError
from ropeway.wire.frames import HELLO_BYTES, PROOF_BYTES, Channel, Payload

KEY_BYTES: Final = 32
FINGERPRINT_BYTES: Final = 32
NONCE_BYTES: Final = 32

_HELLO: Final = struct.Struct("<IIB7s32s32s")
_ZEROS: Final = bytes(7)
_PROOF_LABEL: Final = b"TFSP proof 1"


class Side(IntEnum):
    """Which end of a connection: who dialled or who accepted."""

    DIALER = 0
    ACCEPTOR = 1

    @property
    def other(self) -> Side:
        """The end across."""
        return Side.ACCEPTOR if self is Side.DIALER else Side.DIALER

    @property
    def letter(self) -> bytes:
        """The byte that goes into the proof (wire.md 4)."""
        return b"d" if self is Side.DIALER else b"a"


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of either side. `fingerprint` and `nonce` have 32 bytes; the nonce is fresh a connection."""

    rank: int
    world: int
    channel: Channel
    fingerprint: bytes
    nonce: bytes

    def encode(self) -> bytes:
        """The 80 payload bytes. Raises ProtocolError `bad_value` for a field that does not fit."""
        if len(self.fingerprint) != FINGERPRINT_BYTES or len(self.nonce) != NONCE_BYTES:
            raise ProtocolError(ErrorCode.BAD_VALUE, "fingerprint and nonce must have 32 bytes each", 16)
        try:
            return _HELLO.pack(self.rank, self.world, self.channel, _ZEROS, self.fingerprint, self.nonce)
        except struct.error as error:
            raise ProtocolError(ErrorCode.BAD_VALUE, f"rank {self.rank}, world {self.world}: {error}") from None


def decode_hello(payload: Payload) -> Hello:
    """Decode 80 bytes. Raises ProtocolError `truncated`, `too_long`, `reserved_not_zero` or `bad_value` (channel)."""
    _judge_exact(payload, HELLO_BYTES, "hello")
    rank, world, number, reserved, fingerprint, nonce = _HELLO.unpack(payload)
    if reserved != _ZEROS:
        raise ProtocolError(ErrorCode.RESERVED_NOT_ZERO, f"reserved bytes of a hello are {reserved.hex()}", 9)
    if not 1 <= number <= 3:
        raise ProtocolError(ErrorCode.BAD_VALUE, f"channel is {number}, expected 1 to 3", 8)
    return Hello(rank, world, Channel(number), fingerprint, nonce)


def judge_hello(ours: Hello, side: Side, peer: Hello) -> None:
    """Judge the peer's hello against ours, we being `side`: world, fingerprint, channel, rank in turn (wire.md 4).

    Raises ProtocolError `wrong_world`, `wrong_fingerprint`, `wrong_channel` or `wrong_rank`.
    """
    if peer.world != ours.world:
        raise ProtocolError(ErrorCode.WRONG_WORLD, f"the peer's world is {peer.world}, ours is {ours.world}", 4)
    if peer.fingerprint != ours.fingerprint:
        raise ProtocolError(
            ErrorCode.WRONG_FINGERPRINT,
            f"the peer's layout is {peer.fingerprint.hex()[:16]}, ours is {ours.fingerprint.hex()[:16]} "
            "(another checkpoint, another cut or another sampler)",
            16,
        )
    if peer.channel is not ours.channel:
        raise ProtocolError(
            ErrorCode.WRONG_CHANNEL, f"the peer's channel is {peer.channel.label}, ours is {ours.channel.label}", 8
        )
    if peer.channel is Channel.CONTROL and side is Side.ACCEPTOR and ours.rank != 0:
        raise ProtocolError(ErrorCode.WRONG_CHANNEL, f"control is dialled to rank 0, this is rank {ours.rank}", 8)
    low, high = _ranks_across(ours, side)
    if not low <= peer.rank <= high:
        expected = str(low) if low == high else f"{low} to {high}"
        raise ProtocolError(
            ErrorCode.WRONG_RANK,
            f"the peer's rank is {peer.rank}, expected {expected} on {peer.channel.label} of rank {ours.rank}",
        )


def _ranks_across(ours: Hello, side: Side) -> tuple[int, int]:
    """Lowest and highest rank that the other end of our connection may have."""
    match ours.channel:
        case Channel.CONTROL:
            return (0, 0) if side is Side.DIALER else (1, ours.world - 1)
        case Channel.ROWS:
            rank = (ours.rank + (1 if side is Side.DIALER else -1)) % ours.world
            return rank, rank
        case Channel.PROBE:
            return 0, ours.world - 1


def make_proof(key: bytes, side: Side, dialer_hello: bytes, acceptor_hello: bytes) -> bytes:
    """The 32 bytes by which `side` shows that it holds the key: HMAC-SHA256 over both hellos (wire.md 4)."""
    return hmac.digest(key, _PROOF_LABEL + side.letter + dialer_hello + acceptor_hello, "sha256")


def check_proof(key: bytes, side: Side, dialer_hello: bytes, acceptor_hello: bytes, proof: Payload) -> None:
    """Check, in constant time, a proof that `side` sent.

    Raises ProtocolError `truncated`, `too_long` or `wrong_key`.
    """
    _judge_exact(proof, PROOF_BYTES, "proof")
    if not hmac.compare_digest(make_proof(key, side, dialer_hello, acceptor_hello), bytes(proof)):
        raise ProtocolError(ErrorCode.WRONG_KEY, "the peer's proof does not match: it holds another key")


def _judge_exact(payload: Payload, expected: int, what: str) -> None:
    if len(payload) != expected:
        code = ErrorCode.TRUNCATED if len(payload) < expected else ErrorCode.TOO_LONG
        raise ProtocolError(code, f"a {what} of {len(payload)} bytes, expected {expected}", min(len(payload), expected))

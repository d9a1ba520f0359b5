"""The protocol between ranks as pure bytes and values (wire.md): no sockets, no clock, no randomness.

Standard library only. `link.Link` is one end of a connection; the rest are frames, messages and their errors.
"""

from ropeway.wire.boot import NO_STATES, Describe, Expected, Ready, check_description, decode_describe, decode_ready
from ropeway.wire.entries import CacheAction, CacheOp, Op, Returns, StreamEntry
from ropeway.wire.errors import ErrorCode, ProtocolError
from ropeway.wire.events import (
    Described,
    DoneHeard,
    EchoHeard,
    Event,
    FateHeard,
    HelloDone,
    PlanHeard,
    ProbeHeard,
    ReadyHeard,
    RowsHeard,
    TokensHeard,
)
from ropeway.wire.frames import HEADER_BYTES, Channel, Header, Kind, decode_header, encode_header
from ropeway.wire.hello import KEY_BYTES, NONCE_BYTES, Hello, Side, check_proof, decode_hello, make_proof
from ropeway.wire.link import Link
from ropeway.wire.plan import Plan, decode_plan
from ropeway.wire.results import (
    CacheAck,
    Done,
    Fate,
    FateKind,
    Token,
    Tokens,
    decode_done,
    decode_fate,
    decode_tokens,
)
from ropeway.wire.timers import KEEPALIVE_S, PROOF_S, SILENCE_S, UNPROVED_PER_RANK, KeepAlive, Silence

__all__ = [
    "HEADER_BYTES",
    "KEEPALIVE_S",
    "KEY_BYTES",
    "NONCE_BYTES",
    "NO_STATES",
    "PROOF_S",
    "SILENCE_S",
    "UNPROVED_PER_RANK",
    "CacheAck",
    "CacheAction",
    "CacheOp",
    "Channel",
    "Describe",
    "Described",
    "Done",
    "DoneHeard",
    "EchoHeard",
    "ErrorCode",
    "Event",
    "Expected",
    "Fate",
    "FateHeard",
    "FateKind",
    "Header",
    "Hello",
    "HelloDone",
    "KeepAlive",
    "Kind",
    "Link",
    "Op",
    "Plan",
    "PlanHeard",
    "ProbeHeard",
    "ProtocolError",
    "Ready",
    "ReadyHeard",
    "Returns",
    "RowsHeard",
    "Side",
    "Silence",
    "StreamEntry",
    "Token",
    "Tokens",
    "TokensHeard",
    "check_description",
    "check_proof",
    "decode_describe",
    "decode_done",
    "decode_fate",
    "decode_header",
    "decode_hello",
    "decode_plan",
    "decode_ready",
    "decode_tokens",
    "encode_header",
    "make_proof",
]

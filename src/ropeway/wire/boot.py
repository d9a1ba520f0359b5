"""Describe and ready (wire.md 6): what a stage can do, and rank 0's refusals by name before any round runs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

from ropeway.types import Backend, EngineKind, KvDtype, Layout, RowDtype
from ropeway.wire.errors import ErrorCode, ProtocolError
from ropeway.wire.frames import Payload
from ropeway.wire.prefix import PREFIX_MAGIC, PROTOCOL, Message, judge_least, judge_prefix, judge_size, reserved
from ropeway.wire.results import decode_text

NO_STATES: Final = 0xFFFFFFFF
"""`Describe.states` of a range that keeps no recurrent state."""

_DESCRIBE: Final = struct.Struct("<IHBB5I4B4IQIIHHI")
_READY: Final = struct.Struct("<IHBBIIIIQ")

_Enum = TypeVar("_Enum", bound=IntEnum)


@dataclass(frozen=True, slots=True)
class Describe:
    """A stage's description: its layers first..end, its boundary, its capacities in rows and streams, its taps."""

    rank: int
    world: int
    first: int
    end: int
    hidden: int
    planes: int
    row_dtype: RowDtype
    kv_dtype: KvDtype
    backend: Backend
    engine: EngineKind
    chunk: int
    max_rows: int
    parallel: int
    context: int
    kv_rows: int
    states: int = NO_STATES
    draft_width: int = 0
    taps: tuple[int, ...] = ()
    release: str = ""

    def encode(self) -> bytes:
        """The payload. Raises ProtocolError `bad_value` where a field does not fit or the taps are out of order."""
        _judge_taps(self.taps, self.first, self.end)
        release = self.release.encode()
        try:
            fixed = _DESCRIBE.pack(
                PREFIX_MAGIC,
                PROTOCOL,
                Message.DESCRIBE,
                0,
                self.rank,
                self.world,
                self.first,
                self.end,
                self.hidden,
                self.planes,
                self.row_dtype,
                self.kv_dtype,
                self.backend,
                self.chunk,
                self.max_rows,
                self.parallel,
                self.context,
                self.kv_rows,
                self.states,
                self.draft_width,
                len(self.taps),
                len(release),
                self.engine,
            )
            return fixed + struct.pack(f"<{len(self.taps)}I", *self.taps) + release
        except struct.error as error:
            raise ProtocolError(ErrorCode.BAD_VALUE, f"a field of the description does not fit: {error}") from None


def decode_describe(payload: Payload) -> Describe:
    """Decode a description.

    Raises ProtocolError `truncated`, `prefix_magic`, `prefix_protocol`, `prefix_message`, `reserved_not_zero`,
    `too_long`, `bad_value` (an enum; taps not ascending inside first..end) or `bad_utf8`.
    """
    size = len(payload)
    judge_least(size, _DESCRIBE.size, "description")
    fields = _DESCRIBE.unpack_from(payload)
    magic, protocol, message, spare, rank, world, first, end, hidden, planes, row_dtype, kv_dtype, backend = fields[:13]
    chunk, max_rows, parallel, context, kv_rows, states, draft_width, tap_count, text_bytes, engine = fields[13:]
    judge_prefix(magic, protocol, message, Message.DESCRIBE)
    if spare:
        raise reserved("the prefix", spare, 7)
    if engine > 0xFF:
        raise reserved("the description", f"{engine >> 8:#08x}", 69)
    text_at = _DESCRIBE.size + 4 * tap_count
    judge_size(size, text_at + text_bytes, "description")
    row_dtype_ = _member(RowDtype, row_dtype, "row dtype", 29)
    kv_dtype_ = _member(KvDtype, kv_dtype, "KV dtype", 30)
    backend_ = _member(Backend, backend, "backend", 31)
    engine_ = _member(EngineKind, engine, "engine", 68)
    taps = struct.unpack_from(f"<{tap_count}I", payload, _DESCRIBE.size)
    _judge_taps(taps, first, end)
    return Describe(
        rank,
        world,
        first,
        end,
        hidden,
        planes,
        row_dtype_,
        kv_dtype_,
        backend_,
        engine_,
        chunk,
        max_rows,
        parallel,
        context,
        kv_rows,
        states,
        draft_width,
        taps,
        decode_text(payload, text_at, "release"),
    )


def _judge_taps(taps: tuple[int, ...], first: int, end: int) -> None:
    last = first - 1
    for index, tap in enumerate(taps):
        if not last < tap < end:
            raise ProtocolError(
                ErrorCode.BAD_VALUE, f"tap {index} is layer {tap}, expected {last + 1} to {end - 1}", 72 + 4 * index
            )
        last = tap


def _member(enum: type[_Enum], number: int, what: str, at: int) -> _Enum:
    """The enum's member of that number. Raises ProtocolError `bad_value`."""
    try:
        return enum(number)
    except ValueError:
        raise ProtocolError(ErrorCode.BAD_VALUE, f"{what} is {number}, expected 1 to {max(enum)}", at) from None


@dataclass(frozen=True, slots=True)
class Ready:
    """A stage has loaded, and can execute the shapes that it declared. Times in milliseconds."""

    rank: int
    load_ms: int
    warm_ms: int
    weights_bytes: int

    def encode(self) -> bytes:
        """The payload. Raises ProtocolError `bad_value` for a field that does not fit."""
        try:
            return _READY.pack(
                PREFIX_MAGIC, PROTOCOL, Message.READY, 0, self.rank, self.load_ms, self.warm_ms, 0, self.weights_bytes
            )
        except struct.error as error:
            raise ProtocolError(ErrorCode.BAD_VALUE, f"a field of {self} does not fit: {error}") from None


def decode_ready(payload: Payload) -> Ready:
    """Decode a ready payload.

    Raises ProtocolError `truncated`, `prefix_magic`, `prefix_protocol`, `prefix_message`, `reserved_not_zero` or
    `too_long`.
    """
    judge_least(len(payload), _READY.size, "ready payload")
    magic, protocol, message, spare, rank, load_ms, warm_ms, spare2, weights_bytes = _READY.unpack_from(payload)
    judge_prefix(magic, protocol, message, Message.READY)
    if spare:
        raise reserved("the prefix", spare, 7)
    if spare2:
        raise reserved("the ready payload", spare2, 20)
    judge_size(len(payload), _READY.size, "ready payload")
    return Ready(rank, load_ms, warm_ms, weights_bytes)


@dataclass(frozen=True, slots=True)
class Expected:
    """What rank 0 asks of the stage at `rank`: the least capacities, and what must be equal everywhere."""

    rank: int
    chunk: int
    max_rows: int
    parallel: int
    context: int
    draft_width: int
    release: str


def check_description(layout: Layout, expected: Expected, describe: Describe) -> None:
    """Refuse a description that does not suit the layout (wire.md 6), naming the first field in the page's order.

    Capacities may exceed what is expected. Raises ProtocolError with a boot refusal (40 to 54).
    """
    boundary = layout.boundary
    first, end = layout.ranges[expected.rank]
    taps = tuple(tap for tap in boundary.taps if first <= tap < end)
    d = describe
    checks = (
        (d.rank == expected.rank, ErrorCode.REFUSED_RANK, d.rank, expected.rank),
        (d.world == layout.world, ErrorCode.REFUSED_WORLD, d.world, layout.world),
        ((d.first, d.end) == (first, end), ErrorCode.REFUSED_LAYERS, f"{d.first}..{d.end}", f"{first}..{end}"),
        (d.hidden == boundary.hidden, ErrorCode.REFUSED_HIDDEN, d.hidden, boundary.hidden),
        (d.planes == boundary.planes, ErrorCode.REFUSED_PLANES, d.planes, boundary.planes),
        (
            d.row_dtype is boundary.row_dtype,
            ErrorCode.REFUSED_ROW_DTYPE,
            d.row_dtype.label,
            boundary.row_dtype.label,
        ),
        (d.chunk >= expected.chunk, ErrorCode.REFUSED_CHUNK, d.chunk, f"at least {expected.chunk}"),
        (d.max_rows >= expected.max_rows, ErrorCode.REFUSED_MAX_ROWS, d.max_rows, f"at least {expected.max_rows}"),
        (d.parallel >= expected.parallel, ErrorCode.REFUSED_PARALLEL, d.parallel, f"at least {expected.parallel}"),
        (d.context >= expected.context, ErrorCode.REFUSED_CONTEXT, d.context, f"at least {expected.context}"),
        (d.kv_rows >= expected.context, ErrorCode.REFUSED_KV_ROWS, d.kv_rows, f"at least {expected.context}"),
        (d.states >= expected.parallel, ErrorCode.REFUSED_STATES, d.states, f"at least {expected.parallel}"),
        (
            d.draft_width == expected.draft_width,
            ErrorCode.REFUSED_DRAFT_WIDTH,
            d.draft_width,
            expected.draft_width,
        ),
        (d.taps == taps, ErrorCode.REFUSED_TAPS, list(d.taps), list(taps)),
        (d.release == expected.release, ErrorCode.REFUSED_RELEASE, d.release, expected.release),
    )
    for suits, code, theirs, ours in checks:
        if not suits:
            raise ProtocolError(code, f"rank {expected.rank} describes {code.label} {theirs}, expected {ours}")

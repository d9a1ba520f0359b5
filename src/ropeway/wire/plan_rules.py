"""The rules of wire.md 7 that a plan alone can tell, in the order of wire.md 9; encoder and decoder share them."""

from __future__ import annotations

from collections.abc import Sequence

from ropeway.wire.entries import KEY_BYTES, CacheAction, CacheOp, Op, Returns, StreamEntry
from ropeway.wire.errors import ErrorCode, ProtocolError
from ropeway.wire.frames import U32_MAX

FIXED_BYTES = 32
ENTRY_BYTES = 28
CACHE_BYTES = 24


def judge_entries(entries: Sequence[StreamEntry]) -> int:
    """Judge the stream entries and give the round's rows.

    Raises ProtocolError `stream_order`, `empty_rows`, `rows_on_close`, `first_position`, `accepted_range`,
    `resume_range`, `stale_generation` or `over_capacity`.
    """
    last = -1
    total = 0
    at = FIXED_BYTES
    for entry in entries:
        if entry.stream <= last:
            raise _bad(ErrorCode.STREAM_ORDER, entry, f"follows stream {last}, expected to ascend", at)
        last = entry.stream
        if entry.op is Op.CONTINUE:
            _judge_rows(entry, at)
            if entry.resume:
                raise _bad(ErrorCode.RESUME_RANGE, entry, f"has resume {entry.resume}, expected 0", at + 20)
        else:
            _judge_other(entry, at)
        total += entry.rows
        at += ENTRY_BYTES
    if total > U32_MAX:
        raise ProtocolError(ErrorCode.OVER_CAPACITY, f"the round has {total} rows, at most {U32_MAX}", FIXED_BYTES)
    return total


def _judge_other(entry: StreamEntry, at: int) -> None:
    """Judge an entry of any op but continue."""
    if entry.op is Op.CLOSE or entry.op is Op.CANCEL:
        if entry.rows:
            raise _bad(ErrorCode.ROWS_ON_CLOSE, entry, f"has {entry.rows} rows, expected 0", at + 12)
    else:
        _judge_rows(entry, at)
    if entry.op is not Op.RESUME and entry.first:
        raise _bad(ErrorCode.FIRST_POSITION, entry, f"has first {entry.first}, expected 0", at + 8)
    if entry.accepted:
        raise _bad(ErrorCode.ACCEPTED_RANGE, entry, f"has accepted {entry.accepted}, expected 0", at + 16)
    if entry.op is Op.RESUME:
        if not 0 < entry.resume <= entry.first:
            raise _bad(
                ErrorCode.RESUME_RANGE, entry, f"has resume {entry.resume}, expected 1 to first {entry.first}", at + 20
            )
    elif entry.resume:
        raise _bad(ErrorCode.RESUME_RANGE, entry, f"has resume {entry.resume}, expected 0", at + 20)
    if entry.op is Op.OPEN and entry.generation:
        raise _bad(ErrorCode.STALE_GENERATION, entry, f"has generation {entry.generation}, expected 0", at + 24)


def _judge_rows(entry: StreamEntry, at: int) -> None:
    if not entry.rows:
        raise _bad(ErrorCode.EMPTY_ROWS, entry, "has no rows, expected at least 1", at + 12)
    if entry.first + entry.rows > U32_MAX:
        end = entry.first + entry.rows
        raise _bad(ErrorCode.OVER_CAPACITY, entry, f"ends at position {end}, at most {U32_MAX}", at + 8)


def judge_cuts(cuts: Sequence[int], rows: int, at: int) -> None:
    """Judge the part boundaries against the round's rows. Raises ProtocolError `cut_range`."""
    last = 0
    for index, cut in enumerate(cuts):
        if not last < cut < rows:
            raise ProtocolError(
                ErrorCode.CUT_RANGE,
                f"cut {index} is {cut}, expected more than {last} and less than {rows}",
                at + 4 * index,
            )
        last = cut


def judge_tokens(count: int, rows: int) -> None:
    """Judge the number of token ids: none or one a row. Raises ProtocolError `token_count`."""
    if count and count != rows:
        raise ProtocolError(ErrorCode.TOKEN_COUNT, f"the plan has {count} token ids, expected 0 or its rows {rows}", 16)


def judge_cache(cache: Sequence[CacheOp], entries: Sequence[StreamEntry], at: int) -> None:
    """Judge that restores and resumed streams of one plan pair up, one to one, and that drops name no stream.

    Raises ProtocolError `bad_value`, `reserved_not_zero`, `stream_unknown` or `unknown_key`.
    """
    resumed = {entry.stream for entry in entries if entry.op is Op.RESUME}
    for index, op in enumerate(cache):
        here = at + CACHE_BYTES * index
        if len(op.key) != KEY_BYTES:
            raise ProtocolError(
                ErrorCode.BAD_VALUE, f"key of cache operation {index} has {len(op.key)} bytes", here + 8
            )
        if op.action is CacheAction.DROP and op.stream:
            raise ProtocolError(
                ErrorCode.RESERVED_NOT_ZERO,
                f"stream of cache operation {index}, a drop, is {op.stream}, expected 0",
                here + 4,
            )
        if op.action is CacheAction.RESTORE:
            if op.stream not in resumed:
                raise ProtocolError(
                    ErrorCode.STREAM_UNKNOWN,
                    f"cache operation {index} restores stream {op.stream}, which no resume entry left to pair names",
                    here + 4,
                )
            resumed.remove(op.stream)
    if resumed:
        stream = min(resumed)
        index = next(i for i, entry in enumerate(entries) if entry.stream == stream)
        raise ProtocolError(
            ErrorCode.UNKNOWN_KEY,
            f"stream {stream} resumes, but the plan restores no key for it",
            FIXED_BYTES + ENTRY_BYTES * index,
        )


def judge_listed(listed: Sequence[int], returns: Returns, entries: Sequence[StreamEntry], at: int) -> None:
    """Judge how many rows of each entry come back. Raises ProtocolError `bad_value`."""
    expected = len(entries) if returns is Returns.LISTED else 0
    if len(listed) != expected:
        raise ProtocolError(
            ErrorCode.BAD_VALUE, f"the plan lists returns of {len(listed)} entries, expected {expected}", at
        )
    for index, (count, entry) in enumerate(zip(listed, entries, strict=False)):
        if count > entry.rows:
            raise _bad(ErrorCode.BAD_VALUE, entry, f"has {count} rows come back of {entry.rows}", at + 4 * index)


def _bad(code: ErrorCode, entry: StreamEntry, what: str, at: int) -> ProtocolError:
    return ProtocolError(code, f"stream {entry.stream} ({entry.op.label}) {what}", at)

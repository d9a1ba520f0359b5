"""Hypothesis strategies for valid messages."""

from __future__ import annotations

from hypothesis import strategies as st

from ropeway.types import Backend, EngineKind, KvDtype, RowDtype
from ropeway.wire import (
    CacheAck,
    CacheAction,
    CacheOp,
    Channel,
    Describe,
    Done,
    ErrorCode,
    Fate,
    FateKind,
    Header,
    Hello,
    Kind,
    Op,
    Plan,
    Ready,
    Returns,
    StreamEntry,
    Token,
    Tokens,
)

U32 = st.integers(0, 0xFFFFFFFF)
U64 = st.integers(0, 0xFFFFFFFFFFFFFFFF)
KEYS = st.binary(min_size=16, max_size=16)
DIGESTS = st.binary(min_size=32, max_size=32)
POSITIONS = st.integers(0, 1 << 20)
ROWS = st.integers(1, 1000)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)

headers = st.builds(Header, st.sampled_from(Kind), U64, U32, U32, U32)
hellos = st.builds(Hello, U32, U32, st.sampled_from(Channel), DIGESTS, DIGESTS)
readies = st.builds(Ready, U32, U32, U32, U64)
dones = st.builds(Done, U32, st.lists(st.builds(CacheAck, KEYS, st.booleans()), max_size=4).map(tuple), U64, U64, U64)
fates = st.builds(Fate, st.sampled_from(FateKind), st.sampled_from(ErrorCode), U32, TEXTS)


@st.composite
def tokens(draw: st.DrawFn) -> Tokens:
    streams = sorted(draw(st.sets(U32, min_size=1, max_size=5)))
    return Tokens(tuple(Token(stream, draw(U32), draw(U32), draw(st.booleans())) for stream in streams))


@st.composite
def describes(draw: st.DrawFn) -> Describe:
    first = draw(st.integers(0, 100))
    end = draw(st.integers(first + 1, first + 100))
    return Describe(
        rank=draw(U32),
        world=draw(U32),
        first=first,
        end=end,
        hidden=draw(U32),
        planes=draw(st.integers(0, 255)),
        row_dtype=draw(st.sampled_from(RowDtype)),
        kv_dtype=draw(st.sampled_from(KvDtype)),
        backend=draw(st.sampled_from(Backend)),
        engine=draw(st.sampled_from(EngineKind)),
        chunk=draw(U32),
        max_rows=draw(U32),
        parallel=draw(U32),
        context=draw(U32),
        kv_rows=draw(U64),
        states=draw(U32),
        draft_width=draw(U32),
        taps=tuple(sorted(draw(st.sets(st.integers(first, end - 1), max_size=4)))),
        release=draw(TEXTS),
    )


@st.composite
def entries(draw: st.DrawFn, stream: int) -> StreamEntry:
    op = draw(st.sampled_from(Op))
    generation = draw(U32)
    match op:
        case Op.OPEN:
            return StreamEntry(stream, op, rows=draw(ROWS))
        case Op.CONTINUE:
            return StreamEntry(stream, op, draw(POSITIONS), draw(ROWS), draw(U32), generation=generation)
        case Op.RESUME:
            first = draw(st.integers(1, 1 << 20))
            return StreamEntry(stream, op, first, draw(ROWS), 0, draw(st.integers(1, first)), generation)
        case _:
            return StreamEntry(stream, op, generation=generation)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    parts = tuple(draw(entries(stream)) for stream in sorted(draw(st.sets(U32, max_size=5))))
    rows = sum(entry.rows for entry in parts)
    cuts = sorted(draw(st.sets(st.integers(1, rows - 1), max_size=3))) if rows > 1 else []
    with_tokens = draw(st.booleans()) and rows < 50
    cache = [CacheOp(CacheAction.RESTORE, entry.stream, draw(KEYS)) for entry in parts if entry.op is Op.RESUME]
    cache += draw(st.lists(st.builds(CacheOp, st.just(CacheAction.DROP), st.just(0), KEYS), max_size=2))
    cache += draw(st.lists(st.builds(CacheOp, st.just(CacheAction.SAVE), U32, KEYS), max_size=2))
    returns = draw(st.sampled_from(Returns))
    listed = [draw(st.integers(0, entry.rows)) for entry in parts] if returns is Returns.LISTED else []
    return Plan(
        parts,
        tuple(cuts),
        tuple(draw(st.lists(U32, min_size=rows, max_size=rows))) if with_tokens else (),
        tuple(draw(st.permutations(cache))),
        returns,
        tuple(listed),
    )

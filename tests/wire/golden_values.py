"""What the good golden files say, written by hand: (kind, round, rows, part) of the header, and the message."""

from __future__ import annotations

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
from ropeway.wire.capture import Message, Raw
from wire.golden_files import ACCEPTOR_NONCE, DIALER_NONCE, FINGERPRINT

Frame = tuple[tuple[Kind, int, int, int], Message]

KEY_1 = bytes(range(0x40, 0x50))
KEY_2 = bytes(range(0x60, 0x70))

LLAMACPP = Describe(
    rank=1,
    world=2,
    first=15,
    end=30,
    hidden=576,
    planes=1,
    row_dtype=RowDtype.F32,
    kv_dtype=KvDtype.F32,
    backend=Backend.CPU,
    engine=EngineKind.LLAMACPP,
    chunk=512,
    max_rows=4096,
    parallel=4,
    context=8192,
    kv_rows=32768,
    release="ropeway 0.1.0",
)

_DESCRIBE_FIELDS = Describe(
    rank=2,
    world=3,
    first=0x10,
    end=0x20,
    hidden=0x01020304,
    planes=4,
    row_dtype=RowDtype.F16,
    kv_dtype=KvDtype.BF16,
    backend=Backend.CUDA,
    engine=EngineKind.TORCH,
    chunk=0x11,
    max_rows=0x22,
    parallel=0x33,
    context=0x44,
    kv_rows=0x5566778899AABBCC,
    states=0x77,
    draft_width=0x88,
    taps=(0x12, 0x1F),
    release="Seilbahn ü",
)


def _boot(kind: Kind, message: Message) -> list[Frame]:
    return [((kind, 0, 0, 0), message)]


def _plan(plan: Plan, round_: int = 41) -> list[Frame]:
    return [((Kind.PLAN, round_, 0, 0), plan)]


def _fate(what: FateKind, error: ErrorCode = ErrorCode.NONE, rank: int = 0, text: str = "") -> list[Frame]:
    return [((Kind.FATE, 0, 0, 0), Fate(what, error, rank, text))]


def _enums(row: RowDtype, kv: KvDtype, backend: Backend, engine: EngineKind) -> list[Frame]:
    d = LLAMACPP
    return _boot(
        Kind.DESCRIBE,
        Describe(
            d.rank,
            d.world,
            d.first,
            d.end,
            d.hidden,
            d.planes,
            row,
            kv,
            backend,
            engine,
            d.chunk,
            d.max_rows,
            d.parallel,
            d.context,
            d.kv_rows,
        ),
    )


def _hello(rank: int, world: int, channel: Channel, nonce: bytes) -> list[Frame]:
    return _boot(Kind.HELLO, Hello(rank, world, channel, FINGERPRINT, nonce))


def _open(stream: int, rows: int) -> StreamEntry:
    return StreamEntry(stream, Op.OPEN, rows=rows)


def _on(stream: int, first: int, rows: int, accepted: int, generation: int) -> StreamEntry:
    return StreamEntry(stream, Op.CONTINUE, first, rows, accepted, generation=generation)


GOOD: dict[str, list[Frame]] = {
    "hello-dialer": _hello(1, 2, Channel.CONTROL, DIALER_NONCE),
    "hello-acceptor": _hello(0, 2, Channel.CONTROL, ACCEPTOR_NONCE),
    "hello-rows": _hello(2, 3, Channel.ROWS, DIALER_NONCE),
    "hello-probe": _hello(0, 3, Channel.PROBE, DIALER_NONCE),
    "proof-dialer": _boot(
        Kind.PROOF, Raw(bytes.fromhex("1c97bf709bdf80f6c1633236be758117bbf91b0f97022d65f3e443321a8b53a2"))
    ),
    "proof-acceptor": _boot(
        Kind.PROOF, Raw(bytes.fromhex("17cafbb273467a437cf3d61e075b6c712e49a5c5b041fd95894202e439ef2752"))
    ),
    "describe-llamacpp": _boot(Kind.DESCRIBE, LLAMACPP),
    "describe-fields": _boot(Kind.DESCRIBE, _DESCRIBE_FIELDS),
    "describe-enums-1": _enums(RowDtype.F32, KvDtype.F32, Backend.CPU, EngineKind.TORCH),
    "describe-enums-2": _enums(RowDtype.F16, KvDtype.F16, Backend.CUDA, EngineKind.MLX),
    "describe-enums-3": _enums(RowDtype.BF16, KvDtype.BF16, Backend.METAL, EngineKind.LLAMACPP),
    "describe-enums-4": _enums(RowDtype.BF16, KvDtype.Q8_0, Backend.ROCM, EngineKind.TINYGRAD),
    "describe-enums-5": _enums(RowDtype.BF16, KvDtype.Q4_0, Backend.VULKAN, EngineKind.WORKER),
    "describe-enums-6": _enums(RowDtype.BF16, KvDtype.FP8_E4M3, Backend.OTHER, EngineKind.WORKER),
    "ready-plain": _boot(Kind.READY, Ready(1, load_ms=1800, warm_ms=40, weights_bytes=35_000_000)),
    "ready-fields": _boot(Kind.READY, Ready(0x01020304, 0x11121314, 0x21222324, 0x3132333435363738)),
    "plan-keepalive": _plan(Plan()),
    "plan-open": _plan(Plan((_open(3, 5),))),
    "plan-continue": _plan(Plan((_on(3, 128, 1, 1, 7),))),
    "plan-rollback": _plan(Plan((_on(3, 130, 5, 2, 7),))),
    "plan-close": _plan(Plan((StreamEntry(3, Op.CLOSE, generation=7),))),
    "plan-cancel": _plan(Plan((StreamEntry(3, Op.CANCEL, generation=7),))),
    "plan-resume": _plan(
        Plan(
            (StreamEntry(4, Op.RESUME, first=100, rows=20, resume=100),),
            cache=(CacheOp(CacheAction.RESTORE, 4, KEY_1),),
        )
    ),
    "plan-fields": _plan(
        Plan(
            (_on(0xFFFFFFFF, 0x01020304, 3, 0x21222324, 0x31323334),),
            cuts=(1, 2),
            tokens=(0x41424344, 0, 0xFFFFFFFF),
            cache=(CacheOp(CacheAction.SAVE, 0x51525354, KEY_1), CacheOp(CacheAction.DROP, 0, KEY_2)),
            returns=Returns.LISTED,
            listed=(3,),
        ),
        0xFFFFFFFFFFFFFFFF,
    ),
    "plan-mixed": _plan(
        Plan(
            (_on(2, 64, 1, 1, 3), _open(5, 6), StreamEntry(7, Op.CLOSE, generation=2), _on(9, 11, 1, 1, 0)),
            cuts=(4,),
        )
    ),
    "plan-cuts": _plan(Plan((_open(1, 12),), cuts=(4, 8))),
    "plan-tokens": _plan(Plan((_open(1, 3),), tokens=(7, 8, 49151))),
    "plan-save": _plan(Plan((_open(1, 3),), cache=(CacheOp(CacheAction.SAVE, 1, KEY_1),))),
    "plan-drop": _plan(Plan(cache=(CacheOp(CacheAction.DROP, 0, KEY_1),))),
    "plan-returns_all": _plan(Plan((_open(1, 3),), returns=Returns.ALL)),
    "plan-returns_listed": _plan(Plan((_on(1, 9, 5, 1, 0), _open(2, 2)), returns=Returns.LISTED, listed=(4, 0))),
    "plan-returns_none": _plan(Plan((_open(1, 5),), returns=Returns.LISTED, listed=(0,))),
    "rows-one": [((Kind.ROWS, 41, 1, 0), Raw(bytes(range(1, 9))))],
    "rows-part": [((Kind.ROWS, 41, 3, 2), Raw(bytes(range(1, 49))))],
    "tokens-two": [
        ((Kind.TOKENS, 41, 0, 0), Tokens((Token(3, 9906, 129, done=False), Token(7, 2, 65, done=True)))),
    ],
    "tokens-fields": [((Kind.TOKENS, 41, 0, 0), Tokens((Token(0x01020304, 0x11121314, 0x21222324, done=True),)))],
    "done-plain": [
        ((Kind.DONE, 41, 0, 0), Done(1, wait_rows_ns=120_000, forward_ns=9_600_000, wait_send_ns=8_000)),
    ],
    "done-alive": [((Kind.DONE, 0, 0, 0), Done(1))],
    "done-acks": [((Kind.DONE, 41, 0, 0), Done(1, (CacheAck(KEY_1, ok=True), CacheAck(KEY_2, ok=False)), 1, 2, 3))],
    "done-fields": [
        (
            (Kind.DONE, 41, 0, 0),
            Done(0x01020304, (), 0x1112131415161718, 0x2122232425262728, 0x3132333435363738),
        ),
    ],
    "fate-fail": _fate(FateKind.FAIL, ErrorCode.PEER_LOST, 1, "rank 1: connection reset"),
    "fate-stop": _fate(FateKind.STOP),
    "fate-drain": _fate(FateKind.DRAIN),
    "fate-fields": _fate(FateKind.FAIL, ErrorCode.REFUSED_RELEASE, 0x01020304, "Seil gerissen: „Talstation“"),
    "fate-longest": _fate(FateKind.FAIL, ErrorCode.ENGINE_FAILED, 1, "x" * 512),
    "fate-numbers": [
        frame
        for number in (*range(36), *range(40, 55), *range(60, 64))
        for frame in _fate(FateKind.FAIL, ErrorCode(number))
    ],
    "probe-empty": [((Kind.PROBE, 1, 0, 0), Raw(b""))],
    "probe-small": [((Kind.PROBE, 7, 0, 0), Raw(b"\xde\xad\xbe\xef"))],
    "echo-plain": [((Kind.ECHO, 7, 0, 0), Raw(b""))],
}

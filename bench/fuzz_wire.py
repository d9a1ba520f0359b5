"""Mutate golden bytes into every decoder of the link, and into a link in each of its states; count what comes of it.

    python bench/fuzz_wire.py --seconds 600 --seed 1

Anything but a ProtocolError, an accepted payload that encodes to other bytes, or a link that does not stay failed is a
finding: it is printed with its bytes as hex, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import struct
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ropeway.types import Backend, EngineKind, KvDtype, RowDtype
from ropeway.wire import (
    Channel,
    Describe,
    Event,
    Header,
    Hello,
    HelloDone,
    Link,
    ProbeHeard,
    ProtocolError,
    Ready,
    Side,
    decode_describe,
    decode_done,
    decode_fate,
    decode_header,
    decode_hello,
    decode_plan,
    decode_ready,
    decode_tokens,
)
from ropeway.wire.capture import Message, Raw, parse_hex, read_capture
from ropeway.wire.errors import ErrorCode

GOLDEN = Path(__file__).parents[1] / "tests" / "wire" / "golden"
KEY = bytes(range(32))
HEADER_BYTES = 32
INTERESTING = (0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)

DECODERS: dict[str, Callable[[bytes], Message]] = {
    "hello": decode_hello,
    "describe": decode_describe,
    "ready": decode_ready,
    "plan": decode_plan,
    "tokens": decode_tokens,
    "done": decode_done,
    "fate": decode_fate,
}


@dataclass(frozen=True, slots=True)
class Conversation:
    """What one end hears, as a golden file has it, and where its frames begin."""

    name: str
    raw: bytes
    edges: tuple[int, ...]
    side: Side
    channel: Channel
    rank: int
    world: int


@dataclass(slots=True)
class Findings:
    """Outcomes by target, the slowest case of each in seconds, and whatever should not have happened."""

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    slowest_s: dict[str, float] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)

    def run(self, target: str, case: Callable[[bytes], str], raw: bytes) -> None:
        """Run one case and book it."""
        began = time.perf_counter()
        try:
            outcome = case(raw)
        except ProtocolError as error:
            outcome = error.code.label
        except Exception as error:  # noqa: BLE001 - this is what the script looks for
            outcome = f"FOUND {type(error).__name__}"
            self.bad.append(f"{target}: {error!r}: {raw.hex()}")
        took_s = time.perf_counter() - began
        self.outcomes.setdefault(target, Counter())[outcome] += 1
        self.slowest_s[target] = max(self.slowest_s.get(target, 0.0), took_s)


def mutate(draw: random.Random, raw: bytes, others: list[bytes]) -> bytes:
    """Change a few bytes, bits and words, cut, repeat, put in, or join with other bytes."""
    out = bytearray(raw)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        at = draw.randrange(len(out) + 1)
        match draw.randrange(7):
            case 0 if at < len(out):
                out[at] = draw.randrange(256)
            case 1 if at < len(out):
                out[at] ^= 1 << draw.randrange(8)
            case 2 if len(out) >= 4:
                at = draw.randrange(len(out) // 4) * 4
                struct.pack_into("<I", out, at, draw.choice((*INTERESTING, draw.getrandbits(32), draw.randrange(64))))
            case 3:
                del out[at : at + draw.randrange(1, 40)]
            case 4:
                out[at:at] = draw.randbytes(draw.randrange(1, 40))
            case 5:
                out[at:at] = out[at : at + draw.randrange(1, 64)]
            case _:
                out[at:] = draw.choice(others)[:4096]
    return bytes(out)


def sealed(draw: random.Random, raw: bytes) -> bytes:
    """Often put right the length and the check of the first frame, so that mutations reach what lies behind them."""
    if len(raw) < HEADER_BYTES or draw.random() < 0.2:
        return raw
    out = bytearray(raw)
    if draw.random() < 0.7:
        out[:8] = struct.pack("<IHBB", 0x4C534654, 1, draw.randrange(1, 12) if draw.random() < 0.3 else out[6], 0)
    if draw.random() < 0.7:
        struct.pack_into("<I", out, 24, len(out) - HEADER_BYTES)
    struct.pack_into("<I", out, 28, zlib.crc32(out[:28]))
    return bytes(out)


def decode_again(decode: Callable[[bytes], Message], raw: bytes) -> str:
    """Decode; what is accepted must encode to the same bytes."""
    message = decode(raw)
    if isinstance(message, Raw) or message.encode() != raw:
        raise ValueError(f"accepted, but encodes differently: {message}")
    return "accepted"


def read_all(raw: bytes) -> str:
    """Read a capture to its end."""
    for frame in read_capture(raw):
        if not 0 <= frame.offset <= len(raw):
            raise ValueError(f"offset {frame.offset} lies outside the capture")
    return "read"


def hear(draw: random.Random, talk: Conversation, kept: int, tail: bytes) -> str:
    """Let a link hear a conversation up to `kept`, and then `tail` in random pieces; a failed link must stay failed."""
    link = Link(talk.side, talk.channel, make_hello(talk), KEY, None, lend)
    follow(link, talk.raw[:kept], 1 << 20, draw)
    try:
        follow(link, tail, draw.choice((1, 7, 64, 1 << 20)), draw)
    except ProtocolError as error:
        try:
            link.buffer()
        except ProtocolError as again:
            if again is error:
                raise
        raise ValueError("a failed link goes on") from error
    link.eof()
    return "accepted"


def follow(link: Link, raw: bytes, most: int, draw: random.Random) -> None:
    """Feed bytes in pieces of up to `most`, answering as the owner would."""
    rest = memoryview(raw)
    while rest:
        room = link.buffer()
        count = min(len(room), len(rest), draw.randint(1, most))
        room[:count] = rest[:count]
        rest = rest[count:]
        event = link.received(count)
        if event is not None:
            answer(link, event)


def answer(link: Link, event: Event) -> None:
    if isinstance(event, HelloDone) and event.peer.channel is Channel.CONTROL and event.peer.rank == 0:
        link.send_describe(DESCRIBE)
        link.send_ready(Ready(1, load_ms=1, warm_ms=1, weights_bytes=1))
    elif isinstance(event, ProbeHeard):
        link.send_echo(event.round)


DESCRIBE = Describe(
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
    max_rows=512,
    parallel=1,
    context=4096,
    kv_rows=4096,
)


def lend(header: Header) -> memoryview:
    """Memory for the rows frames of the golden files; longer ones are refused, as a plan would."""
    if header.length > 1 << 16:
        raise ProtocolError(ErrorCode.ROWS_LENGTH, f"{header.length} bytes", 24)
    return memoryview(bytearray(header.length))


def make_hello(talk: Conversation) -> Hello:
    nonce = (b"\x11" if talk.side is Side.DIALER else b"\x22") * 32
    return Hello(talk.rank, talk.world, talk.channel, fingerprint(), nonce)


def fingerprint() -> bytes:
    """That of the layout that the golden files speak of."""
    layout = {
        "boundary": {"hidden": 576, "planes": 1, "row_dtype": "f32", "taps": []},
        "checkpoint": "ab" * 32,
        "head_rank": 0,
        "layers": 30,
        "ranges": [[0, 15], [15, 30]],
        "sampler": "first",
        "world": 2,
    }
    return hashlib.sha256(json.dumps(layout, sort_keys=True, separators=(",", ":")).encode()).digest()


def load_files(golden: Path) -> tuple[dict[str, bytes], list[Conversation]]:
    """All golden bytes by name, and the good conversations."""
    files: dict[str, bytes] = {}
    talks: list[Conversation] = []
    for path in sorted(golden.glob("*.hex")):
        text = path.read_text()
        raw = files[path.stem] = parse_hex(text)
        comments = dict(
            line[2:].partition(": ")[::2] for line in text.splitlines() if line.startswith(("# error: ", "# hears: "))
        )
        if "hears" in comments and "error" not in comments and path.stem != "link-refused":
            side, rank, _, world = comments["hears"].split()[:4]
            channel = Channel(raw[HEADER_BYTES + 8])
            edges = (*(frame.offset for frame in read_capture(raw)), len(raw))
            talks.append(Conversation(path.stem, raw, edges, Side[side.upper()], channel, int(rank), int(world)))
    return files, talks


def fuzz(seconds: float, seed: int, golden: Path) -> Findings:
    """Run random cases for so many seconds."""
    draw = random.Random(seed)
    files, talks = load_files(golden)
    frames = list(files.values())
    payloads = {
        kind: [raw[HEADER_BYTES:] for name, raw in files.items() if name.startswith(f"{kind}-")] for kind in DECODERS
    }
    tails = [raw[talk.edges[i] :] for talk in talks for raw in [talk.raw] for i in range(len(talk.edges) - 1)]
    findings = Findings()
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at and len(findings.bad) < 20:
        for kind, decode in DECODERS.items():
            raw = mutate(draw, draw.choice(payloads[kind]), payloads[kind])
            findings.run(kind, lambda raw, decode=decode: decode_again(decode, raw), raw)  # type: ignore[misc]
        raw = mutate(draw, draw.choice(frames), frames)
        findings.run("header", lambda raw: decode_header(raw).kind.label, sealed(draw, raw)[:HEADER_BYTES])
        findings.run("capture", read_all, sealed(draw, raw))
        for talk in talks:
            kept = draw.choice(talk.edges)
            rest = talk.raw[kept:]
            tail = sealed(draw, mutate(draw, rest if rest and draw.random() < 0.5 else draw.choice(tails), frames))
            where = f"{talk.name}@{kept}"
            findings.run(where, lambda raw, talk=talk, kept=kept: hear(draw, talk, kept, raw), tail)  # type: ignore[misc]
    return findings


def main() -> int:
    """Fuzz, print the counts a target, and give the exit status."""
    parser = argparse.ArgumentParser(description="Mutate golden bytes into every decoder and a link in each state.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--golden", type=Path, default=GOLDEN)
    options = parser.parse_args()
    findings = fuzz(options.seconds, options.seed, options.golden)
    total: Counter[str] = Counter()
    for target, outcomes in sorted(findings.outcomes.items()):
        total += outcomes
        counts = " ".join(f"{name}={count}" for name, count in outcomes.most_common())
        print(f"{target}: {outcomes.total()} cases, slowest {findings.slowest_s[target] * 1e3:.1f} ms: {counts}")
    print(f"all: {total.total()} cases: {' '.join(f'{name}={count}' for name, count in total.most_common())}")
    for line in findings.bad:
        print(f"FOUND {line}")
    return 1 if findings.bad else 0


if __name__ == "__main__":
    sys.exit(main())

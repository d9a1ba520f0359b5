"""One streamed reply with its figures, for `demo` and `run`."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from ropeway.serving.loop import Loop
from ropeway.serving.sequence import Sequence
from ropeway.serving.speech import Speech, generate
from ropeway.serving.text import StreamDecoder


@dataclass(slots=True)
class Reply:
    """What came, and how fast; the rates are of decoding, the prompt left out."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    prompt_ms: float = 0.0
    tokens_per_s: float = 0.0
    ms_per_token: float = 0.0
    wire_ms_per_token: float | None = None
    finish: str = ""


def stream_reply(loop: Loop, speech: Speech, sequence: Sequence, world: int, reply: Reply) -> Iterator[str]:
    """Fill `reply` while its text comes, piece by piece. Raises RingLost, EngineError with `reply` as far as it got."""
    decoder = StreamDecoder()
    started = time.perf_counter()
    first = 0.0
    for token in generate(loop, sequence):
        now = time.perf_counter()
        if not reply.token_ids:
            first = now
            reply.prompt_ms = (now - started) * 1e3
        reply.token_ids.append(token)
        if len(reply.token_ids) > 1:
            reply.tokens_per_s = (len(reply.token_ids) - 1) / (now - first)
            reply.ms_per_token = 1e3 / reply.tokens_per_s
        if token not in sequence.stop_ids and (piece := decoder.push(speech.vocabulary.piece(token))):
            reply.text += piece
            yield piece
    if tail := decoder.flush():
        reply.text += tail
        yield tail
    reply.finish = sequence.finish.value if sequence.finish else ""
    reply.wire_ms_per_token = _wire_ms(loop, world)


def _wire_ms(loop: Loop, world: int) -> float | None:
    """The median over decode rounds of what neither stage computed: the hops, and what waking and planning cost."""
    deadline = time.monotonic() + 1.0
    while loop.records and len(loop.records[-1].dones) < world - 1 and time.monotonic() < deadline:
        loop.collect()
        time.sleep(0.002)
    costs = [cost for record in loop.records if record.rows == 1 and (cost := record.wire_ns(world)) is not None]
    return statistics.median(costs) / 1e6 if costs else None


def print_pieces(pieces: Iterator[str], quiet: bool) -> None:
    """Print text as it comes, unless `quiet`; what was printed stays readable when the ring is lost in mid-reply."""
    begun = False
    try:
        for piece in pieces:
            if not quiet:
                sys.stdout.write(piece)
                sys.stdout.flush()
                begun = True
    finally:
        if begun:
            sys.stdout.write("\n")
            sys.stdout.flush()

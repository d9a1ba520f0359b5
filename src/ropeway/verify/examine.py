"""One check of a ring that is ready, from its prompts to what a certificate says of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from ropeway.launch.parts import part_size
from ropeway.launch.placement import Placement
from ropeway.launch.rank0 import Rank0
from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.speech import Speech
from ropeway.types import EngineKind
from ropeway.verify.certificate import Json
from ropeway.verify.evidence import Outcome, evidence
from ropeway.verify.limits import Limits
from ropeway.verify.passage import passage
from ropeway.verify.reference import Reference
from ropeway.verify.repeat import Work, compare_with_whole, record


@dataclass(frozen=True, slots=True)
class Examined:
    """A check's result. `promised`: the placement must give the reference's bits. `body` is a certificate's."""

    outcome: Outcome
    promised: bool
    broken: tuple[str, ...]
    body: dict[str, Json]


def examine(
    rank0: Rank0, work: Work, reference: Reference, limits: Limits, runs: int = 1, drafting: Drafting | None = None
) -> Examined:
    """Run the work `runs` times on the ring and once on the reference. Raises EngineError, RingLost."""
    part = work.part or part_size(rank0, max(map(len, work.prompts)))
    work = replace(work, part=part)
    recorder, tokens = record(rank0, work, drafting)
    with closing(recorder):
        same = all(_again(rank0, work, drafting) == (recorder.digest(), tokens) for _ in range(runs - 1))
        comparison = compare_with_whole(rank0.placement, recorder, reference)
        outcome = Outcome(comparison, recorder.digest(), tuple(map(tuple, tokens)), runs, same)
    promised = promises_bits(rank0, reference)
    broken = limits.broken(comparison, bits=promised)
    if not same:
        broken.append(f"same_bits: {runs} runs on one ring did not give the same")
    return Examined(outcome, promised, tuple(broken), evidence(rank0, work, reference, outcome, limits, broken))


def _again(rank0: Rank0, work: Work, drafting: Drafting | None) -> tuple[str, list[list[int]]]:
    recorder, tokens = record(rank0, work, drafting)
    with closing(recorder):
        return recorder.digest(), tokens


def promises_bits(rank0: Rank0, reference: Reference) -> bool:
    """Every stage and the reference run one engine on one backend with one dtype. A worker promises nothing."""
    kinds = {(fact.describe.engine, fact.describe.backend) for fact in rank0.facts}
    names = {*rank0.placement.engines, reference.engine}
    same = reference.dtype == rank0.placement.options.dtype and reference.device == rank0.placement.options.device
    return len(kinds) == len(names) == 1 and same and kinds.pop()[0] is not EngineKind.WORKER


def replies(placement: Placement, outcome: Outcome) -> list[str]:
    """What the ring said, as text."""
    with closing(Speech(placement.path)) as speech:
        piece = speech.vocabulary.piece
        return [b"".join(map(piece, tokens)).decode(errors="replace") for tokens in outcome.tokens]


def make_prompts(placement: Placement, streams: int, tokens: int) -> tuple[tuple[int, ...], ...]:
    """Prose of exactly `tokens` tokens a stream, the same on every machine."""
    with closing(Speech(placement.path)) as speech:
        return tuple(_prose(speech, number, tokens) for number in range(streams))


def _prose(speech: Speech, number: int, tokens: int) -> tuple[int, ...]:
    ids: Sequence[int] = ()
    characters = 4 * tokens
    while len(ids) < tokens:
        text = passage(characters, skip=50 * number)
        ids = speech.vocabulary.tokenize(text, add_special=True, parse_special=False)
        characters *= 2
    return tuple(ids[:tokens])

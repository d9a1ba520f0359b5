"""From `--draft` to a drafter that is ready: none, n-grams, or a small GGUF with the large model's vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from itertools import zip_longest

from ropeway.checkpoints.checkpoint import Format, format_of
from ropeway.checkpoints.demo import resolve_model
from ropeway.checkpoints.families import vocabulary_size
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.engines.base import Engine, EngineError, HasNextTokenHead, Span
from ropeway.engines.llamacpp.whole import WholeModel
from ropeway.launch.placement import Placement
from ropeway.serving.drafting.drafter import Drafter
from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.drafting.model import ModelDrafter
from ropeway.serving.drafting.mtp import MtpDrafter
from ropeway.serving.drafting.ngram import NgramDrafter
from ropeway.types import SamplerAt

_UNUSED = 5
"""llama.cpp's token type of what pads a vocabulary."""


class DraftKind(Enum):
    """Who drafts."""

    NONE = "none"
    NGRAM = "ngram"
    MODEL = "model"
    MTP = "mtp"


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """The flags `--draft` and `--draft-batch`; `model` names the small GGUF."""

    kind: DraftKind = DraftKind.NONE
    model: str = ""
    batch: bool = False

    @classmethod
    def parse(cls, text: str, *, batch: bool = False) -> DraftOptions:
        """'none', 'ngram', 'mtp' or 'model:PATH'. Raises ValueError."""
        kind, _, model = text.partition(":")
        if kind == DraftKind.MODEL.value and model:
            return cls(DraftKind.MODEL, model, batch)
        if text in (DraftKind.NONE.value, DraftKind.NGRAM.value, DraftKind.MTP.value):
            return cls(DraftKind(text), batch=batch)
        raise ValueError(f"draft: {text!r} is not none, ngram, mtp or model:PATH")


def check_draft(options: DraftOptions, placement: Placement) -> None:
    """Refuse, with ValueError, what this placement cannot draft with; CheckpointError for a file that cannot be read.

    The last rank chooses the likeliest token of one row a stream, so it verifies no drafts. A small model must have the
    large one's vocabulary, token by token; only what pads it may differ.
    """
    if options.kind is DraftKind.NONE:
        return
    if placement.layout.sampler is SamplerAt.LAST and placement.layout.world > 1:
        raise ValueError("draft: --sampler last returns one token a stream and verifies none; use --sampler first")
    if options.kind is DraftKind.MTP and placement.layout.world == 1:
        raise ValueError("draft: mtp reads the rows that come back to rank 0; it needs two stages or more")
    if options.kind is DraftKind.MODEL:
        if format_of(placement.path) is not Format.GGUF:
            raise ValueError("draft: a small GGUF drafts for a GGUF alone; use --draft ngram")
        _check_vocabulary(GgufFile.open(placement.path), GgufFile.open(resolve_model(options.model)))


@contextmanager
def open_drafting(
    options: DraftOptions, placement: Placement, engine: Engine | None = None
) -> Iterator[Drafting | None]:
    """A drafter for one ring of this placement, freed on the way out; `engine` is rank 0's, loaded.

    Raises ValueError as `check_draft`, CheckpointError, EngineError.
    """
    check_draft(options, placement)
    if options.kind is DraftKind.NONE:
        yield None
        return
    drafter: Drafter
    match options.kind:
        case DraftKind.NGRAM:
            drafter = NgramDrafter()
        case DraftKind.MTP:
            drafter = _own_head(placement, engine)
        case _:
            drafter = _small_model(options.model, placement)
    drafting = Drafting(drafter, stages=placement.layout.world, batch=options.batch)
    try:
        yield drafting
    finally:
        drafting.close()


def _own_head(placement: Placement, engine: object) -> MtpDrafter:
    if not isinstance(engine, HasNextTokenHead):
        raise ValueError(f"draft: the engine {placement.engines[0]} reads no next-token head; torch does")
    return MtpDrafter(engine.next_token_head(), placement.options.parallel)


def _small_model(name: str, placement: Placement) -> ModelDrafter:
    path = resolve_model(name)
    config = replace(placement.whole_config(), model=str(path))
    model = WholeModel(config)
    try:
        # Run two rows and forget one: every guess that does not come true asks for that.
        model.forward([Span(0, 0, 2)], [0, 0], [1])
        model.keep(0, 1)
        model.release(0)
    except EngineError as error:
        model.close()
        raise EngineError(f"draft: {path.name} cannot draft: {error}") from error
    vocabulary = min(vocabulary_size(GgufFile.open(file)) for file in (placement.path, path))
    return ModelDrafter(model, config.parallel, config.context, config.chunk, vocabulary)


def _check_vocabulary(large: GgufFile, small: GgufFile) -> None:
    def refuse(why: str) -> ValueError:
        return ValueError(f"draft: {small.path.name} has another vocabulary than {large.path.name}: {why}")

    ours, theirs = _Tokens(large), _Tokens(small)
    if ours.model != theirs.model:
        raise refuse(f"its tokenizer is {theirs.model!r}, not {ours.model!r}")
    for token, (one, other) in enumerate(zip_longest(ours.texts, theirs.texts)):
        if one != other and not (ours.pads(token) and theirs.pads(token)):
            raise refuse(f"token {token} is {other!r}, not {one!r}")


class _Tokens:
    """A file's tokenizer, as far as two of them can be held against each other."""

    def __init__(self, gguf: GgufFile) -> None:
        metadata = gguf.metadata
        self.model = metadata.text("tokenizer.ggml.model")
        self.texts = metadata.array("tokenizer.ggml.tokens")
        kinds = "tokenizer.ggml.token_type"
        self._kinds = metadata.array(kinds) if kinds in metadata else []

    def pads(self, token: int) -> bool:
        """The file has no such token, or one that stands for nothing."""
        return token >= len(self.texts) or (token < len(self._kinds) and self._kinds[token] == _UNUSED)

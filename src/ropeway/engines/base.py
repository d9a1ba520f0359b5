"""The contract of an engine: what computes one stage, and the little that a stage may ask of it.

Rows are raw bytes in the boundary's dtype, plane-major, rows in batch order; an engine knows nothing of sockets,
text or sampling. Heavy engines are imported only when named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ropeway.types import Backend, Boundary, EngineKind, KvDtype
from ropeway.types import Span as Span

Logits = npt.NDArray[np.float32]
"""Shape [rows, vocabulary]."""

NO_STATES = 0xFFFFFFFF
"""`Capacities.states` of a range that keeps no recurrent state (wire.md 6)."""


class EngineError(Exception):
    """The engine could not load or compute; the text is for people."""


@dataclass(frozen=True, slots=True)
class Capacities:
    """What a stage can hold and run, in rows (tokens) and streams; the capacity fields of wire.md 6."""

    chunk: int
    max_rows: int
    parallel: int
    context: int
    kv_rows: int
    states: int = NO_STATES


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How to load a stage: layers first..end of `model`, with the embeddings and the head where asked."""

    model: str
    first: int
    end: int
    embed: bool
    head: bool
    context: int = 4096
    parallel: int = 1
    chunk: int = 512
    threads: int = 0
    """0: as many as there are physical cores."""
    gpu_layers: int = -1
    """Layers to offload where the installed build can; -1 means all."""
    boundary: Boundary | None = None
    """What the layout sends between stages; None: what the engine itself keeps between layers."""
    dtype: str = ""
    """What to compute in (f32, bf16, f16) where the engine has a choice; empty: the checkpoint's own."""
    device: str = ""
    """Where to compute, in the engine's own words (cpu, cuda:0); empty: the best that there is."""
    invariant: bool = False
    """The bits of a stream must not depend on what shares its rounds, on drafts or on threads; slower."""
    worker_cmd: str = ""
    """The command of a worker process (docs/worker.md), as one would type it; only the engine worker needs it."""
    rank: int = 0
    world: int = 1
    """This stage's place in the ring, which a worker process is told."""


class Engine(Protocol):
    """One stage's layers. Made cheaply (its facts go into the description), then loaded. One thread calls it."""

    @property
    def kind(self) -> EngineKind: ...
    @property
    def backend(self) -> Backend: ...
    @property
    def kv_dtype(self) -> KvDtype: ...
    @property
    def boundary(self) -> Boundary: ...
    @property
    def capacities(self) -> Capacities: ...
    @property
    def weights_bytes(self) -> int:
        """Bytes of the checkpoint that this stage holds: its layers, the embeddings and the head where it has them."""
        ...

    def load(self) -> None:
        """Load the weights and make the stage executable for its capacities. Raises EngineError."""
        ...

    def embed(self, tokens: Sequence[int], out: memoryview) -> None:
        """Write the embedding rows of `tokens` into `out` (len(tokens) rows)."""
        ...

    def forward(
        self, spans: Sequence[Span], rows: memoryview, out: memoryview, wanted: Sequence[int] | None = None
    ) -> None:
        """Run the layers over a part's rows; `out` gets as many rows, complete when the call returns.

        The spans' rows follow one another in `rows`; a slot occurs at most once. The stage that has the last layer may
        be told which rows go on, `wanted`: indices in the part, ascending; `out` then gets just those. Raises
        EngineError.
        """
        ...

    def forward_head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Run the layers and the head in one go (a stage that has the last layer and the head).

        `wanted` are row indices in the part, ascending; gives logits [len(wanted), vocabulary].
        """
        ...

    def head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Norm and output matrix over rows that came back from the last stage: [len(wanted), vocabulary].

        `rows` are a part's rows `wanted`, just those; `spans` are that part's, since the bits of some matrices depend
        on which rows are multiplied together.
        """
        ...

    def keep(self, slot: int, length: int) -> None:
        """Forget every position of `slot` from `length` on, KV and recurrent state alike."""
        ...

    def release(self, slot: int) -> None:
        """Forget all of `slot`."""
        ...

    def save(self, slot: int) -> bytes:
        """The state of `slot` as bytes that `restore` of the same engine takes."""
        ...

    def restore(self, slot: int, state: bytes) -> None:
        """Put a saved state into an empty `slot`."""
        ...

    def close(self) -> None:
        """Free the memory; the engine is not used again."""
        ...


@runtime_checkable
class Mortal(Protocol):
    """An engine that can end by itself while nobody asks it anything: it runs in a process of its own."""

    def on_death(self, call: Callable[[str], None]) -> None:
        """Have `call` told, in another thread, how the engine ended. Not told of an end that `close` brought about."""
        ...


@runtime_checkable
class ReadsTokens(Protocol):
    """An engine whose layers may read token ids beside their rows."""

    def take_tokens(self, tokens: Sequence[int]) -> None:
        """The ids of the next forward's rows, one a row."""
        ...


class NextTokenHead(Protocol):
    """A model's own head for the token after the next (MTP), beside rank 0's head. Its calls raise EngineError."""

    def take(self, slot: int, rows: bytes, tokens: list[int]) -> tuple[int, float]:
        """Take in a slot's next rows of the last layer with the tokens that follow each: the likeliest token behind
        the last of them, and its probability. Row after row, a row's planes side by side."""
        ...

    def go_on(self, slot: int, token: int) -> tuple[int, float]:
        """The same for its own last row, with a token that was guessed; `keep` goes back to the last `take`."""
        ...

    def keep(self, slot: int, length: int) -> None:
        """Forget a slot's rows from `length` on, those that are its own."""
        ...

    def release(self, slot: int) -> None:
        """Forget all of a slot."""
        ...

    def close(self) -> None:
        """Free it; it is not used again."""
        ...


@runtime_checkable
class HasNextTokenHead(Protocol):
    """An engine that can read a checkpoint's next-token head."""

    def next_token_head(self) -> NextTokenHead:
        """Load it. Raises EngineError or CheckpointError where there is none."""
        ...


class Whole(Protocol):
    """A whole model in one process, fed token ids: what a split is held against."""

    def forward(self, spans: Sequence[Span], tokens: Sequence[int], wanted: Sequence[int]) -> Logits:
        """Logits of the rows `wanted` of a batch, [len(wanted), vocabulary]. Raises EngineError."""
        ...

    def keep(self, slot: int, length: int) -> None:
        """Forget the slot's positions from `length` on."""
        ...

    def release(self, slot: int) -> None:
        """Forget all of the slot."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...

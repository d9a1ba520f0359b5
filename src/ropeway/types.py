"""The nouns that the rooms share: dtypes, the boundary and the layout with its fingerprint.

Standard library only. Knows nothing of engines, sockets or text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from itertools import pairwise


class RowDtype(IntEnum):
    """Dtype of hidden rows on the wire (wire.md 6)."""

    F32 = 1
    F16 = 2
    BF16 = 3

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return 4 if self is RowDtype.F32 else 2

    @property
    def label(self) -> str:
        """Lower-case name, as the canonical layout writes it."""
        return self.name.lower()


class KvDtype(IntEnum):
    """Dtype of attention KV on a stage (wire.md 6)."""

    F32 = 1
    F16 = 2
    BF16 = 3
    Q8_0 = 4
    Q4_0 = 5
    FP8_E4M3 = 6


class Backend(IntEnum):
    """The device that a stage computes on (wire.md 6)."""

    CPU = 1
    CUDA = 2
    METAL = 3
    ROCM = 4
    VULKAN = 5
    OTHER = 6


class EngineKind(IntEnum):
    """What computes a stage (wire.md 6)."""

    TORCH = 1
    MLX = 2
    LLAMACPP = 3
    TINYGRAD = 4
    WORKER = 5


class SamplerAt(Enum):
    """Where tokens are chosen: `first` (rows return to rank 0) or `last` (the last rank takes the argmax)."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Boundary:
    """What crosses between two stages: `planes` planes of `hidden` values a row, in `row_dtype`.

    `taps` are the layers whose outputs a drafter wants as partial sums, ascending; empty without one.
    """

    hidden: int
    planes: int = 1
    row_dtype: RowDtype = RowDtype.F32
    taps: tuple[int, ...] = ()

    def row_bytes(self, draft_width: int = 0) -> int:
        """Bytes of one row on the wire, tap sums included (wire.md 8)."""
        return self.planes * self.hidden * self.row_dtype.itemsize + 4 * draft_width


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive rows of one stream in a batch: `rows` rows at positions first..first+rows of `slot`."""

    slot: int
    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Which rank holds which layers, who has the head, and the boundary between them.

    `ranges[r]` is rank r's half-open layer range. `checkpoint` is the SHA-256 hex of the checkpoint's identity.
    Raises ValueError, naming the field, when the ranges do not cover 0..layers contiguously.
    """

    boundary: Boundary
    checkpoint: str
    layers: int
    ranges: tuple[tuple[int, int], ...]
    sampler: SamplerAt = SamplerAt.FIRST

    def __post_init__(self) -> None:
        if not self.ranges:
            raise ValueError("ranges: a layout needs at least one stage")
        at = 0
        for rank, (first, end) in enumerate(self.ranges):
            if first != at or end <= first:
                raise ValueError(
                    f"ranges: rank {rank} has layers {first}..{end}, expected to start at {at} and be non-empty"
                )
            at = end
        if at != self.layers:
            raise ValueError(f"ranges: the stages end at layer {at}, the model has {self.layers}")

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.ranges)

    @property
    def head_rank(self) -> int:
        """The rank that holds the norm and the output matrix."""
        return 0 if self.sampler is SamplerAt.FIRST else self.world - 1

    def canonical(self) -> bytes:
        """The canonical JSON of wire.md 4: sorted keys, no spaces."""
        value = {
            "boundary": {
                "hidden": self.boundary.hidden,
                "planes": self.boundary.planes,
                "row_dtype": self.boundary.row_dtype.label,
                "taps": list(self.boundary.taps),
            },
            "checkpoint": self.checkpoint,
            "head_rank": self.head_rank,
            "layers": self.layers,
            "ranges": [list(r) for r in self.ranges],
            "sampler": self.sampler.value,
            "world": self.world,
        }
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    def fingerprint(self) -> bytes:
        """SHA-256 of the canonical layout, 32 bytes (wire.md 4)."""
        return hashlib.sha256(self.canonical()).digest()


def placement_name(fingerprint: bytes, computing: Sequence[str] = ()) -> str:
    """What replies name: `rw-` and 12 hex digits of the layout's fingerprint and of what each rank computes with.

    Before a ring is up nobody knows what its ranks compute with, and the layout alone has the name.
    """
    return f"rw-{hashlib.sha256(b'|'.join([fingerprint, *map(str.encode, computing)])).hexdigest()[:12]}"


def ranges_from_cuts(layers: int, cuts: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Layer ranges for cuts such as (10, 20): 0..10, 10..20, 20..layers. Raises ValueError for a bad cut."""
    edges = (0, *cuts, layers)
    if list(edges) != sorted(set(edges)):
        raise ValueError(f"cuts: {','.join(map(str, cuts))} must rise strictly and stay inside 1..{layers - 1}")
    return tuple(pairwise(edges))


def even_cuts(layers: int, stages: int) -> tuple[int, ...]:
    """Cuts for `stages` nearly equal ranges; earlier stages take what is left over. Raises ValueError if too many."""
    if not 1 <= stages <= layers:
        raise ValueError(f"stages: {stages} is outside 1..{layers}, the layers of this model")
    base, extra = divmod(layers, stages)
    sizes = [base + (rank < extra) for rank in range(stages)]
    return tuple(sum(sizes[:rank]) for rank in range(1, stages))

"""Which bytes of its weights tell a checkpoint from its fine-tunes: chosen by the header alone (wire.md 4). Pure.

A kind of tensor is its name without the numbers of layer and expert. Of each kind the middle tensor, the last and the
first are taken, the largest kinds first, so that training some layers, some matrices or all of them shows.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

MOST: Final = 32
"""Tensors that are sampled; each may cost a request where the checkpoint is elsewhere."""
SAMPLE_BYTES: Final = 256
ALIGNMENT: Final = 64

_NUMBER: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Sample:
    """Bytes start..start + nbytes of the tensor `name`, counted from its first."""

    name: str
    start: int
    nbytes: int


def choose_samples(sizes: Iterable[tuple[str, int]]) -> list[Sample]:
    """The samples of a checkpoint whose tensors have these names and bytes, in no order that matters."""
    nbytes = {name: size for name, size in sizes if size}
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in nbytes:
        kinds[kind_of(name)].append(name)
    ordered = sorted(kinds, key=lambda kind: (-sum(nbytes[name] for name in kinds[kind]), kind))
    for kind in ordered:
        kinds[kind].sort(key=lambda name: (_numbers(name), name))
    chosen: dict[str, None] = {}
    for place in (lambda count: count // 2, lambda count: count - 1, lambda _: 0):
        for kind in ordered:
            if len(chosen) < MOST:
                chosen[kinds[kind][place(len(kinds[kind]))]] = None
    return [_sample(name, nbytes[name]) for name in chosen]


def kind_of(name: str) -> str:
    """A tensor's name with a star for each part, between dots, that is a number of at most nine digits."""
    return ".".join("*" if _NUMBER.fullmatch(part) else part for part in name.split("."))


def sample_digests(samples: Iterable[Sample], read: Callable[[Sample], memoryview]) -> list[list[str]]:
    """Sorted [name, SHA-256 hex of the sample]: what the identity takes in. Raises what `read` raises."""
    return sorted([sample.name, hashlib.sha256(read(sample)).hexdigest()] for sample in samples)


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split(".") if _NUMBER.fullmatch(part))


def _sample(name: str, nbytes: int) -> Sample:
    start = 0 if nbytes <= SAMPLE_BYTES else nbytes // 2 // ALIGNMENT * ALIGNMENT
    return Sample(name, start, min(SAMPLE_BYTES, nbytes - start))

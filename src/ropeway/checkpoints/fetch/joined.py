"""A GGUF that lies in several files, as one file that nobody has: its header is made here, its tensors are read there.

The parts of `llama-gguf-split`, NAME-00001-of-00003.gguf and so on: the first has the metadata, each its own tensors.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.gguf_parts import read_header
from ropeway.checkpoints.fetch.ranges import Ranges
from ropeway.checkpoints.fetch.reader import Patience, Reader
from ropeway.checkpoints.fetch.source import FileFacts, Sink, Source
from ropeway.checkpoints.gguf_file import DEFAULT_ALIGNMENT, GgufFile, parse
from ropeway.checkpoints.gguf_write import OutTensor, encode_header

MAX_PARTS: Final = 999
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_SPLIT = "split."


def part_names(name: str) -> tuple[str, ...] | None:
    """All parts' names, where `name` is that of the first of several; None where it is a file by itself.

    Raises CheckpointError for another part than the first.
    """
    match = _PART.fullmatch(name)
    if match is None or (count := int(match["count"])) == 1:
        return None
    if int(match["number"]) != 1 or not 1 < count <= MAX_PARTS:
        raise CheckpointError(f"{name}: name the first of its parts, {match['stem']}-00001-of-{match['count']}.gguf")
    return tuple(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1))


def joined_name(name: str) -> str:
    """What the file is called once its parts are one: without the numbers."""
    match = _PART.fullmatch(name)
    return f"{match['stem']}.gguf" if match else name


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Bytes from `start` of the joined file on that lie at `at` of a part; `part` is None for zeros."""

    start: int
    nbytes: int
    part: int | None
    at: int


class JoinedFile:
    """The parts as one source. Raises CheckpointError where they do not belong together, and as their reader does."""

    def __init__(self, parts: Sequence[Source], patience: Patience | None = None) -> None:
        self._parts = parts
        headers = [_header(part, patience) for part in parts]
        _check(headers)
        fields = {key: field for key, field in headers[0].metadata.fields.items() if not key.startswith(_SPLIT)}
        fields.pop("general.alignment", None)  # the joined file has the default
        infos = [
            (number, info)
            for number, header in enumerate(headers)
            for info in sorted(header.tensors.values(), key=lambda info: info.offset)
        ]
        self._header = encode_header(fields, [OutTensor(info.name, info.type, info.shape, None) for _, info in infos])
        self._stretches: list[_Stretch] = []
        at = len(self._header)
        for number, info in infos:
            end = -(-(at + info.nbytes) // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT
            self._stretches.append(_Stretch(at, info.nbytes, number, info.offset))
            if end > at + info.nbytes:
                self._stretches.append(_Stretch(at + info.nbytes, end - at - info.nbytes, None, 0))
            at = end
        self._starts = [stretch.start for stretch in self._stretches]
        tags = hashlib.sha256(" ".join(part.facts.key for part in parts).encode()).hexdigest()
        self.facts = FileFacts(joined_name(parts[0].facts.name), at, f"joined:{tags}")
        self.label = parts[0].label
        self.held: Ranges = ((0, at),)

    @property
    def bytes_read(self) -> int:
        """As `Source`."""
        return sum(part.bytes_read for part in self._parts)

    def read(self, start: int, nbytes: int, sink: Sink) -> None:
        """As `Source`."""
        if start < len(self._header):
            piece = memoryview(self._header)[start : start + nbytes]
            sink(piece)
            start, nbytes = start + len(piece), nbytes - len(piece)
        while nbytes:
            run = self._run(start, nbytes)
            if run.part is None:
                sink(memoryview(bytes(run.nbytes)))
            else:
                self._parts[run.part].read(run.at, run.nbytes, sink)
            start, nbytes = start + run.nbytes, nbytes - run.nbytes

    def digest(self, start: int, nbytes: int) -> str | None:
        """None: a range of this file is none of theirs."""
        return None

    def close(self) -> None:
        """Close every part."""
        for part in self._parts:
            part.close()

    def _run(self, start: int, nbytes: int) -> _Stretch:
        """What one read brings from `start` on: stretches that follow each other in a part as they do here."""
        index = bisect_right(self._starts, start) - 1
        first = self._stretches[index]
        into = start - first.start
        end, at = first.start + first.nbytes, first.at + into
        for stretch in self._stretches[index + 1 :]:
            follows = stretch.part == first.part and stretch.at - at == stretch.start - start
            padding = stretch.part is None and first.part is not None
            if end >= start + nbytes or not (follows or padding):
                break
            if follows:
                end = stretch.start + stretch.nbytes
        return _Stretch(start, min(end - start, nbytes), first.part, at)


def _header(part: Source, patience: Patience | None) -> GgufFile:
    raw = memoryview(read_header(Reader([part], patience)))
    return parse(raw, Path(part.facts.name), part.facts.nbytes)


def _check(headers: Sequence[GgufFile]) -> None:
    for number, header in enumerate(headers):
        count, own = header.metadata.integer("split.count"), header.metadata.integer("split.no")
        if (count, own) != (len(headers), number):
            raise CheckpointError(
                f"{header.path}: it says that it is part {own + 1} of {count}, "
                f"its name says {number + 1} of {len(headers)}"
            )

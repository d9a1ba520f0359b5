"""The headers of a checkpoint's files, read once and kept in memory for as long as a fetch lasts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.assemble import Voucher
from ropeway.checkpoints.fetch.ranges import Ranges
from ropeway.checkpoints.fetch.reader import Reader
from ropeway.checkpoints.fetch.source import FileFacts, Sink, Source, SourceError

MOST_BYTES: Final = 512 << 20
"""Of all headers of a checkpoint; 150 thousand tensors in 160 files take 25 MB."""


class KnownBytes:
    """The first bytes of a file, in memory, as a source."""

    label = "this machine"
    bytes_read = 0

    def __init__(self, facts: FileFacts, data: bytes) -> None:
        self.facts = facts
        self.held: Ranges = ((0, len(data)),)
        self._data = memoryview(data)

    def read(self, start: int, nbytes: int, sink: Sink) -> None:
        """As `Source`."""
        sink(self._data[start : start + nbytes])

    def digest(self, start: int, nbytes: int) -> str | None:
        """As `Source`."""
        return hashlib.sha256(self._data[start : start + nbytes]).hexdigest()

    def close(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class Heads:
    """Headers by file. Those of files with a voucher are held against it."""

    vouch: Mapping[str, Voucher]
    _raw: dict[str, bytes] = field(default_factory=dict)

    def read(self, name: str, readers: Iterable[Reader], how: Callable[[Reader], bytes]) -> bytes:
        """The header of a file, from the first of `readers` that gives what its voucher says.

        Raises CheckpointError where none does, for headers that are too long, and as `how` does.
        """
        if name not in self._raw:
            data = self._checked(name, readers, how)
            if sum(map(len, self._raw.values())) + len(data) > MOST_BYTES:
                raise CheckpointError(
                    f"{name}: the headers of this checkpoint have more than {MOST_BYTES >> 20} MiB, which is no model's"
                )
            self._raw[name] = data
        return self._raw[name]

    def sources(self, name: str, facts: FileFacts) -> list[Source]:
        """The header of a file as a source, where it was read."""
        raw = self._raw.get(name)
        return [] if raw is None else [KnownBytes(facts, raw)]

    def _checked(self, name: str, readers: Iterable[Reader], how: Callable[[Reader], bytes]) -> bytes:
        voucher = self.vouch.get(name)
        for reader in readers:
            data = how(reader)
            try:
                expected = None if voucher is None else voucher.digest(0, len(data))
            except SourceError as error:
                raise CheckpointError(f"{name}: its header cannot be checked: {error}") from None
            if expected in (None, hashlib.sha256(data).hexdigest()):
                return data
        raise CheckpointError(f"{name}: its header has a wrong SHA-256")

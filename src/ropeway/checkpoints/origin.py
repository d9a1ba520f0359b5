"""Partial copies of checkpoints: files of the right size whose holes nobody has fetched, and the note beside them.

The note, `ropeway-origin.json`, says where the files come from and which of their bytes are here, so that a hole is
never taken for zeros.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.ranges import Range, Ranges, covers, union

NOTE = "ropeway-origin.json"
_FORMAT = 1
_MAX_NOTE_BYTES = 16 << 20
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HeldFile:
    """One file of a partial copy: its size, what tells its content from others, and the bytes that are here."""

    nbytes: int
    tag: str
    held: Ranges


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a partial copy comes from. `key`, 64 hex digits, is the same for the same content on every node."""

    key: str
    source: str
    files: Mapping[str, HeldFile] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The note's bytes."""
        files = {
            name: {"bytes": held.nbytes, "tag": held.tag, "held": [list(r) for r in held.held]}
            for name, held in self.files.items()
        }
        value = {"format": _FORMAT, "key": self.key, "source": self.source, "files": files}
        return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def origin_of(path: Path) -> Origin | None:
    """The note of the partial copy that the file or directory `path` is; None where it is no partial copy.

    Raises CheckpointError for a note that cannot be read.
    """
    note = (path if path.is_dir() else path.parent) / NOTE
    try:
        with note.open("rb") as file:
            raw = file.read(_MAX_NOTE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CheckpointError(f"{note}: cannot be read: {error.strerror or error}") from error
    try:
        origin = _decode(raw)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{note}: is not what a fetch writes ({error}); remove {note.parent}") from None
    return origin if path.is_dir() or path.name in origin.files else None


def held_of(path: Path) -> Ranges | None:
    """The bytes of the file `path` that are here; None where it is no partial copy, so that all are."""
    origin = origin_of(path)
    return None if origin is None else origin.files[path.name].held


def require_held(path: Path, held: Ranges | None, start: int, end: int, what: str, advice: str = "") -> None:
    """Refuse to take a hole of a partial copy for data. Raises CheckpointError that names `what`."""
    if held is not None and not covers(held, start, end):
        raise CheckpointError(
            f"{path}: {what} is not on this machine: only a part of the checkpoint was fetched{advice}"
        )


def require_sample(path: Path, held: Ranges | None, start: int, end: int, name: str) -> None:
    """The same for a sample of the tensor `name`, which every copy has that this release fetches."""
    require_held(path, held, start, end, f"the sample of tensor {name}", ", by an earlier release: fetch it again")


def refuse_partial(path: Path) -> None:
    """Refuse a partial copy where a whole file is needed. Raises CheckpointError."""
    origin = origin_of(path)
    if origin is not None and origin.files[path.name].held != ((0, origin.files[path.name].nbytes),):
        raise CheckpointError(f"{path}: only a part of this checkpoint was fetched, and all of it is needed here")


def _decode(raw: bytes) -> Origin:
    if len(raw) > _MAX_NOTE_BYTES:
        raise ValueError("it is too long")
    value = json.loads(raw)
    if value["format"] != _FORMAT:
        raise ValueError(f"format {value['format']!r}")
    key, source = value["key"], value["source"]
    if not isinstance(source, str) or not isinstance(key, str) or not _KEY.fullmatch(key):
        raise ValueError("no key")
    return Origin(key, source, {name: _held(entry) for name, entry in value["files"].items()})


def _held(entry: Mapping[str, object]) -> HeldFile:
    nbytes, tag, pairs = entry["bytes"], entry["tag"], entry["held"]
    if type(nbytes) is not int or not isinstance(tag, str) or not isinstance(pairs, list):
        raise ValueError("a file's entry")
    held: list[Range] = []
    for pair in pairs:
        start, end = pair
        if type(start) is not int or type(end) is not int or not 0 <= start < end <= nbytes:
            raise ValueError(f"the range {pair!r}")
        held.append((start, end))
    return HeldFile(nbytes, tag, union(held))

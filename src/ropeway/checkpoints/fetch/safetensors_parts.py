"""What of a safetensors repository a stage needs. Knows tensors by their names as transformers gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.assemble import Copy, Recipe, add_samples
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.reader import Reader
from ropeway.checkpoints.safetensors_file import MAX_HEADER_BYTES, TensorEntry, parse_header
from ropeway.checkpoints.samples import choose_samples

INDEX: Final = "model.safetensors.index.json"
CONFIG: Final = "config.json"
COMPANIONS: Final = (
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)
"""Small files that every stage gets. Nothing else of a repository is fetched: no other formats, no code."""
MAX_COMPANION_BYTES: Final = 128 << 20

_LAYER = re.compile(r"(?:model\.|language_model\.|text_model\.|transformer\.)*(?:layers|h)\.(0|[1-9]\d{0,5})\..+")


class Place(Enum):
    """Where a tensor that is in no layer belongs."""

    EMBED = "embed"
    HEAD = "head"
    SIGHT = "sight"
    EVERYWHERE = "everywhere"


def layer_of(name: str) -> int | None:
    """The decoder layer that a tensor belongs to; None for one of no layer (nor are layers of MTP heads or vision)."""
    match = _LAYER.fullmatch(name)
    return int(match[1]) if match else None


def place_of(name: str) -> Place:
    """Where a tensor of no layer belongs; one of a kind that is not known goes everywhere."""
    parts = name.split(".")
    if any(
        part in ("visual", "vision_tower", "vision_model", "multi_modal_projector", "audio_tower") for part in parts
    ):
        return Place.SIGHT
    if "mtp" in parts or "lm_head" in parts or parts[-2:-1] == ["norm"]:
        return Place.HEAD
    if "embed_tokens" in parts or "wte" in parts:
        return Place.EMBED
    return Place.EVERYWHERE


def chooser(need: Need | None, *, tied: bool) -> Callable[[str], bool]:
    """Whether a tensor is needed; `tied`: the head is the embedding matrix. A need of None is for the whole model."""

    def wanted(name: str) -> bool:
        if need is None:
            return True
        layer = layer_of(name)
        if layer is not None:
            return need.first <= layer < need.end
        match place_of(name):
            case Place.EMBED:
                return need.embed or (need.head and tied)
            case Place.HEAD:
                return need.head
            case Place.SIGHT:
                return False
            case Place.EVERYWHERE:
                return True

    return wanted


@dataclass(frozen=True, slots=True)
class Head:
    """A file's header: where its tensors start, and the tensors by name."""

    start: int
    tensors: Mapping[str, TensorEntry]

    @classmethod
    def parse(cls, raw: bytes, name: str, nbytes: int) -> Head:
        """The header `raw` of a file of `nbytes`. Raises CheckpointError."""
        try:
            return cls(len(raw), parse_header(memoryview(raw), nbytes))
        except CheckpointError as error:
            raise CheckpointError(f"{name}: {error}") from None


def samples_of(heads: Mapping[str, Head]) -> dict[str, list[Copy]]:
    """The samples of the weights that the identity takes in, by file, of a checkpoint with these headers."""
    file_of = {tensor: name for name in sorted(heads) for tensor in heads[name].tensors}
    found: dict[str, list[Copy]] = {name: [] for name in heads}
    for sample in choose_samples((tensor, heads[name].tensors[tensor].nbytes) for tensor, name in file_of.items()):
        name = file_of[sample.name]
        start = heads[name].tensors[sample.name].offset + sample.start
        found[name].append(Copy(start, start, sample.nbytes, f"the sample of {sample.name}"))
    return found


def read_header(reader: Reader) -> bytes:
    """A file's bytes up to where its tensors start. Raises CheckpointError for what is no safetensors file, and as the
    reader does."""
    raw = bytearray()
    name, size = reader.facts.name, reader.facts.nbytes
    reader.read(0, min(8, size), raw.extend)
    length = int.from_bytes(raw, "little")
    if len(raw) < 8 or length > min(MAX_HEADER_BYTES, size - 8):
        raise CheckpointError(f"{name}: this is not a safetensors file (its header's length makes no sense)")
    reader.read(8, length, raw.extend)
    return bytes(raw)


def copy_recipe(nbytes: int, head: Head, wanted: Callable[[str], bool], samples: Iterable[Copy]) -> Recipe:
    """A partial copy of a file of `nbytes`: its header, the tensors that are `wanted` where they lie in it, and
    `samples`. Raises CheckpointError where tensors lie over each other."""
    entries = [entry for entry in head.tensors.values() if entry.nbytes and wanted(entry.name)]
    copies = [Copy(entry.offset, entry.offset, entry.nbytes, entry.name) for entry in entries]
    return Recipe(nbytes, (Copy(0, 0, head.start, "the header"), *add_samples(copies, samples)))

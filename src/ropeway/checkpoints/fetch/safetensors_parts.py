"""What of a safetensors repository a stage needs. Knows tensors by their names as transformers gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.assemble import Copy, Literal, Recipe
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.reader import Reader
from ropeway.checkpoints.safetensors_file import MAX_HEADER_BYTES, TensorEntry

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


def header_bytes(reader: Reader) -> int:
    """Where a file's tensors start. Raises CheckpointError for what is no safetensors file, and as the reader does."""
    raw = bytearray()
    name, size = reader.facts.name, reader.facts.nbytes
    reader.read(0, min(8, size), raw.extend)
    length = int.from_bytes(raw, "little")
    if len(raw) < 8 or length > min(MAX_HEADER_BYTES, size - 8):
        raise CheckpointError(f"{name}: this is not a safetensors file (its header's length makes no sense)")
    return 8 + length


def copy_recipe(size: int, start: int, tensors: Iterable[TensorEntry]) -> Recipe:
    """A partial copy of a file of `size` bytes: its header, up to `start`, and `tensors` where they lie in it."""
    parts: list[Literal | Copy] = [Copy(0, 0, start, "the header")]
    wanted = sorted((entry for entry in tensors if entry.nbytes), key=lambda entry: entry.offset)
    for before, entry in zip([None, *wanted], wanted, strict=False):
        if before is not None and before.offset + before.nbytes > entry.offset:
            raise CheckpointError(f"tensors {before.name} and {entry.name} lie over each other")
        parts.append(Copy(entry.offset, entry.offset, entry.nbytes, entry.name))
    return Recipe(size, tuple(parts))

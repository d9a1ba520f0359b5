"""What a rank needs of a checkpoint. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Need:
    """Layers first..end; `embed`: the embeddings too, `head`: the final norm and the output matrix too."""

    first: int
    end: int
    embed: bool = False
    head: bool = False

    @property
    def label(self) -> str:
        """A name for files: "0-15-embed-head"."""
        parts = [f"{self.first}-{self.end}"]
        parts += ["embed"] * self.embed + ["head"] * self.head
        return "-".join(parts)

    @classmethod
    def parse(cls, layers: str, *, embed: bool | None = None, head: bool = False) -> Need:
        """'0:15' as layers 0..15. The embeddings go with layer 0 unless told. Raises ValueError."""
        first, colon, end = layers.partition(":")
        if not colon or not (first.isascii() and first.isdigit() and end.isascii() and end.isdigit()):
            raise ValueError(f"layers: {layers!r} is not a range such as 0:15")
        need = cls(int(first), int(end), int(first) == 0 if embed is None else embed, head)
        if need.first > need.end or (need.first == need.end and not head):
            raise ValueError(f"layers: {layers} holds no layer")
        return need

    def check(self, layers: int) -> None:
        """Refuse a range that the model does not have. Raises ValueError."""
        if self.end > layers:
            raise ValueError(f"layers: {self.first}:{self.end} is not within the model's {layers} layers")

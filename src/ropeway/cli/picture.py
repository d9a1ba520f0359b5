"""The ring as text: a box a stage, arrows between them, and the way back to rank 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageView:
    """What a stage's box shows."""

    rank: int
    first: int
    end: int
    engine: str
    backend: str
    weights_bytes: int
    embeds: bool
    has_head: bool


def megabytes(count: int) -> str:
    """Bytes for people, in decimal megabytes."""
    return f"{count / 1e6:.1f} MB"


def draw_ring(stages: Sequence[StageView], row_bytes: int, columns: int) -> str:
    """The ring, side by side where `columns` allow and one below the other where not."""
    boxes = [_box(stage) for stage in stages]
    width = sum(len(box[0]) for box in boxes) + _ARROW * (len(boxes) - 1) + 4
    if len(boxes) == 1:
        return "\n".join(boxes[0])
    if width <= columns:
        return _side_by_side(boxes, row_bytes, stages[-1].has_head)
    return _stacked(boxes, row_bytes, stages[-1].has_head)


_ARROW = 11


def _lines(stage: StageView) -> list[str]:
    held = [f"layers {stage.first}..{stage.end}"]
    if stage.embeds:
        held.insert(0, "embeddings")
    if stage.has_head:
        held.append("head")
    return [f"rank {stage.rank}", *held, f"{stage.engine} on {stage.backend}", megabytes(stage.weights_bytes)]


def _box(stage: StageView) -> list[str]:
    lines = _lines(stage)
    width = max(len(line) for line in lines)
    return [
        "┌" + "─" * (width + 2) + "┐",
        *(f"│ {line:<{width}} │" for line in lines),
        "└" + "─" * (width + 2) + "┘",
    ]


def _side_by_side(boxes: list[list[str]], row_bytes: int, chain: bool) -> str:
    height = max(len(box) for box in boxes)
    padded = [_pad(box, height) for box in boxes]
    middle = height // 2
    lines = []
    for y in range(height):
        arrow = (
            f"{row_bytes:,} B".center(_ARROW) if y == middle - 1 else (" ───────▶  " if y == middle else " " * _ARROW)
        )
        left = "┌▶ " if y == middle else "│  " if y > middle else "   "
        right = " ─┐" if y == middle else "  │" if y > middle else "   "
        lines.append(left + arrow.join(box[y] for box in padded) + right)
    inner = len(lines[0]) - 2
    back = " token " if chain else " rows "
    lines.append("└" + back.center(inner, "─") + "┘")
    return "\n".join(line.rstrip() for line in lines)


def _pad(box: list[str], height: int) -> list[str]:
    width = len(box[0]) - 2
    missing = height - len(box)
    return [*box[:-1], *["│" + " " * width + "│"] * missing, box[-1]]


def _stacked(boxes: list[list[str]], row_bytes: int, chain: bool) -> str:
    width = max(len(box[0]) for box in boxes)
    lines: list[str] = []
    for index, box in enumerate(boxes):
        last = index == len(boxes) - 1
        for y, line in enumerate(box):
            here = y == len(box) // 2
            if here and index == 0:
                edge = "◀─┐"
            elif here and last:
                edge = "──┘"
            else:
                edge = "  │" if (index, y) > (0, len(boxes[0]) // 2) and not (last and y > len(box) // 2) else ""
            fill = "─" if edge == "──┘" else " "
            lines.append((line + fill * (width - len(line)) + edge).rstrip())
        if not last:
            lines.append(f"{f'  ▼ {row_bytes:,} B a row':<{width}}  │")
    lines.append(f"  ({'the token' if chain else 'the last rows'} go{'es' if chain else ''} back to rank 0)")
    return "\n".join(lines)

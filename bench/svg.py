"""Small plots as SVG text: bars with a spread and an ideal, by light and by dark. The standard library alone.

Knows nothing of benches: rows in, a picture out. Text is what the reader's own sans-serif is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 760
LEFT: Final = 268
RIGHT: Final = 96
ROW: Final = 30
TOP: Final = 46
_STYLE: Final = """
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:#17202a}
.title{font-weight:600;font-size:15px}.soft{fill:#5d6973}.end{text-anchor:end}.mid{text-anchor:middle}
.bar{fill:#dd5a12}.other{fill:#7f8b94}.third{fill:#2b69b5}.grid{stroke:#dcdfde}.whisker{stroke:#17202a;stroke-width:1.5}
.ideal{stroke:#23804d;stroke-width:2.5}.limit{stroke:#b3202f;stroke-width:1.5;stroke-dasharray:4 3}.ground{fill:#fff}
@media (prefers-color-scheme:dark){text{fill:#e7ecef}.soft{fill:#8e9ba6}.bar{fill:#ff9a4a}.other{fill:#56636e}
.third{fill:#6fb1ff}.grid{stroke:#242e37}.whisker{stroke:#e7ecef}.ideal{stroke:#55c489}.limit{stroke:#ff6b78}
.ground{fill:#0d1217}}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: a value with its spread; `ideal` and `limit` are marked where there are any. `kind` names a style."""

    label: str
    value: float
    low: float
    high: float
    ideal: float | None = None
    limit: float | None = None
    kind: str = "bar"
    text: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a stacked bar."""

    label: str
    value: float
    kind: str


def bars(title: str, rows: Sequence[Bar], about: str, *, until: float | None = None) -> str:
    """Bars from 0, one below the other; `about` says what the marks and the numbers mean."""
    top = until or 1.05 * max((max(row.high, row.ideal or 0, row.limit or 0) for row in rows), default=1.0)
    scale = (WIDTH - LEFT - RIGHT) / top

    def x(value: float) -> float:
        return LEFT + scale * min(value, top)

    height = TOP + ROW * len(rows) + 54
    parts = _grid(top, x, height - 46)
    for index, row in enumerate(rows):
        y = TOP + ROW * index
        middle = y + ROW / 2
        parts += [
            _text(LEFT - 10, middle + 4, row.label, "end"),
            _rect(LEFT, y + 7, x(row.value) - LEFT, ROW - 14, row.kind),
            _line(x(row.low), middle, x(row.high), middle, "whisker"),
            *(_line(x(end), middle - 4, x(end), middle + 4, "whisker") for end in (row.low, row.high)),
        ]
        if row.ideal is not None:
            parts.append(_line(x(row.ideal), y + 3, x(row.ideal), y + ROW - 3, "ideal"))
        if row.limit is not None:
            parts.append(_line(x(row.limit), y + 3, x(row.limit), y + ROW - 3, "limit"))
        furthest = max(row.high, row.ideal or 0, row.limit or 0)
        parts.append(_text(x(furthest) + 8, middle + 4, row.text or f"{row.value:.2f}", ""))
    return _picture(title, about, height, parts)


def stack(title: str, rows: Sequence[tuple[str, Sequence[Piece]]], about: str) -> str:
    """Bars made of pieces, one below the other, each as long as its pieces together; piece by piece a legend."""
    top = max((sum(piece.value for piece in pieces) for _, pieces in rows), default=1.0) or 1.0
    scale = (WIDTH - LEFT - 24) / top
    height = TOP + ROW * len(rows) + 80
    parts: list[str] = []
    legend: dict[str, str] = {}
    for index, (label, pieces) in enumerate(rows):
        y, at = TOP + ROW * index, float(LEFT)
        parts.append(_text(LEFT - 10, y + ROW / 2 + 4, label, "end"))
        for piece in pieces:
            parts.append(_rect(at, y + 5, scale * piece.value, ROW - 10, piece.kind))
            at += scale * piece.value
            legend.setdefault(piece.label, piece.kind)
    at = float(LEFT)
    for label, kind in legend.items():
        y = TOP + ROW * len(rows) + 12
        parts += [_rect(at, y, 12, 12, kind), _text(at + 18, y + 11, label, "")]
        at += 30 + 7.2 * len(label)
    return _picture(title, about, height, parts)


def _grid(top: float, x: Callable[[float], float], bottom: float) -> list[str]:
    step = next(
        size for size in (0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 1e4, 1e9) if top / size <= 7
    )
    found: list[str] = []
    for number in range(int(top / step) + 1):
        value = number * step
        found.append(_line(x(value), TOP - 4, x(value), bottom, "grid"))
        found.append(_text(x(value), bottom + 16, f"{value:g}", "soft mid"))
    return found


def _picture(title: str, about: str, height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    )
    body = [
        f'{head} role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE.strip()}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height:g}"/>',
        _text(16, 24, title, "title"),
        *parts,
        _text(16, height - 10, about, "soft"),
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{height:.1f}" class="{kind}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'

"""A placement as a picture: for the terminal by rich, and as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ropeway.placement.cost import Price, Spot, StagePrice
from ropeway.placement.explain import Alternative

COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")
_SVG: Final = ("#2a9d8f", "#e76f51", "#457b9d", "#e9c46a", "#8e6c8a", "#6a994e", "#bc4749", "#577590")
_FONT: Final = 'font-family="sans-serif" font-size="13"'
STRIP: Final = (8, 40)
"""Columns of the strip of layers: at least, at most; it is left out where there are fewer."""
NAME: Final = (6, 16)
"""Columns of a node's name: at least, at most."""
BAR: Final = 8
WIDTH: Final = 960
"""Of the SVG image; so many boxes of stages are side by side."""
ACROSS: Final = 4
LETTER: Final = 7.2
"""About as wide is a letter of 13 pixels."""


def size(count: float) -> str:
    """Bytes for people, decimal."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def picture(price: Price, layers: int, columns: int = 100) -> RenderableType:
    """The stages with their layers, memory and times, and what is predicted of the whole."""
    rows = [_row(rank, stage) for rank, stage in enumerate(price.stages)]
    if price.hops:
        hops, worst = sum(hop.decode_ms for hop in price.hops), max(hop.busy_ms for hop in price.hops)
        rows.append(("", "hops", "", "", f"{hops:.2f}", f"{worst:.1f}"))
    headings = ("", "node", "layers", "memory", "ms/token", "ms/part")
    widths = [max(len(row[n]) for row in [headings, *rows]) + 1 for n in range(len(headings))]
    name = max(NAME[0], min(NAME[1], widths[1] - 1, columns - sum(widths) + widths[1] - 1))
    left = columns - sum(widths) + widths[1] - name - 1
    bar = BAR if left > BAR + STRIP[0] + 1 else 0
    strip = min(STRIP[1], left - (bar + 1 if bar else 0) - 1)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right" if heading.startswith("ms") else "left", no_wrap=True)
        if heading == "layers" and strip >= STRIP[0]:
            table.add_column("", no_wrap=True)
        if heading == "memory" and bar:
            table.add_column("", no_wrap=True)
    for rank, row in enumerate(rows):
        stage = price.stages[rank] if rank < len(price.stages) else None
        colour = COLOURS[rank % len(COLOURS)] if stage is not None else "dim"
        cells = [Text(row[0]), Text(middle(row[1], name), colour), *map(Text, row[2:])]
        if bar:
            cells.insert(4, _bar(stage, colour) if stage is not None else Text())
        if strip >= STRIP[0]:
            cells.insert(3, _strip(stage.spot, layers, colour, strip) if stage is not None else Text())
        table.add_row(*cells)
    return Group(table, "", summary(price))


def _row(rank: int, stage: StagePrice) -> tuple[str, ...]:
    spot = stage.spot
    held = f"{size(stage.memory_bytes)} / {size(stage.limit_bytes)}"
    times = f"{stage.decode_ms:.2f}", f"{stage.part_ms:.1f}"
    return (str(rank), spot.node, f"{spot.first}..{spot.end}", held, *times)


def short(text: str, most: int) -> str:
    """So many letters of it."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def middle(text: str, most: int) -> str:
    """So many letters of it, of its beginning and its end."""
    end = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def summary(price: Price) -> str:
    """What is predicted, in a line."""
    return (
        f"predicted: first token {price.first_token_ms:,.0f} ms, {price.decode_ms:.2f} ms a token of one stream "
        f"({1e3 / max(price.decode_ms, 1e-9):.1f} a second), {price.tokens_per_s:.1f} tokens a second of all"
    )


def others(found: Sequence[Alternative], chosen: Price, most: int = 8) -> RenderableType:
    """Why not the other layouts."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("instead", "layers", "ms/token", "first token", "cost"):
        table.add_column(heading, justify="right" if heading in ("ms/token", "first token") else "left")
    for other in found[:most]:
        told = (
            other.what,
            " ".join(f"{spot.node}:{spot.first}..{spot.end}" for spot in other.price.layout),
            f"{other.price.decode_ms:.2f}",
            f"{other.price.first_token_ms:,.0f} ms",
            other.why_not(chosen),
        )
        table.add_row(*map(Text, told))
    return table


def _strip(spot: Spot, layers: int, colour: str, columns: int) -> Text:
    """Where the layers lie in the model."""
    a = min(columns - 1, round(spot.first / layers * columns))
    b = max(a + 1, round(spot.end / layers * columns))
    return Text("·" * a, "dim").append("█" * (b - a), colour).append("·" * (columns - b), "dim")


def _bar(stage: StagePrice, colour: str) -> Text:
    share = _share(stage)
    full = min(BAR, round(share * BAR))
    return Text("▮" * full, colour if share <= 1 else "bold red").append("▯" * (BAR - full), "dim")


def _share(stage: StagePrice) -> float:
    return stage.memory_bytes / stage.limit_bytes if stage.limit_bytes else 1.0


def svg(price: Price, layers: int, title: str) -> str:
    """The same as an SVG image: a strip of layers, a box a stage with its memory, and the hops between."""
    inner, count = WIDTH - 40, len(price.stages)
    height = 110 + 150 * -(-count // ACROSS)
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {_FONT}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="20" y="26" font-size="16" font-weight="bold">{escape(short(title, 100))}</text>',
    ]
    for rank, stage in enumerate(price.stages):
        spot, label = stage.spot, f"{stage.spot.first}..{stage.spot.end}"
        left, wide = 20 + inner * spot.first / layers, inner * (spot.end - spot.first) / layers
        colour = _SVG[rank % len(_SVG)]
        found.append(f'<rect x="{left:.1f}" y="40" width="{max(1.0, wide - 2):.1f}" height="22" fill="{colour}"/>')
        if wide > LETTER * len(label) + 4:
            found.append(f'<text x="{left + 4:.1f}" y="56" fill="#fff" font-size="11">{label}</text>')
    step = inner / min(count, ACROSS)
    for rank, stage in enumerate(price.stages):
        row, column = divmod(rank, ACROSS)
        hop = price.hops[rank].decode_ms if price.hops else None
        found += _box(rank, stage, 20 + column * step, 76 + 150 * row, step - 30, hop)
    found.append(f'<text x="20" y="{height - 20}">{escape(summary(price))}</text>')
    return "\n".join([*found, "</svg>", ""])


def _box(rank: int, stage: StagePrice, left: float, top: int, wide: float, hop_ms: float | None) -> list[str]:
    """One stage, and the hop behind it."""
    colour, share = _SVG[rank % len(_SVG)], min(1.0, _share(stage))
    lines = (
        f"rank {rank}: {stage.spot.node}",
        f"layers {stage.spot.first}..{stage.spot.end}",
        f"{stage.decode_ms:.2f} ms a token",
        f"{stage.part_ms:.1f} ms a part",
        f"{size(stage.memory_bytes)} of {size(stage.limit_bytes)}",
    )
    most = int((wide - 16) / LETTER)
    bar = f'x="{left + 8:.1f}" y="{top + 102}" height="8"'
    found = [
        f'<rect x="{left:.1f}" y="{top}" width="{wide:.1f}" height="118" fill="none" stroke="{colour}" rx="5"/>',
        *(
            f'<text x="{left + 8:.1f}" y="{top + 18 + 18 * row}">{escape(short(line, most))}</text>'
            for row, line in enumerate(lines)
        ),
        f'<rect {bar} width="{wide - 16:.1f}" fill="#e8e8e8"/>',
        f'<rect {bar} width="{(wide - 16) * share:.1f}" fill="{colour}"/>',
    ]
    if hop_ms is not None:
        end = f'x="{left + wide - 4:.1f}" y="{top + 134}" text-anchor="end"'
        found.append(f'<text x="{left + wide + 8:.1f}" y="{top + 60}">→</text>')
        found.append(f'<text {end} font-size="11">hop {hop_ms:.2f} ms</text>')
    return found

"""A placement as a picture: for the terminal by rich, and as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ropeway.placement.cost import Price
from ropeway.placement.explain import Alternative

COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")
_SVG: Final = ("#2a9d8f", "#e76f51", "#457b9d", "#e9c46a", "#8e6c8a", "#6a994e", "#bc4749", "#577590")
STRIP: Final = (8, 40)
"""Columns of the strip of layers: at least, at most."""
OTHERS: Final = 72
"""Columns of the rest of the table, with names of 10 letters."""
BAR: Final = 8


def size(count: float) -> str:
    """Bytes for people, decimal."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def picture(price: Price, layers: int, columns: int = 100) -> RenderableType:
    """The stages with their layers, memory and times, and what is predicted of the whole."""
    strip = min(STRIP[1], max(STRIP[0], columns - OTHERS))
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for heading in ("", "node", "layers", "", "memory", "", "ms/token", "ms/part"):
        table.add_column(heading, justify="right" if heading.startswith("ms") else "left", no_wrap=True)
    for rank, stage in enumerate(price.stages):
        spot, colour = stage.spot, COLOURS[rank % len(COLOURS)]
        share = stage.memory_bytes / stage.limit_bytes if stage.limit_bytes else 1.0
        table.add_row(
            str(rank),
            Text(spot.node, colour),
            f"{spot.first}..{spot.end}",
            _strip(spot.first, spot.end, layers, colour, strip),
            f"{size(stage.memory_bytes)} / {size(stage.limit_bytes)}",
            _bar(share, colour),
            f"{stage.decode_ms:.2f}",
            f"{stage.part_ms:.1f}",
        )
    hops = sum(hop.decode_ms for hop in price.hops)
    if price.hops:
        worst = max(hop.busy_ms for hop in price.hops)
        table.add_row("", Text("hops", "dim"), "", "", "", "", f"{hops:.2f}", f"{worst:.1f}")
    return Group(table, "", summary(price))


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
        table.add_row(
            other.what,
            " ".join(f"{spot.node}:{spot.first}..{spot.end}" for spot in other.price.layout),
            f"{other.price.decode_ms:.2f}",
            f"{other.price.first_token_ms:,.0f} ms",
            other.why_not(chosen),
        )
    return table


def _strip(first: int, end: int, layers: int, colour: str, columns: int) -> Text:
    """Where the layers lie in the model."""
    a = min(columns - 1, round(first / layers * columns))
    b = max(a + 1, round(end / layers * columns))
    return Text("·" * a, "dim").append("█" * (b - a), colour).append("·" * (columns - b), "dim")


def _bar(share: float, colour: str) -> Text:
    full = min(BAR, round(share * BAR))
    return Text("▮" * full, colour if share <= 1 else "bold red").append("▯" * (BAR - full), "dim")


def svg(price: Price, layers: int, title: str) -> str:
    """The same as an SVG image: a strip of layers, a box a stage with its memory, and the hops between."""
    width, box = 960, 118
    inner = width - 40
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 260" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="260" fill="#fff"/>',
        f'<text x="20" y="26" font-size="16" font-weight="bold">{escape(title)}</text>',
    ]
    for rank, stage in enumerate(price.stages):
        colour, spot = _SVG[rank % len(_SVG)], stage.spot
        left = 20 + inner * spot.first / layers
        wide = inner * (spot.end - spot.first) / layers
        found.append(f'<rect x="{left:.1f}" y="40" width="{wide - 2:.1f}" height="22" fill="{colour}"/>')
        found.append(f'<text x="{left + 4:.1f}" y="56" fill="#fff" font-size="11">{spot.first}..{spot.end}</text>')
    step = inner / len(price.stages)
    for rank, stage in enumerate(price.stages):
        left, colour = 20 + rank * step, _SVG[rank % len(_SVG)]
        room = max(60.0, step - 30)
        share = min(1.0, stage.memory_bytes / stage.limit_bytes) if stage.limit_bytes else 1.0
        lines = (
            f"rank {rank}: {stage.spot.node}",
            f"layers {stage.spot.first}..{stage.spot.end}",
            f"{stage.decode_ms:.2f} ms a token",
            f"{stage.part_ms:.1f} ms a part",
            f"{size(stage.memory_bytes)} of {size(stage.limit_bytes)}",
        )
        found.append(
            f'<rect x="{left:.1f}" y="76" width="{room:.1f}" height="{box}" fill="none" stroke="{colour}" rx="5"/>'
        )
        found += [
            f'<text x="{left + 8:.1f}" y="{94 + 18 * row}">{escape(line)}</text>' for row, line in enumerate(lines)
        ]
        found.append(f'<rect x="{left + 8:.1f}" y="178" width="{room - 16:.1f}" height="8" fill="#e8e8e8"/>')
        found.append(f'<rect x="{left + 8:.1f}" y="178" width="{(room - 16) * share:.1f}" height="8" fill="{colour}"/>')
        if price.hops:
            hop = price.hops[rank]
            found.append(
                f'<text x="{left + room + 2:.1f}" y="130" font-size="11">→</text>'
                f'<text x="{left + room - 4:.1f}" y="210" font-size="11" text-anchor="end">'
                f"hop {hop.decode_ms:.2f} ms</text>"
            )
    found.append(f'<text x="20" y="240">{escape(summary(price))}</text>')
    return "\n".join([*found, "</svg>", ""])

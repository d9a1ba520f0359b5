"""The plot of bench/placing.py: predicted (lines) and measured (dots) over the cuts."""

from __future__ import annotations

from collections.abc import Sequence

from placing_points import Point

WIDTH, HEIGHT, PANEL = 900, 620, 240
COLOURS = {1: "#2a9d8f", 2: "#457b9d", 4: "#e76f51"}


def draw(points: Sequence[Point]) -> str:
    """A token above, the first token below, as SVG."""
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" {box}>', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    tokens = [(p.ratio, p.cut, p.decode_ms, p.decode_measured_ms) for p in points]
    firsts = [(p.ratio, p.cut, p.first_ms, p.first_measured_ms) for p in points]
    out += _panel(30, "ms a token", tokens)
    out += _panel(330, "ms to the first token", firsts)
    return "\n".join([*out, "</svg>", ""])


def _panel(top: int, title: str, rows: Sequence[tuple[int, int, float, float]]) -> list[str]:
    cuts = sorted({cut for _, cut, _, _ in rows})
    most = 1.05 * max(max(predicted, measured) for _, _, predicted, measured in rows)

    def at(cut: int, ms: float) -> tuple[float, float]:
        return 60 + 780 * (cut - cuts[0]) / max(1, cuts[-1] - cuts[0]), top + PANEL - PANEL * ms / most

    out = [
        f'<text x="60" y="{top - 8}" font-weight="bold">{title}: predicted (lines), measured (dots)</text>',
        f'<path d="M60 {top}V{top + PANEL}H860" fill="none" stroke="#888"/>',
    ]
    for share in (0.25, 0.5, 0.75, 1.0):
        y = top + PANEL + 4 - PANEL * share
        out.append(f'<text x="54" y="{y:.0f}" text-anchor="end">{most * share:.0f}</text>')
    for cut in cuts:
        out.append(f'<text x="{at(cut, 0)[0]:.1f}" y="{top + PANEL + 16}" text-anchor="middle">{cut}</text>')
    for ratio in sorted({row[0] for row in rows}):
        own, colour = [row for row in rows if row[0] == ratio], COLOURS.get(ratio, "#555")
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(cut, predicted) for _, cut, predicted, _ in own))
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for _, cut, _, measured in own:
            x, y = at(cut, measured)
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
    for place, ratio in enumerate(sorted({row[0] for row in rows})):
        colour = COLOURS.get(ratio, "#555")
        out.append(f'<text x="{700 + 50 * place}" y="{top - 8}" fill="{colour}" font-weight="bold">1:{ratio}</text>')
    out.append(f'<text x="450" y="{top + PANEL + 34}" text-anchor="middle">layers on rank 0</text>')
    return out

"""The plots of docs/plots, made from the suite's figures. Pure: results in, pictures by file name out."""

from __future__ import annotations

from collections.abc import Mapping

from results import Figure, Result, number
from svg import Bar, Piece, bars, stack

MARKS = "green: the ideal; red, dashed: the limit that was set; whiskers: quartiles"


def draw_all(runs: Mapping[str, Result]) -> dict[str, str]:
    """Those pictures for which there is anything."""
    made = {
        "speed.svg": speed(runs),
        "drafting.svg": drafting(runs),
        "split-tax.svg": split_tax(runs),
        "four-stages.svg": four_stages(runs),
    }
    return {name: picture for name, picture in made.items() if picture}


def speed(runs: Mapping[str, Result]) -> str:
    """Two stages on a core each against one process on one core."""
    wanted = (
        ("ttft", "times as fast", "first token, 4,096 tokens"),
        ("ttft, 10 Gbit/s", "times as fast", "the same at 10 Gbit/s"),
        ("ttft, 1 Gbit/s", "times as fast", "the same at 1 Gbit/s"),
        ("throughput", "2 rounds / one process", "16 streams, 2 rounds under way"),
        ("throughput", "1 round / one process", "16 streams, 1 round under way"),
        ("throughput, even cut", "2 rounds / one process", "8 streams, 2 rounds, cut in halves"),
    )
    rows = [_bar(label, found) for run, name, label in wanted if (found := _figure(runs, run, name))]
    return bars("Two stages, times as fast as one process on one core", rows, MARKS) if rows else ""


def drafting(runs: Mapping[str, Result]) -> str:
    """Tokens a second with drafts and without."""
    rows = []
    for delay in ("25 ms", "5 ms"):
        for task in ("repeat", "code", "prose"):
            for what, kind in (("with drafts", "bar"), ("without", "other")):
                if found := _figure(runs, f"drafting, {delay}", f"{task}: {what}"):
                    rows.append(_bar(f"{task}, {delay} a hop, {what}", found, kind))
    return bars("N-gram drafts, tokens a second of one stream", rows, "whiskers: quartiles") if rows else ""


def split_tax(runs: Mapping[str, Result]) -> str:
    """A decode step in one process and on two stages, in milliseconds."""
    rows: list[tuple[str, list[Piece]]] = []
    for run, label in (("split tax", "the demo model"), ("split tax, 4 times deeper", "its layers 4 times over")):
        whole = _median(runs, run, "whole, a step")
        cost = _median(runs, run, "what the split costs a step")
        wire = _median(runs, run, "of that the wire: hops, planning, waking")
        if whole is None or cost is None or wire is None:
            continue
        rest = max(0.0, cost - wire)
        rows.append((f"{label}, one process", [Piece("one process", whole, "other")]))
        pieces = [Piece("one process", whole, "other"), Piece("wire", wire, "third"), Piece("the rest", rest, "bar")]
        rows.append((f"two stages: {number(whole + cost)} ms", pieces))
    return stack("A decode step of one stream, milliseconds", rows, "medians") if rows else ""


def four_stages(runs: Mapping[str, Result]) -> str:
    """The makespan of a prompt on four stages, and what it lacks, in shares of what was measured."""
    share = _median(runs, "four stages", "ideal / measured, a core a stage")
    longer = _median(runs, "four stages", "missing: forwards take longer side by side")
    wire = _median(runs, "four stages", "missing: wire, waking, planning")
    if share is None or longer is None or wire is None:
        return ""
    pieces = [
        Piece(f"ideal, a core a stage {100 * share:.0f} %", 100 * share, "other"),
        Piece(f"forwards longer {longer:.0f} %", max(0.0, longer), "bar"),
        Piece(f"wire, waking {wire:.0f} %", max(0.0, wire), "third"),
    ]
    return stack("Four stages of a tiny model: where a prompt's time goes", [("measured", pieces)], "medians")


def _figure(runs: Mapping[str, Result], run: str, name: str) -> Figure | None:
    figures = runs[run].figures if run in runs else ()
    return next((figure for figure in figures if figure.name == name and figure.median is not None), None)


def _median(runs: Mapping[str, Result], run: str, name: str) -> float | None:
    found = _figure(runs, run, name)
    return None if found is None else found.median


def _bar(label: str, figure: Figure, kind: str = "bar") -> Bar:
    assert figure.median is not None
    assert figure.low is not None
    assert figure.high is not None
    text = number(figure.median)
    return Bar(label, figure.median, figure.low, figure.high, figure.ideal, figure.limit, kind, text)

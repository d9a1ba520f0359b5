"""The tables of docs/performance.md and README.md, made from the suite's figures. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from results import Figure, Result, number

BEGIN: Final = "<!-- bench -->"
END: Final = "<!-- /bench -->"

README_ROWS: Final = (
    ("ttft", "times as fast", "first token of a 4,096-token prompt, two stages against one process"),
    ("ttft, 16 parts", "times as fast", "the same in 16 parts instead of 8"),
    ("ttft, 1 Gbit/s", "times as fast", "the same in 8 parts over 1 Gbit/s"),
    ("throughput", "2 rounds / one process", "tokens a second of 16 streams, two stages against one process"),
    ("split tax", "split / whole", "a decode step of one stream, two stages against one process"),
    ("drafting, 25 ms", "repeat: with / without", "n-gram drafts over 25 ms hops, repeating a text"),
    ("wire", "round trip, of bare sockets' speed", "a 20 KiB round trip, of bare sockets' speed"),
)
"""(run, figure, what it says), for the README."""


def performance_table(runs: Mapping[str, Result]) -> str:
    """Every figure that is held against something, run by run, with the command that made it."""
    rows = ["| what | ideal | aim | measured | |", "|---|---|---|---|---|"]
    for name, run in runs.items():
        rows.append(f"| **{name}**: {run.setting} | | | | `{run.command}` |")
        rows += [_row(figure) for figure in run.figures if figure.median is not None and _held(figure)]
        rows += [f"| {note} | | | | |" for note in run.notes]
    return "\n".join(rows)


def readme_table(runs: Mapping[str, Result]) -> str:
    """The few figures that a first reader wants, those that have been measured."""
    rows = ["| | measured | ideal |", "|---|---|---|"]
    for run, name, words in README_ROWS:
        figures = runs[run].figures if run in runs else ()
        for figure in figures:
            if figure.name == name and figure.median is not None:
                rows.append(f"| {words} | {_value(figure)} | {_bound(figure.ideal)} |")
    return "\n".join(rows)


def replaced(text: str, table: str) -> str:
    """The text with the table between its marks; as it was where it has none. Raises ValueError for half a pair."""
    if BEGIN not in text and END not in text:
        return text
    before, mark, rest = text.partition(BEGIN)
    if not mark or END not in rest:
        raise ValueError(f"{BEGIN} and {END} come in pairs")
    return f"{before}{BEGIN}\n{table}\n{rest[rest.index(END) :]}"


def _held(figure: Figure) -> bool:
    return not figure.ideal is figure.aim is figure.limit is None


def _row(figure: Figure) -> str:
    aims = [number(figure.aim)] if figure.aim is not None else []
    if figure.limit is not None:
        aims.append(f"{'at least' if figure.more else 'at most'} {number(figure.limit)}")
    verdict = {True: "met", False: "**missed**", None: ""}[figure.met]
    return f"| {figure.name} | {_bound(figure.ideal)} | {', '.join(aims)} | {_value(figure)} | {verdict} |"


def _bound(value: float | None) -> str:
    return "" if value is None else number(value)


def _value(figure: Figure) -> str:
    spread = f" ({number(figure.low)} to {number(figure.high)})" if figure.count > 1 else ""
    return f"{number(figure.median)}{spread} {figure.unit}".rstrip()

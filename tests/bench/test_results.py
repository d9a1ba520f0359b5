"""Figures: medians, spreads, and what they are held against."""

from __future__ import annotations

import argparse
import json

import pytest

from results import Figure, Result, number


def test_a_figure_is_its_median_with_its_quartiles() -> None:
    few = Figure.of("x", "s", [3.0, 1.0, 2.0])
    assert (few.median, few.low, few.high, few.count) == (2.0, 1.0, 3.0, 3)
    many = Figure.of("x", "s", [float(value) for value in range(101)])
    assert (many.low, many.median, many.high) == (24.5, 50.0, 75.5)
    none = Figure.of("x", "s", [], ideal=2.0, limit=1.0)
    assert (none.median, none.met, none.share) == (None, None, None)


@pytest.mark.parametrize(
    ("value", "more", "aim", "limit", "met"),
    [
        (1.7, True, 1.75, 1.6, True),
        (1.5, True, None, 1.6, False),
        (1.5, True, 1.75, None, False),
        (1.1, False, 1.02, 1.15, True),
        (1.2, False, None, 1.15, False),
        (1.2, False, None, None, None),
    ],
)
def test_met_or_missed(value: float, more: bool, aim: float | None, limit: float | None, met: bool | None) -> None:
    assert Figure.of("x", "", [value], more=more, aim=aim, limit=limit).met is met


def test_the_share_of_the_ideal() -> None:
    assert Figure.of("x", "", [1.6], ideal=2.0).share == pytest.approx(0.8)
    assert Figure.of("x", "ms", [20.0], ideal=15.0, more=False).share == pytest.approx(0.75)


def test_there_and_back_again(capsys: pytest.CaptureFixture[str]) -> None:
    one = Result("ttft", "a model", (Figure.of("a", "s", [1.0, 2.0]),), ("a note",), "a machine")
    one.tell(argparse.Namespace(json=True), {"more": 1})
    said = json.loads(capsys.readouterr().out)
    assert said["more"] == 1
    assert said["command"].startswith("python bench/ttft.py")
    read = Result.from_json(said)
    assert (read.figures, read.notes, read.machine) == (one.figures, one.notes, one.machine)


def test_the_ideal_is_printed_beside_the_measured(capsys: pytest.CaptureFixture[str]) -> None:
    figures = (Figure.of("times as fast", "", [1.7], ideal=16 / 9, aim=1.75, limit=1.6), Figure.of("s", "s", []))
    Result("ttft", "a model", figures, (), "a machine").tell(argparse.Namespace(json=False))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["ttft: a model", "a machine"]
    assert "1.70 (1.70 to 1.70)" in lines[2]
    assert lines[2].endswith("ideal 1.78, aim 1.75, limit 1.60, met")
    assert lines[3].endswith("none: others were busy")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (1234.5, "1,234"), (99.94, "99.9"), (1.777, "1.78"), (0.0123, "0.012"), (-12.0, "-12.00")],
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text

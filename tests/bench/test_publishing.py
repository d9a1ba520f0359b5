"""What the suite makes of its figures: tables between marks, and pictures that are sound XML."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import suite
from plots import draw_all
from results import Figure, Result
from svg import Bar, Piece, bars, stack
from tables import performance_table, readme_table, replaced

RATIO = Figure.of("times as fast", "", [1.70, 1.66, 1.74], ideal=16 / 9, aim=1.75, limit=1.6)
TTFT = Result("ttft", "demo, 8 parts", (Figure.of("2 stages", "s", [2.0]), RATIO), ("3 pairs",), "m", "python x.py")
FOUR = Result(
    "four_stages",
    "tiny",
    (
        Figure.of("ideal / measured, a core a stage", "", [0.61], ideal=1.0),
        Figure.of("missing: forwards take longer side by side", "%", [30.0], ideal=0.0, more=False),
        Figure.of("missing: wire, waking, planning", "%", [9.0], ideal=0.0, more=False),
    ),
)
RUNS = {"ttft": TTFT, "four stages": FOUR}
SVG = "{http://www.w3.org/2000/svg}"


def test_the_table_has_what_is_held_against_something() -> None:
    table = performance_table(RUNS)
    assert "| times as fast | 1.78 | 1.75, at least 1.60 | 1.70 (1.66 to 1.74) | met |" in table
    assert "2 stages" not in table
    assert "`python x.py`" in table
    assert "3 pairs" in table


def test_the_readme_has_those_few_that_were_measured() -> None:
    table = readme_table(RUNS).splitlines()
    assert len(table) == 3
    assert table[2].endswith("| 1.70 (1.66 to 1.74) | 1.78 |")


def test_a_table_takes_the_place_of_the_one_before() -> None:
    text = "a\n<!-- bench -->\nold\n<!-- /bench -->\nb\n"
    once = replaced(text, "new")
    assert once == "a\n<!-- bench -->\nnew\n<!-- /bench -->\nb\n"
    assert replaced(once, "new") == once
    assert replaced("nothing here", "new") == "nothing here"
    with pytest.raises(ValueError, match="pairs"):
        replaced("a\n<!-- bench -->\nold\n", "new")


def test_pictures_are_drawn_of_what_there_is() -> None:
    assert draw_all({}) == {}
    drawn = draw_all(RUNS)
    assert set(drawn) == {"speed.svg", "four-stages.svg"}
    for picture in drawn.values():
        assert ElementTree.fromstring(picture).tag == f"{SVG}svg"


def test_a_bar_is_as_long_as_its_value_and_marks_its_ideal() -> None:
    picture = ElementTree.fromstring(bars("t", [Bar("half <&>", 1.0, 0.9, 1.1, ideal=2.0)], "about", until=2.0))
    bar = next(rect for rect in picture.iter(f"{SVG}rect") if rect.get("class") == "bar")
    ideal = next(line for line in picture.iter(f"{SVG}line") if line.get("class") == "ideal")
    left, width = float(bar.get("x", 0)), float(bar.get("width", 0))
    assert float(ideal.get("x1", 0)) - left == pytest.approx(2 * width, abs=0.2)
    assert "half <&>" in [text.text for text in picture.iter(f"{SVG}text")]


def test_pieces_lie_end_to_end() -> None:
    rows = [("a", [Piece("one", 3.0, "bar"), Piece("two", 1.0, "other")]), ("b", [Piece("one", 2.0, "bar")])]
    picture = ElementTree.fromstring(stack("t", rows, "about"))
    rects = [rect for rect in picture.iter(f"{SVG}rect") if rect.get("height") == "20.0"]
    widths = [float(rect.get("width", 0)) for rect in rects]
    assert widths == pytest.approx([3 * widths[1], widths[1], 2 * widths[1]], abs=0.3)
    assert float(rects[1].get("x", 0)) == pytest.approx(float(rects[0].get("x", 0)) + widths[0], abs=0.2)


def test_runs_are_kept_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that fails leaves what was there; a new one takes its place."""
    (tmp_path / "docs").mkdir()
    for path in (tmp_path / "docs" / "performance.md", tmp_path / "README.md"):
        path.write_text("<!-- bench -->\n<!-- /bench -->\n")
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    monkeypatch.setattr(suite, "RESULTS", tmp_path / "docs" / "bench.json")
    monkeypatch.setattr(suite, "PLOTS", tmp_path / "docs" / "plots")

    def measure(run: suite.Run, *, quick: bool) -> Result:
        if run.name.startswith("ttft,"):
            raise ValueError("no tc here")
        return TTFT

    monkeypatch.setattr(suite, "measure", measure)
    assert suite.main(["--only", "ttft"]) == sum(run.name.startswith("ttft,") for run in suite.RUNS)
    kept = json.loads((tmp_path / "docs" / "bench.json").read_text())
    assert list(kept) == ["ttft"]
    assert kept["ttft"]["when"].endswith("UTC")
    assert (tmp_path / "docs" / "plots" / "speed.svg").exists()
    assert "times as fast" in (tmp_path / "docs" / "performance.md").read_text()
    assert "1.70" in (tmp_path / "README.md").read_text()
    assert suite.main(["--only", "four", "--quick"]) == 0
    assert list(suite.load(suite.RESULTS)) == ["ttft"]


def test_a_bench_that_fails_says_why() -> None:
    with pytest.raises(ValueError, match="no_such_bench"):
        suite.measure(suite.Run("x", "no_such_bench"), quick=True)


def test_every_run_names_a_bench_that_is_there() -> None:
    folder = Path(suite.__file__).parent
    assert all((folder / f"{run.bench}.py").exists() for run in suite.RUNS)
    assert len({run.name for run in suite.RUNS}) == len(suite.RUNS)

"""Every bench, one after the other, and what is made of it: docs/bench.json, the plots in docs/plots and the tables.

    python bench/suite.py [--only ttft --only wire] [--draw] [--quick] [--list]

Wants an idle machine and most of an hour. A run takes the place of an earlier one of the same name and leaves the
others. `--draw` measures nothing and draws what there is; `--quick` measures too little to be quoted, to see that all
runs, and writes nothing. A bench that fails is told at the end and leaves its earlier figures. Tables are written
between the lines `<!-- bench -->` and `<!-- /bench -->` of docs/performance.md and README.md, where they have these.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from plots import draw_all
from results import Result
from tables import performance_table, readme_table, replaced

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "docs" / "bench.json"
PLOTS: Final = ROOT / "docs" / "plots"
LIMIT_S: Final = 1800


@dataclass(frozen=True, slots=True)
class Run:
    """A bench with its arguments; `quick` are those of a run that shows no more than that it runs."""

    name: str
    bench: str
    arguments: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()


_SHORT_PROMPT: Final = ("--tokens", "128", "--part", "32", "--repeats", "1")
_FEW_STREAMS: Final = ("--blocks", "1", "--depth", "8", "--streams", "2")
_SHORT_ENTRY: Final = ("--repeats", "1", "--streams", "2", "--prompt-tokens", "64", "--part", "32")
_SHORT_REPLY: Final = ("--repeats", "1", "--only", "prose")
_ONE_CUT: Final = ("--ratios", "1", "--step", "15", "--passes", "1", "--tokens", "8", "--calibrate-s", "1")
RUNS: Final = (
    Run("wire", "wire", (), ("--repeats", "4")),
    Run("split tax", "split_tax", (), ("--blocks", "2", "--depth", "32")),
    Run("split tax, 4 times deeper", "split_tax", ("--times", "4"), ("--blocks", "2", "--depth", "32")),
    Run("ttft", "ttft", (), _SHORT_PROMPT),
    Run("ttft, 16 parts", "ttft", ("--part", "256"), _SHORT_PROMPT),
    Run("ttft, 1 Gbit/s", "ttft", ("--link", "1gbit"), _SHORT_PROMPT),
    Run("ttft, 1 Gbit/s, 16 parts", "ttft", ("--part", "256", "--link", "1gbit"), _SHORT_PROMPT),
    Run("ttft, 10 Gbit/s", "ttft", ("--link", "10gbit"), _SHORT_PROMPT),
    Run("throughput", "throughput", ("--streams", "16", "--cuts", "place"), _FEW_STREAMS),
    Run("throughput, 8 streams", "throughput", ("--cuts", "place"), _FEW_STREAMS),
    Run("throughput, even cut", "throughput", (), _FEW_STREAMS),
    Run("serving", "serving", ("--cuts", "place"), _SHORT_ENTRY),
    Run("drafting, 25 ms", "drafting", ("--one-way-ms", "25"), _SHORT_REPLY),
    Run("drafting, 5 ms", "drafting", ("--one-way-ms", "5"), _SHORT_REPLY),
    Run("four stages", "four_stages", (), ("--repeats", "1", "--part", "32", "--parts", "4", "--width", "256")),
    Run("placing", "placing", ("--ratios", "1,2,4"), _ONE_CUT),
    Run("placing, clockwork", "placing", ("--clockwork", "--passes", "1"), _ONE_CUT),
    Run("closed loop", "closed_loop", (), ("--tokens", "16", "--repeats", "1")),
    Run("placing, searches", "placing", ("--search",), ()),
)


def measure(run: Run, *, quick: bool) -> Result:
    """Run one bench in a process of its own. Raises ValueError with its last words where it fails."""
    words = [*run.arguments, *(run.quick if quick else ())]
    command = [sys.executable, str(Path(__file__).parent / f"{run.bench}.py"), *words, "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"it took more than {LIMIT_S} s") from None
    said = done.stdout.strip().splitlines()
    if done.returncode or not said:
        raise ValueError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    return Result.from_json(json.loads(said[-1]))


def load(path: Path) -> dict[str, dict[str, Any]]:
    """The runs on record, by name."""
    if not path.exists():
        return {}
    runs: dict[str, dict[str, Any]] = json.loads(path.read_text())
    return {run.name: runs[run.name] for run in RUNS if run.name in runs}


def write(path: Path, runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Put them on record, in the suite's order."""
    ordered = {run.name: runs[run.name] for run in RUNS if run.name in runs}
    path.write_text(json.dumps(ordered, indent=1) + "\n")


def publish(runs: Mapping[str, Result]) -> list[Path]:
    """Draw the plots and write the tables; the files that were written."""
    PLOTS.mkdir(parents=True, exist_ok=True)
    written = []
    for name, picture in draw_all(runs).items():
        (PLOTS / name).write_text(picture)
        written.append(PLOTS / name)
    tables = ((ROOT / "docs" / "performance.md", performance_table(runs)), (ROOT / "README.md", readme_table(runs)))
    for path, table in tables:
        text = path.read_text()
        new = replaced(text, table)
        if new != text:
            path.write_text(new)
            written.append(path)
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, keep, draw; how many benches failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", help="runs whose name begins so")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--quick", action="store_true", help="see that all runs; write nothing")
    parser.add_argument("--list", action="store_true", help="the runs' names")
    args = parser.parse_args(arguments)
    chosen = [run for run in RUNS if not args.only or any(run.name.startswith(name) for name in args.only)]
    if not chosen:
        parser.error(f"only: no run is called {', '.join(args.only)}; --list names them")
    if args.list:
        print("\n".join(run.name for run in chosen))
        return 0
    runs, failed = load(RESULTS), 0
    for run in () if args.draw else chosen:
        print(f"== {run.name}", flush=True)
        try:
            found = measure(run, quick=args.quick)
        except ValueError as error:
            failed += 1
            print(f"   failed: {error}", flush=True)
            continue
        print("\n".join(found.lines()), flush=True)
        if not args.quick:
            runs[run.name] = {**found.as_json(), "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"}
            write(RESULTS, runs)
    if not args.quick:
        for path in publish({name: Result.from_json(value) for name, value in runs.items()}):
            print(path.relative_to(ROOT))
    return failed


if __name__ == "__main__":
    sys.exit(main())

"""What clients see when a Ray cluster loses a node: seconds to the error, and what becomes of everybody else.

Four hosts in network namespaces with a Ray node of one CPU each, two replicas of two ranks, a tiny model, two running
streams: the cases of tests/launch/ray_cases.py, which also hold what is said and what is left behind.

    python bench/ray_loss.py [--json]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from namespaces import prefix  # noqa: E402
from results import Figure, Result  # noqa: E402

CASES: Final = "tests/launch/ray_cases.py"
TOLD: Final = re.compile(r"^\.?([^:\n]+): (.+)$", re.M)
SECONDS: Final = re.compile(r"([a-zA-Z ,\d]*?) ([\d.]+) s\b")
LIMIT_S: Final = 600.0


def play() -> list[tuple[str, float]]:
    """All cases on one cluster: what was measured, and seconds."""
    command = [*prefix(), sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", CASES]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    if done.returncode:
        raise SystemExit(done.stdout[-6000:])
    found = []
    for what, said in TOLD.findall(done.stdout):
        found += [(f"{what}: {words.strip(' ,')}", float(seconds)) for words, seconds in SECONDS.findall(said)]
    return found


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=1, help="times that the cases are played")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = options.parse_args()
    if not prefix():
        raise SystemExit("namespaces cannot be made here (unshare, ip)")
    seen: dict[str, list[float]] = {}
    for _ in range(arguments.repeats):
        for what, seconds in play():
            seen.setdefault(what, []).append(seconds)
    figures = tuple(Figure.of(what, "s", times, more=False) for what, times in seen.items())
    Result("ray_loss", "four hosts, two replicas of two ranks, two running streams", figures).tell(arguments)


if __name__ == "__main__":
    main()

"""What clients see when a cluster loses ranks and nodes: seconds to the error, and seconds until it serves again.

Three hosts in network namespaces, each with one `ropeway up` or `ropeway node`, a tiny model over all three, one client
with a running stream: the cases of tests/cluster/hosts_cases.py, which also hold what is said and what is left behind.

    python bench/churn.py [CASE ...] [--repeats 3] [--json]
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

CASES: Final = (
    "ranks_killed_and_stopped",
    "an_agent_killed_and_come_back",
    "an_agent_stopped",
    "a_cable_pulled",
    "two_at_once_and_no_room",
    "far_apart",
)
TOLD: Final = re.compile(r"^\.?(.+): the client heard of it after ([\d.]+) s, serving again after ([\d.]+) s", re.M)
LIMIT_S: Final = 240.0


def play(case: str) -> list[tuple[str, float, float]]:
    """One case: what was lost, seconds to the error, seconds until it serves again."""
    test = f"tests/cluster/hosts_cases.py::test_{case}"
    command = [*prefix(), sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", test]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    if done.returncode:
        raise SystemExit(done.stdout[-3000:])
    return [(what, float(told), float(again)) for what, told, again in TOLD.findall(done.stdout)]


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("cases", nargs="*", metavar="CASE", help=f"all of them, unless named: {', '.join(CASES)}")
    options.add_argument("--repeats", type=int, default=3, help="times that each case is played")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = options.parse_args()
    if not prefix():
        raise SystemExit("namespaces cannot be made here (unshare, ip)")
    seen: dict[str, list[tuple[float, float]]] = {}
    for _ in range(arguments.repeats):
        for case in arguments.cases or CASES:
            for what, told, again in play(case):
                seen.setdefault(what, []).append((told, again))
    figures = []
    for what, times in seen.items():
        figures.append(Figure.of(f"{what}: error", "s", [told for told, _ in times], more=False))
        figures.append(Figure.of(f"{what}: serving again", "s", [again for _, again in times], more=False))
    Result("churn", "three hosts, six layers over three ranks, one running stream", tuple(figures)).tell(arguments)


if __name__ == "__main__":
    main()

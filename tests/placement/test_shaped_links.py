"""Links of a set width, probed for real in a namespace of their own: they change the choice for prompts, not decode."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from namespaces import LIMIT_S, needed

TESTS = Path(__file__).parents[1]
SHAPE = "tc qdisc add dev lo root tbf rate {rate} burst 131072 limit {limit}"
PROGRAM = """
import json
from concurrent.futures import ThreadPoolExecutor
from placement.test_cost import model, uniform
from ropeway.placement.facts import Fleet
from ropeway.placement.probe import probe_layout, probe_links
from ropeway.placement.search import search
from ropeway.placement.tables import Problem
from ropeway.placement.wanted import Goal, Wanted
from transport.rings import place

with place(probe_layout(2)) as here, ThreadPoolExecutor(2) as pool:
    configs = [here.config(rank, listen="") for rank in range(2)]
    link = list(pool.map(lambda config: probe_links(config, 30.0), configs))[0][0].link
fleet = Fleet((uniform("fast", 40, 600), uniform("slow", 60, 600)), link=link)
found = {"bits_per_s": link.bytes_per_s * 8}
for name, goal in (("prompt", Goal(0, 1)), ("decode", Goal(1))):
    wanted = Wanted(context=4096, prompt=4096, part=512)
    layout = search(Problem(model(row_bytes=20 << 10), fleet, wanted, goal)).layout
    found[name] = [spot.end - spot.first for spot in layout]
print(json.dumps(found))
"""


def found(rate: str, bits_per_s: float) -> dict[str, Any]:
    """What is chosen behind a loopback that is as wide."""
    inside = [*needed(), "sh", "-c", SHAPE.format(rate=rate, limit=131072 + round(bits_per_s / 80)) + ' && exec "$@"']
    if shutil.which("tc") is None or subprocess.run([*inside, "sh", "true"], check=False).returncode:
        pytest.skip("no shaped links here (tc, tbf)")
    done = subprocess.run(
        [*inside, "sh", sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def test_a_narrow_link_changes_the_choice_for_prompts_and_not_for_decode() -> None:
    # A part of 512 rows of 20 KiB is 84 Mbit: 84 ms at 1 Gbit/s, 839 ms at 100 Mbit/s. Half of the layers take 300 ms,
    # so a split pays for prompts up to a link of about 200 Mbit/s, and decode is fastest on the faster machine alone.
    wide, narrow = found("1gbit", 1e9), found("100mbit", 1e8)
    assert narrow["bits_per_s"] < 1.1e8
    assert wide["bits_per_s"] < 1.1e9
    assert wide["prompt"] == [30, 30]
    assert narrow["prompt"] == [60]
    assert wide["decode"] == narrow["decode"] == [60]

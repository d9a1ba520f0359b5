"""A loopback of a set width, in a network namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from link import bits_per_s

BENCH = Path(__file__).parents[2] / "bench"
PROGRAM = """
import subprocess, sys
sys.path.insert(0, {bench!r})
import link
link.inside({rate!r})
print(sys.argv[1:], subprocess.run(["tc", "qdisc", "show", "dev", "lo"], capture_output=True, text=True).stdout)
"""


def may_shape() -> bool:
    tools = all(shutil.which(tool) for tool in ("unshare", "tc", "ip"))
    own = ["--net"] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["--net", "--map-root-user"]
    shape = "ip link set lo up && tc qdisc add dev lo root tbf rate 1gbit burst 131072 limit 1000000"
    return (
        tools and not subprocess.run(["unshare", *own, "sh", "-c", shape], capture_output=True, check=False).returncode
    )


@pytest.mark.parametrize(("rate", "bits"), [("1gbit", 1e9), ("2.5gbit", 2.5e9), ("100mbit", 1e8), ("64kbit", 64e3)])
def test_rates(rate: str, bits: float) -> None:
    assert bits_per_s(rate) == pytest.approx(bits)


@pytest.mark.parametrize("rate", ["", "1", "gbit", "1 gbit", "1gb", "-1gbit"])
def test_other_words_are_no_rates(rate: str) -> None:
    with pytest.raises(ValueError, match="link: "):
        bits_per_s(rate)


@pytest.mark.skipif(not may_shape(), reason="no shaped network namespaces here (unshare, ip, tc tbf)")
def test_a_program_goes_on_behind_a_shaped_loopback(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(bench=str(BENCH), rate="1gbit"))
    done = subprocess.run([sys.executable, str(program), "--x", "y"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['--x', 'y'] qdisc tbf")
    assert "rate 1Gbit" in done.stdout
    outside = subprocess.run(["tc", "qdisc", "show", "dev", "lo"], capture_output=True, text=True, check=False)
    assert "tbf" not in outside.stdout

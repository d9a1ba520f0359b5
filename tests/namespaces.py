"""Namespaces for tests: a process that sees nothing but its own lo and its own processes, all of which end with it."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIMIT_S = 110.0


@functools.cache
def prefix() -> tuple[str, ...]:
    """What a command begins with to run in a namespace of its own; nothing where this machine does not let us."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return ()
    for flags in ((), ("-r",)):
        alone = ("-n", "-m", "-p", "--fork", "--kill-child", "--mount-proc")
        command = ("unshare", *flags, *alone, "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return ()


def needed() -> tuple[str, ...]:
    """As `prefix`; skips the test where there are no namespaces."""
    command = prefix()
    if not command:
        pytest.skip("network namespaces cannot be made here (unshare -n, ip)")
    return command


def pytest_in_namespace(*args: str, limit_s: float = LIMIT_S) -> int:
    """Run pytest in a namespace, for `limit_s` at most; how many tests have passed. None may fail."""
    command = [*needed(), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]
    with tempfile.TemporaryDirectory(prefix="rw", dir="/tmp") as scratch:  # short: paths of sockets lie in it
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "TMPDIR": scratch}
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False, env=environment
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None, done.stdout
    return int(found[1])

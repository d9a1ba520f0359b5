"""Running the `ropeway` command as a user would, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

LIMIT_S = 100


def ropeway(*args: str, expect: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """The finished command; its exit status is `expect`."""
    done = subprocess.run(
        [sys.executable, "-m", "ropeway", *args],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == expect, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def ropeway_json(*args: str, expect: int = 0) -> dict[str, Any]:
    """The one JSON object that the command prints."""
    lines = ropeway(*args, "--json", expect=expect).stdout.splitlines()
    assert len(lines) == 1
    value: dict[str, Any] = json.loads(lines[0])
    return value

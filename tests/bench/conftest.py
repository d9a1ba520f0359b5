"""The benches are programs, not a package: their folder is on the path while their tests run."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

"""Commands and configurations of workers for tests."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from ropeway.engines.base import EngineConfig
from ropeway.types import Boundary, RowDtype

HERE = Path(__file__).parent
STUB = shlex.join([sys.executable, "-m", "ropeway.engines.worker.pp_tinygrad_worker", "--stub"])
HIDDEN, VOCABULARY, LAYERS = 16, 32, 8


def bad(*arguments: str) -> str:
    """The command of a worker that misbehaves so."""
    return shlex.join([sys.executable, "-S", str(HERE / "bad_worker.py"), *arguments])


def config(
    command: str = STUB,
    first: int = 2,
    end: int = 6,
    *,
    embed: bool = False,
    head: bool = False,
    parallel: int = 1,
    row_dtype: RowDtype = RowDtype.F32,
) -> EngineConfig:
    """A stage of the stub's 8 layers."""
    return EngineConfig(
        "", first, end, embed, head, context=64, parallel=parallel, chunk=16,
        boundary=Boundary(HIDDEN, 1, row_dtype), worker_cmd=command, rank=1, world=3,
    )  # fmt: skip

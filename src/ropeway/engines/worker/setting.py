"""What a worker is told at its start, in its environment (docs/worker.md). Standard library and values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ropeway.engines.base import EngineConfig
from ropeway.types import RowDtype

EXIT_BAD: Final = 2
"""The exit status for a bad environment or a failed load."""


class Role(Enum):
    """Where in the model a worker's layers are."""

    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Setting:
    """What the environment says (docs/worker.md)."""

    stage: int
    stages: int
    role: Role
    model: str
    first: int | None
    end: int | None
    context: int
    streams: int
    chunk: int
    threads: int
    row_dtype: RowDtype
    head: bool
    """Whether to load the norm and the output matrix."""

    def layer_range(self, total: int) -> tuple[int, int]:
        """The layers: as told, else total // stages each, the last stage taking what is left. Raises ValueError."""
        each = total // self.stages
        if each < 1:
            raise ValueError(f"NUM_STAGES: {self.stages} for {total} layers")
        first = self.stage * each if self.first is None else self.first
        last = self.stage == self.stages - 1
        end = (total if last else first + each) if self.end is None else self.end
        if not 0 <= first < end <= total:
            raise ValueError(f"LAYER_FIRST: {first}..{end} of {total} layers")
        if self.role is Role.LAST and end != total:
            raise ValueError(f"LAYER_END: {end} of {total} layers for the last worker")
        return first, end

    def config(self, total: int) -> EngineConfig:
        """How an engine of ours loads those layers. Raises ValueError."""
        first, end = self.layer_range(total)
        return EngineConfig(
            self.model,
            first,
            end,
            embed=self.role is Role.FIRST,
            head=self.head,
            context=self.context,
            parallel=self.streams,
            chunk=self.chunk,
            threads=self.threads,
        )


def read_setting(environ: Mapping[str, str]) -> Setting:
    """Judge the environment. Raises ValueError, naming the variable."""
    stages = _variable(environ, "NUM_STAGES", 1)
    stage = _variable(environ, "STAGE", 0, stages - 1)
    named = environ.get("ROLE", "")
    if named:
        try:
            role = Role(named)
        except ValueError:
            raise ValueError(f"ROLE: {named!r} is none of first, middle, last") from None
    else:
        role = Role.FIRST if stage == 0 else Role.LAST if stage == stages - 1 else Role.MIDDLE
    label = environ.get("ROW_DTYPE", "bf16")
    dtypes = [dtype for dtype in RowDtype if dtype.label == label]
    if not dtypes:
        raise ValueError(f"ROW_DTYPE: {label!r} is none of f32, f16, bf16")
    return Setting(
        stage,
        stages,
        role,
        environ.get("MODEL", ""),
        _variable(environ, "LAYER_FIRST", 0) if "LAYER_FIRST" in environ else None,
        _variable(environ, "LAYER_END", 1) if "LAYER_END" in environ else None,
        _variable(environ, "CONTEXT", 1) if "CONTEXT" in environ else 4096,
        _variable(environ, "STREAMS", 1) if "STREAMS" in environ else 1,
        _variable(environ, "CHUNK", 1) if "CHUNK" in environ else 512,
        _variable(environ, "THREADS", 0) if "THREADS" in environ else 0,
        dtypes[0],
        role is Role.LAST or (role is Role.FIRST and environ.get("HEAD", "0") == "1"),
    )


def _variable(environ: Mapping[str, str], name: str, least: int, most: int = 1 << 31) -> int:
    text = environ.get(name, "")
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
        raise ValueError(f"{name}: {text!r} is not a number from {least} to {most}")
    return int(text)

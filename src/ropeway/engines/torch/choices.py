"""What a stage computes in and on: as it was asked for, or what suits the checkpoint and the machine."""

from __future__ import annotations

import torch

from ropeway.engines.base import EngineConfig, EngineError
from ropeway.types import Backend, RowDtype


def compute_dtype(config: EngineConfig, model: object) -> RowDtype:
    """What the layers compute in: as asked for, else the checkpoint's own; bf16 for a GGUF, which has none."""
    label = config.dtype or {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}.get(
        str(getattr(model, "dtype", None)).removeprefix("torch."), ""
    )
    if not label:
        return RowDtype.BF16
    found = [dtype for dtype in RowDtype if dtype.label == label]
    if not found:
        raise EngineError(f"dtype: {label!r} is none of {', '.join(dtype.label for dtype in RowDtype)}")
    return found[0]


def check_invariant(device: torch.device, dtype: RowDtype) -> None:
    """Refuse what `--invariant` is known not to hold for, or not known of (bench/torch_bits.py)."""
    if device.type != "cpu":
        raise EngineError(f"invariant: it is known of the CPU alone, not of {device.type}; leave it out")
    if dtype is RowDtype.F32:
        raise EngineError("invariant: products in f32 depend on how many rows are multiplied; use --dtype bf16")


def device_of(name: str) -> torch.device:
    """As named, else CUDA (or ROCm), MPS, the CPU: the first that is there. Raises EngineError."""
    if name:
        try:
            return torch.device(name)
        except RuntimeError as error:
            raise EngineError(f"device: {name!r} is none that torch knows") from error
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps") if torch.backends.mps.is_available() else torch.device("cpu")


def backend_of(device: torch.device) -> Backend:
    """A device, as the wire calls it."""
    match device.type:
        case "cpu":
            return Backend.CPU
        case "cuda":
            return Backend.ROCM if torch.version.hip else Backend.CUDA
        case "mps":
            return Backend.METAL
        case _:
            return Backend.OTHER

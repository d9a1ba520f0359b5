"""Rows at the edge of a stage: bytes, plane after plane, to tensors on the device and back, by pinned memory there."""

from __future__ import annotations

from typing import Final, Protocol

import torch
from torch import Tensor

from ropeway.types import Boundary, RowDtype

TORCH: Final = {RowDtype.F32: torch.float32, RowDtype.F16: torch.float16, RowDtype.BF16: torch.bfloat16}


class Staging(Protocol):
    """Memory of the host that a device copies from and to by itself."""

    def make(self, size: int) -> Tensor:
        """So many bytes of it."""
        ...

    def wait(self) -> None:
        """Until the device has done all that it was asked for."""
        ...


class Pinned:
    """Page-locked memory for CUDA."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def make(self, size: int) -> Tensor:
        """As `Staging`."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def wait(self) -> None:
        """As `Staging`."""
        torch.cuda.current_stream(self._device).synchronize()


class Edge:
    """Rows of `boundary` outside, of `dtype` on `device` inside; converted here where the two differ."""

    def __init__(
        self, boundary: Boundary, dtype: torch.dtype, device: torch.device, staging: Staging | None = None
    ) -> None:
        self._boundary, self._dtype, self._device = boundary, dtype, device
        self._staging = staging
        self._came: Tensor | None = None
        self._leaves: Tensor | None = None
        self._copying = False

    def read(self, rows: memoryview, count: int) -> Tensor:
        """Rows as they came to [1, count, planes * width]."""
        boundary = self._boundary
        if not count:
            return torch.empty((1, 0, boundary.planes * boundary.hidden), dtype=self._dtype, device=self._device)
        size = count * boundary.row_bytes()
        raw = self._taken(rows[:size]).view(TORCH[boundary.row_dtype])
        planes = raw.view(boundary.planes, count, boundary.hidden).permute(1, 0, 2).reshape(1, count, -1)
        return planes.to(self._device, self._dtype)

    def write(self, rows: Tensor, out: memoryview) -> None:
        """The other way round; the bytes are all there when it returns."""
        boundary = self._boundary
        if not rows.shape[1]:
            return
        planes = rows[0].view(-1, boundary.planes, boundary.hidden).permute(1, 0, 2)
        target = torch.frombuffer(out, dtype=TORCH[boundary.row_dtype])
        if self._staging is None:
            target.view(planes.shape).copy_(planes)
            return
        self._leaves = self._room(self._leaves, target.nbytes)
        staged = self._leaves[: target.nbytes].view(target.dtype)
        staged.view(planes.shape).copy_(planes.to(target.dtype).contiguous(), non_blocking=True)
        self._staging.wait()
        self._copying = False
        target.copy_(staged)

    def _taken(self, rows: memoryview) -> Tensor:
        """The bytes, on the device where that is asked for by a copy of its own."""
        if self._staging is None:
            return torch.frombuffer(bytearray(rows), dtype=torch.uint8)
        if self._copying:
            self._staging.wait()  # what came before may still be on its way
        self._came = self._room(self._came, len(rows))
        staged = self._came[: len(rows)]
        staged.numpy()[:] = rows
        self._copying = True
        return staged.to(self._device, non_blocking=True)

    def _room(self, held: Tensor | None, size: int) -> Tensor:
        assert self._staging is not None
        return held if held is not None and held.nbytes >= size else self._staging.make(size)

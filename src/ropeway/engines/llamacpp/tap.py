"""Reading a layer's output rows where llama.cpp does not keep them: the scheduler's eval callback.

For the model's last layer, whose output has no layer behind it, and for architectures whose graphs keep no layer
inputs. The callback's `ask` phase enters Python once a graph node, so the tensor's place among the nodes is learned
once a shape and only counted afterwards.
"""

from __future__ import annotations

from typing import Any

from ropeway.engines.base import EngineError
from ropeway.engines.llamacpp.binding import LlamaCpp


class OutputTap:
    """Copies the tensor called `name` out of every graph that a context runs."""

    def __init__(self, llama: LlamaCpp, name: str) -> None:
        self._ffi, self._lib = llama.ffi, llama.lib
        self._name = name.encode()
        self._places: dict[tuple[int, int], int] = {}
        self._shape = (0, 0)
        self._node = self._place = -1
        self._out: Any = None
        self._bytes = 0
        self._hits = 0
        self.callback = llama.ffi.callback("bool(void *, bool, void *)", self._visit, error=False)

    def arm(self, shape: tuple[int, int], out: memoryview) -> None:
        """Make ready for one graph of `shape` (rows in, bytes out); the tensor goes to `out`."""
        self._shape, self._out, self._bytes = shape, out, len(out)
        self._node, self._hits = -1, 0
        self._place = self._places.get(shape, -1)

    def disarm(self) -> None:
        """End the decode; raises EngineError unless the tensor was seen just once."""
        self._out = None
        if self._hits != 1:
            self._places.pop(self._shape, None)
            raise EngineError(
                f"llama.cpp's graph had {self._hits} tensors {self._name.decode()!r} where one was expected"
            )

    def _visit(self, tensor: Any, ask: bool, _: Any) -> bool:
        if ask:
            self._node += 1
            if self._place >= 0:
                return self._node == self._place
            if self._ffi.string(self._lib.ggml_get_name(tensor)) != self._name:
                return False
            self._places[self._shape] = self._place = self._node
            return True
        if self._out is not None and self._ffi.string(self._lib.ggml_get_name(tensor)) == self._name:
            if self._bytes:
                self._lib.ggml_backend_tensor_get(tensor, self._ffi.from_buffer(self._out), 0, self._bytes)
            self._hits += 1
        return True

"""One slot's caches: rows through the layers, rollback, and states as bytes.

Attention caches are cut. Recurrent states, and windows that have turned round, cannot be: what they were before the
last forward is kept, and a rollback runs the rows that stay once more. What they were at the last multiple of `GRAIN`
positions is kept too, since a kept prompt is resumed there.
"""

from __future__ import annotations

import json
from typing import Any, Final

import mlx.core as mx
import numpy as np

from ropeway.engines.base import EngineError
from ropeway.engines.mlx.model import RangeModel

GRAIN: Final = 64
"""As engines/torch/slot.py has it: both may be stages of one ring."""
_MAGIC: Final = b"MLX1"


class Stream:
    """A stream of one range. `length` positions are held."""

    def __init__(self, model: RangeModel) -> None:
        self._model = model
        self._caches = model.make_caches()
        self._start = 0
        self._before: list[Any] = []
        """States of the caches that cannot be cut, as they were at `_start`."""
        self._aligned: tuple[int, list[Any]] = (0, [])
        """A multiple of `GRAIN` positions, and the states of the same caches there."""
        self._rows: Any = None
        """The rows of the last forward, where a rollback may have to run them again."""
        self.length = 0

    def forward(self, rows: Any) -> Any:
        """Rows [n, hidden] at `length`."""
        fixed = [cache for cache in self._caches if not cache.is_trimmable()]
        self._start, self._before = self.length, [_copied(cache.state) for cache in fixed]
        self._rows = rows if fixed else None
        if fixed and self.length % GRAIN == 0:
            self._aligned = self.length, self._before
        done = self._model.forward(rows, self._caches)
        mx.eval(done, [_arrays(cache.state) for cache in self._caches])
        self.length += rows.shape[0]
        return done

    def keep(self, length: int) -> None:
        """Forget the positions from `length` on. Raises EngineError where a state cannot go back so far."""
        if length >= self.length:
            return
        if all(cache.is_trimmable() for cache in self._caches) and self._rows is None:
            self._cut(self._caches, length)
            self.length = length
            return
        if length < self._start or self._rows is None:
            if length != self._aligned[0] or not length:
                raise EngineError(f"a recurrent state cannot go back to position {length}, before its last round")
            self._start, self._before, self._rows = length, self._aligned[1], None
            self._rewind()
            return
        rows = self._rows[: length - self._start]
        self._rewind()
        if length > self._start:
            self.forward(rows)

    def _rewind(self) -> None:
        """Back to where the last forward began."""
        before = iter(self._before)
        count = len(self._before)
        fixed = [cache for cache in self._caches if not cache.is_trimmable()]
        if len(fixed) != count:
            raise EngineError("a window that has just turned round cannot go back")
        self._cut([cache for cache in self._caches if cache.is_trimmable()], self._start)
        for cache in fixed:
            cache.state = next(before)
        self.length = self._start

    def _cut(self, caches: list[Any], length: int) -> None:
        for cache in caches:
            cache.trim(self.length - length)

    def save(self) -> bytes:
        """Every cache's state: arrays as they are, and what else there is as JSON."""
        leaves: list[bytes] = []
        shapes = [_described(_cut_state(cache), leaves) for cache in self._caches]
        at, states = self._aligned
        aligned = [at, _described(states, leaves)]
        head = json.dumps({"length": self.length, "states": shapes, "aligned": aligned}).encode()
        return _MAGIC + len(head).to_bytes(8, "little") + head + b"".join(leaves)

    def restore(self, state: bytes) -> None:
        """Put a saved state into this empty stream. Raises EngineError for one of another model."""
        try:
            if state[:4] != _MAGIC:
                raise ValueError("no state of this engine")
            stop = 12 + int.from_bytes(state[4:12], "little")
            head = json.loads(state[12:stop])
            reader = _Reader(memoryview(state)[stop:])
            states = [reader.rebuilt(value) for value in head["states"]]
            at, aligned = head["aligned"]
            self._aligned = int(at), reader.rebuilt(aligned)
            for cache, value in zip(self._caches, states, strict=True):
                cache.state = value
            self.length = int(head["length"])
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise EngineError(f"mlx refused the saved state: {error}") from None
        self._rows, self._before, self._start = None, [], self.length


def _cut_state(cache: Any) -> Any:
    """A cache's state without the room that it has for more positions."""
    if type(cache).__name__ == "KVCache" and cache.keys is not None:
        keys, values = cache.keys_and_values()
        return keys, values, cache.offset
    return cache.state


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, mx.array):
        return [value]
    if isinstance(value, (list, tuple)):
        return [array for item in value for array in _arrays(item)]
    return []


def _copied(value: Any) -> Any:
    """The same state in arrays of their own: mlx writes into an array by replacing what its object stands for."""
    if isinstance(value, mx.array):
        return mx.array(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(item) for item in value)
    return value


def _described(value: Any, leaves: list[bytes]) -> Any:
    """JSON for a state; the arrays' bytes are added to `leaves`."""
    if isinstance(value, mx.array):
        flat = mx.contiguous(value).reshape(-1).view(mx.uint8)
        leaves.append(np.array(flat).tobytes())
        return {"dtype": str(value.dtype).removeprefix("mlx.core."), "shape": list(value.shape)}
    if isinstance(value, (list, tuple)):
        return [_described(item, leaves) for item in value]
    return value


class _Reader:
    """Takes arrays off the front of a state's bytes."""

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def rebuilt(self, value: Any) -> Any:
        """What `_described` was given."""
        if isinstance(value, dict):
            dtype = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}[value["dtype"]]
            shape = tuple(map(int, value["shape"]))
            size = int(np.prod(shape)) * dtype.size
            if size > len(self._data):
                raise ValueError(f"{len(self._data)} bytes for an array of {size}")
            raw, self._data = self._data[:size], self._data[size:]
            if not size:
                return mx.zeros(shape, dtype)
            return mx.array(np.frombuffer(raw, np.uint8)).view(dtype).reshape(shape)
        if isinstance(value, list):
            return [self.rebuilt(item) for item in value]
        return value

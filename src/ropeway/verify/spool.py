"""Rows of logits in a temporary file: a long prompt's are more than memory should hold."""

from __future__ import annotations

import tempfile
import weakref
from typing import IO

import numpy as np

from ropeway.engines.base import Logits
from ropeway.verify.compare import Row


class Spool:
    """Rows of one width, written once and read back by number. The file goes with the object."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._finalizer = weakref.finalize(self, self._file.close)
        self._width = 0
        self.rows = 0

    def put(self, logits: Logits) -> int:
        """Keep rows [n, vocabulary]; the number of the first of them."""
        assert self._width in (0, logits.shape[1])
        self._width = logits.shape[1]
        self._file.seek(self.rows * self._width * 4)
        self._file.write(np.ascontiguousarray(logits, np.float32).data)
        self.rows += len(logits)
        return self.rows - len(logits)

    def get(self, number: int) -> Row:
        """One row."""
        self._file.seek(number * self._width * 4)
        return np.frombuffer(self._file.read(self._width * 4), np.float32)

    def close(self) -> None:
        """Let the file go."""
        self._finalizer()

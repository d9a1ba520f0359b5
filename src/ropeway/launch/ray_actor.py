"""What runs on a Ray node: one rank, as the very command that a person would type there, on a tether. Needs no Ray."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import Final

TAIL_LINES: Final = 20


class RankHost:
    """One rank's process. Made on its node by Ray; `address` is the node's own, as the others reach it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._reserved: list[socket.socket] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="ropeway-")
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    def reserve(self) -> str:
        """An address on this node that is free now: HOST:PORT."""
        sock = socket.create_server((self._address, 0))
        self._reserved.append(sock)
        return f"{self._address}:{sock.getsockname()[1]}"

    def start(self, arguments: list[str], secrets: dict[str, str]) -> None:
        """Run `ropeway ARGUMENTS`. `secrets` are put into files of mode 0600, whose names stand for `{NAME}`."""
        paths = {}
        for name, text in secrets.items():
            path = Path(self._directory.name) / name
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(text + "\n")
            paths[name] = str(path)
        words = [paths.get(word.strip("{}"), word) if word.startswith("{") else word for word in arguments]
        for sock in self._reserved:
            sock.close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ropeway.launch.tether", sys.executable, "-m", "ropeway", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def wait(self) -> tuple[int, str]:
        """Its exit status, once it has ended, and what it said last."""
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._tail.append(line.decode(errors="replace").strip())
        return self._process.wait(), next((line for line in reversed(self._tail) if line), "")

    def stop(self) -> None:
        """End it: its tether's end is enough."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

"""What runs on a Ray node: one rank, as the very command that a person would type there, on a tether. Needs no Ray."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from typing import IO, Final

TAIL_LINES: Final = 20
LINE_BYTES: Final = 4096
LEASE_S: Final = 60.0
"""How long a rank lives on without a word from whoever placed it: a node that is cut off from the rest hears nothing
of Ray either."""


class RankHost:
    """One rank's process. Made on its node by Ray; `address` is the node's own, as the others reach it."""

    def __init__(self, address: str, lease_s: float = LEASE_S) -> None:
        self._address = address
        self._lease_s = lease_s
        self._held_at = time.monotonic()
        self._ended = threading.Event()
        self._reserved: list[socket.socket] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    def reserve(self) -> str:
        """An address on this node that is free now: HOST:PORT."""
        sock = socket.create_server((self._address, 0))
        self._reserved.append(sock)
        return f"{self._address}:{sock.getsockname()[1]}"

    def start(self, arguments: list[str], secrets: dict[str, str]) -> None:
        """Run `ropeway ARGUMENTS`. `{NAME}` stands for a file with what `secrets` has of that name.

        Such a file has no name of its own, so nobody else can open it, and nothing of it is left however we end.
        """
        with contextlib.ExitStack() as stack:
            files = {name: stack.enter_context(_file_of(text)) for name, text in secrets.items()}
            paths = {f"{{{name}}}": f"/dev/fd/{file.fileno()}" for name, file in files.items()}
            for sock in self._reserved:
                sock.close()
            command = (sys.executable, "-m", "ropeway", *(paths.get(word, word) for word in arguments))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ropeway.launch.tether", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[file.fileno() for file in files.values()],
            )
        self.hold()
        threading.Thread(target=self._watch_lease, name="lease", daemon=True).start()

    def hold(self) -> None:
        """Whoever placed this rank is still there."""
        self._held_at = time.monotonic()

    def _watch_lease(self) -> None:
        while not self._ended.wait(self._lease_s / 10):
            if time.monotonic() - self._held_at > self._lease_s:
                self.stop()
                return

    def wait(self) -> tuple[int, str]:
        """Its exit status, once it has ended, and what it said last."""
        assert self._process is not None
        stream = self._process.stderr
        assert stream is not None
        with stream:
            for line in iter(lambda: stream.readline(LINE_BYTES), b""):
                with contextlib.suppress(OSError):
                    os.write(2, line)  # into Ray's log of this node
                self._tail.append(line.decode(errors="replace").strip())
        status = self._process.wait()
        self._ended.set()
        self.stop()
        return status, next((line for line in reversed(self._tail) if line), "")

    def stop(self) -> None:
        """End it: its tether's end is enough."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()


def _file_of(text: str) -> IO[str]:
    """A file of mode 0600 without a name."""
    file = tempfile.TemporaryFile("w+")  # noqa: SIM115 (whoever asked closes it)
    file.write(text + "\n")
    file.flush()
    file.seek(0)
    return file

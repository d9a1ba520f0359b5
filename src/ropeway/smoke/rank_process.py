"""The rank of a node, as the node holds it: a child process, its events, and the tail of what it has written."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

TAIL_LINES: Final = 256
LINE_BYTES: Final = 4096
STOP_S: Final = 5.0
"""How long it may take to end by itself after SIGTERM."""


class RankProcess:
    """A running `rank_child`. Its standard error goes to ours, and its last lines are kept to explain its end."""

    def __init__(
        self, stage: int, setup: dict[str, Any], listener: socket.socket, environment: Mapping[str, str]
    ) -> None:
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ropeway.smoke.rank_child", str(stage)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            env=dict(environment),
        )
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_events, self._read_tail)]
        for reader in self._readers:
            reader.start()
        self.say("setup", setup={**setup, "rank": stage, "listener": listener.fileno()})

    def say(self, op: str, **fields: Any) -> None:
        """One line; lost where it has ended, which its status says."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"op": op, **fields}).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    @property
    def tail(self) -> list[str]:
        """The last lines that it wrote, once it has ended all of them."""
        if self.status is not None:
            for reader in self._readers:
                reader.join(1.0)
        return list(self._tail)

    def end(self) -> None:
        """End it: SIGTERM, and SIGKILL after a while."""
        if self.status is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError):  # the pipe has been closed
            for line in self._process.stdout:
                self.events.put(json.loads(line))

    def _read_tail(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        with suppress(ValueError):
            for line in iter(lambda: stream.readline(LINE_BYTES), b""):
                with suppress(OSError):
                    os.write(2, line)
                self._tail.append(line.decode(errors="replace").rstrip())

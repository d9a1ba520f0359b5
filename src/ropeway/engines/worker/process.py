"""A worker's process: lines over its pipes with deadlines, its last words, and its end, whoever brings it about.

No shell: the command is a list of arguments. The process has a group of its own, so that Ctrl-C in a terminal does not
reach it and that its children end with it. Knows nothing of what the lines mean.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from ropeway.engines.base import EngineError
from ropeway.engines.worker import keeper

STOP_S: Final = keeper.STOP_S
"""Between SIGTERM and SIGKILL."""
STOPPED_S: Final = 6.0
"""A worker that has been stopped (SIGSTOP) for so long is lost; as long as a silent rank of the ring."""
LOOK_S: Final = 0.25
"""Between two looks at whether the process still lives."""
TAIL_LINES: Final = 256
LINE_BYTES: Final = 4096
_READ_BYTES: Final = 1 << 18
_WORDS_BYTES: Final = 300
"""Of its last words, so many fit into an error beside what happened."""
_WORDS_LINES: Final = 4


class WorkerProcess:
    """One worker. Raises EngineError where it cannot be started. One thread exchanges lines; `stop` is for any."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, stopped_s: float = STOPPED_S) -> None:
        self.command = tuple(command)
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise EngineError(f"the worker {self.command[0]!r} cannot be started: {error}") from None
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(keeper.__file__)), str(process.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._rest = bytearray()
        self._stopped_s = stopped_s
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._cause = ""
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        self._told = False
        self._on_end: Callable[[str], None] = lambda _: None
        self._listener = threading.Thread(target=self._listen, name=f"worker {process.pid} says", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name=f"worker {process.pid} lives", daemon=True)
        self._listener.start()
        self._watcher.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it lives."""
        return self._process.poll()

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines of its standard error."""
        return tuple(self._tail)

    def on_end(self, call: Callable[[str], None]) -> None:
        """Have `call` told, once and in a thread of ours, how the worker ended by itself; at once if it has."""
        with self._lock:
            self._on_end = call
            late = self._told
        if late:
            call(str(self.lost()))

    def exchange(self, request: bytes, most_bytes: int, wait_s: float) -> bytes:
        """Send a line and read the next one. Raises EngineError after `wait_s`, or when the worker has gone."""
        deadline = time.monotonic() + wait_s
        if self._rest:
            raise EngineError(f"the worker wrote {len(self._rest)} bytes that nobody asked for")
        self.write(request, deadline)
        return self.read_line(most_bytes, deadline)

    def write(self, data: bytes, deadline: float) -> None:
        """Write all of `data`. Raises EngineError."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._in, left) :]
            except BlockingIOError:
                if not _wait(self._in, select.POLLOUT, deadline):
                    raise self._late("takes no more of a request") from None
            except OSError:
                raise self.lost() from None

    def read_line(self, most_bytes: int, deadline: float) -> bytes:
        """The next line, without its end. Raises EngineError for a longer one, and for more than one."""
        while True:
            try:
                read = os.read(self._out, _READ_BYTES)
            except BlockingIOError:
                if not _wait(self._out, select.POLLIN, deadline):
                    raise self._late("has not answered") from None
                continue
            if not read:
                raise self.lost()
            self._rest += read
            end = self._rest.find(b"\n", len(self._rest) - len(read))
            if end >= 0 and end < len(self._rest) - 1:
                raise EngineError(f"the worker wrote more than the one line that was asked for: {_start(self._rest)}")
            if len(self._rest) > most_bytes:
                raise EngineError(f"the worker wrote a line of over {most_bytes} bytes: {_start(self._rest)}")
            if end >= 0:
                line = bytes(self._rest[:end])
                self._rest.clear()
                return line

    def lost(self) -> EngineError:
        """The error that says how the worker ended, with its last words; ends it where only its pipes have gone."""
        if not self._cause:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            if self._process.poll() is None:
                self._end_by(f"the worker (process {self.pid}) has closed its pipes")
        self._listener.join(0.5)
        status = self._process.poll()
        how = self._cause or f"the worker (process {self.pid}) {_how_it_ended(0 if status is None else status)}"
        words = [line for line in self._tail if line.strip()][-_WORDS_LINES:]
        if not words:
            return EngineError(f"{how}; it wrote nothing to standard error")
        return EngineError(f"{how}; its last words: {' / '.join(words)[-_WORDS_BYTES:]}")

    def stop(self, wait_s: float = STOP_S) -> int:
        """Close its standard input, then SIGTERM, after `wait_s` SIGKILL; the exit status."""
        self._leaving.set()
        self._close_input()
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(wait_s)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait()
        return self._put_away()

    def finish(self, wait_s: float) -> int | None:
        """Close its standard input and wait for it to end by itself; None where it does not."""
        self._leaving.set()
        self._close_input()
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return None
        return self._put_away()

    def _close_input(self) -> None:
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _put_away(self) -> int:
        """Join the threads and close the pipes of a process that has ended."""
        self._signal(signal.SIGKILL)
        if threading.current_thread() is not self._watcher:
            self._watcher.join(2.0)
        self._listener.join(2.0)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._let_keeper_go()
        return self._process.wait()

    def _let_keeper_go(self) -> None:
        """Its worker has ended."""
        with self._lock:
            pipe = self._keeper.stdin
            assert pipe is not None
            if not pipe.closed:
                with contextlib.suppress(OSError):
                    pipe.write(b".")
                    pipe.flush()
                pipe.close()
                self._keeper.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _late(self, what: str) -> EngineError:
        self._end_by(f"the worker (process {self.pid}) {what} within its deadline")
        return self.lost()

    def _end_by(self, cause: str) -> None:
        self._cause = self._cause or cause
        self._signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)

    def _listen(self) -> None:
        """Pass on what it says on standard error, and keep the end of it."""
        stream = self._process.stderr
        assert stream is not None
        with stream:
            for line in iter(lambda: stream.readline(LINE_BYTES), b""):
                with contextlib.suppress(OSError):
                    os.write(2, line)
                self._tail.append(line.decode(errors="replace").rstrip())

    def _watch(self) -> None:
        """Notice its end while nobody waits for a line, and a stop that lasts."""
        stopped_since: float | None = None
        while not self._leaving.wait(LOOK_S):
            if self._process.poll() is not None:
                break
            if not _is_stopped(self._process.pid):
                stopped_since = None
                continue
            now = time.monotonic()
            stopped_since = now if stopped_since is None else stopped_since
            if now - stopped_since >= self._stopped_s:
                self._end_by(f"the worker (process {self.pid}) has been stopped for {self._stopped_s:g} s")
                break
        if self._leaving.is_set():
            return
        self._signal(signal.SIGKILL)  # what it has started ends with it
        self._let_keeper_go()
        text = str(self.lost())
        with self._lock:
            self._told = True
            call = self._on_end
        call(text)


def _wait(descriptor: int, event: int, deadline: float) -> bool:
    """Whether the pipe is ready (or closed) before the deadline."""
    poll = select.poll()
    poll.register(descriptor, event)
    left_ms = (deadline - time.monotonic()) * 1000
    return left_ms > 0 and bool(poll.poll(left_ms))


def _is_stopped(pid: int) -> bool:
    """Whether the child is stopped, where the system can say so; nothing is taken from its parent's own wait."""
    if not hasattr(os, "waitid"):
        return False
    try:
        found = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return found is not None and found.si_code == os.CLD_STOPPED


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"has ended with exit status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def _start(data: bytearray) -> str:
    return repr(bytes(data[:60]))

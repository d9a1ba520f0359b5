"""The ranks that run on this node: each is a process of its own, held by the stream of whoever asked for it.

When that stream ends, whatever the reason (the orchestrator is done, has died, or cannot be reached any more), the rank
ends: by itself if it does so in time, else it is killed. The agent restarts nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ropeway.cluster.job import Job
from ropeway.cluster.services import until_end
from ropeway.transport.iroh.services import Refused
from ropeway.transport.iroh.streams import Lines, StreamEnded
from ropeway.transport.switched import listen

log = logging.getLogger("ropeway.cluster")

END_S: Final = 3.0
"""How long a rank may take to end by itself once nobody holds it any more; it needs 1.5 s for that."""
TAIL_LINES: Final = 40
LINE_BYTES: Final = 4096
STDERR_LIMIT: Final = 64 << 10


class Rank:
    """One rank's process. What it says goes to our standard error; its last lines are kept to explain its end."""

    def __init__(self, job: Job, process: asyncio.subprocess.Process, listener: Path) -> None:
        self.job = job
        self.process = process
        self._listener = listener
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    @classmethod
    async def start(cls, job: Job, path: Path, switch: Path) -> Rank:
        """Start it. Raises OSError."""
        listener = listen(path)
        with listener:
            os.set_inheritable(listener.fileno(), True)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ropeway.launch.child", str(job.rank)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=[listener.fileno()],
                limit=STDERR_LIMIT,
            )
            assert process.stdin is not None
            process.stdin.write(job.setup(listener.fileno(), str(switch)))
            with contextlib.suppress(ConnectionError):
                await process.stdin.drain()
        return cls(job, process, path)

    async def ended(self) -> int:
        """Pass on what it says until it has ended; its exit status. For one task, once."""
        stream = self.process.stderr
        assert stream is not None
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                continue  # longer than our buffer: what was read of it is gone
            if not line:
                break
            with contextlib.suppress(OSError):
                os.write(2, line[:LINE_BYTES])
            self._tail.append(line[:LINE_BYTES].decode(errors="replace").strip())
        status = await self.process.wait()
        self._listener.unlink(missing_ok=True)
        return status

    def told(self) -> str:
        """Why it ended, in its own words."""
        said = next((line for line in reversed(self._tail) if line), "")
        return said.removeprefix(f"ropeway: rank {self.job.rank}: ")

    async def end(self, ending: asyncio.Task[int]) -> None:
        """End it, a stopped one too; `ending` is the task of `ended`."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        await asyncio.wait([ending], timeout=END_S)
        if not ending.done():
            log.warning("rank %d of ring %s does not end: killed", self.job.rank, self.job.ring)
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await asyncio.wait([ending])


class Ranks:
    """Every rank here. `path(ring, rank)` is where one listens."""

    def __init__(self, path: Callable[[str, int], Path], switch: Path) -> None:
        self._path = path
        self._switch = switch
        self._running: dict[tuple[str, int], tuple[Rank, Lines]] = {}
        self.draining = False

    async def run(self, first: dict[str, Any], lines: Lines, node: str) -> None:
        """The service: start the rank of a job, say what becomes of it, end it with the stream."""
        try:
            job = Job.parse(first.get("job") or {})
        except ValueError as error:
            raise Refused(f"job: {error}") from None
        if self.draining:
            raise Refused("this node is being drained and takes no rank")
        place = job.ring, job.rank
        if place in self._running:
            raise Refused(f"rank {job.rank} of ring {job.ring} runs here already")
        try:
            rank = await Rank.start(job, self._path(*place), self._switch)
        except OSError as error:
            raise Refused(f"the rank cannot be started: {error.strerror or error}") from None
        log.info("rank %d of ring %s for node %s: pid %d", job.rank, job.ring, node[:8], rank.process.pid)
        self._running[place] = rank, lines
        ending = asyncio.ensure_future(rank.ended())
        asked = asyncio.ensure_future(until_end(lines))
        try:
            await lines.write_line({"ok": True, "pid": rank.process.pid})
            await asyncio.wait([ending, asked], return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                await lines.write_line({"event": "ended", "status": ending.result(), "told": rank.told()})
        except StreamEnded:
            log.debug("nobody holds rank %d of ring %s any more", *reversed(place))
        finally:
            asked.cancel()  # given up: nobody wants what it would read
            await rank.end(ending)
            del self._running[place]
            log.info("rank %d of ring %s has ended with %s", job.rank, job.ring, how(ending.result()))

    async def drain(self) -> None:
        """Take no more ranks, and ask those that hold the ones here to place them elsewhere."""
        self.draining = True
        for _, lines in list(self._running.values()):
            with contextlib.suppress(StreamEnded):
                await lines.write_line({"event": "drain"})

    async def close(self) -> None:
        """End every rank."""
        for rank, lines in list(self._running.values()):
            assert rank.process.stdin is not None
            rank.process.stdin.close()
            with contextlib.suppress(StreamEnded):
                await lines.write_line({"event": "leaving"})
        for _ in range(round(END_S / 0.05)):
            if not self._running:
                return
            await asyncio.sleep(0.05)
        for rank, _ in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                rank.process.kill()


def how(status: int) -> str:
    """An exit status for people."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"

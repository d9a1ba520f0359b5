"""One rank of a run as a child process of its node: `python -m ropeway.smoke.rank_child STAGE`.

JSON lines both ways on standard input and output, so that no argument list shows the key: the setup; `loaded` once the
engine is ready; `join` with every rank's address; `whole` once the ring is; on rank 0 `generate` and its `reply`.
`failed` says why it ends. The end of standard input ends it. STAGE is there for those who read a list of processes.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import threading
from contextlib import suppress
from typing import Any


class Parent:
    """The node that started us: lines in through a queue, lines out."""

    def __init__(self, out: int) -> None:
        self.lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._out = out
        threading.Thread(target=self._read, name="parent", daemon=True).start()

    def say(self, event: str, **fields: Any) -> None:
        """One line."""
        with suppress(OSError):  # nobody is there any more; the end of our input says so too
            os.write(self._out, json.dumps({"event": event, **fields}).encode() + b"\n")

    def expect(self, op: str) -> dict[str, Any]:
        """The next line, which must be this one."""
        line = self.lines.get()
        assert line.get("op") == op, f"expected {op}, got {line.get('op')}"
        return line

    def _read(self) -> None:
        rest = b""
        while piece := os.read(0, 65536):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self.lines.put(json.loads(line))
        os._exit(0)


def main() -> None:
    """Be the rank until the ring or the parent ends; ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # first of all: the imports below take their time
    out = os.dup(1)
    os.dup2(2, 1)  # what libraries print must not get between our lines
    parent = Parent(out)
    logging.basicConfig(level=logging.WARNING, format="pp-gpu-node: %(message)s")
    from ropeway.checkpoints.errors import CheckpointError
    from ropeway.engines.base import EngineError
    from ropeway.launch.rank import EXIT_FAILED, EXIT_RING, leave
    from ropeway.smoke.rank_work import ChildSetup, be_rank
    from ropeway.transport import RingEnded
    from ropeway.wire import ProtocolError

    try:
        be_rank(parent, ChildSetup(**parent.expect("setup")["setup"]))
    except RingEnded as error:
        parent.say("failed", reason=str(error))
        leave(EXIT_RING)
    except (CheckpointError, EngineError, ProtocolError, OSError, ValueError, MemoryError) as error:
        parent.say("failed", reason=str(error) or type(error).__name__)
        leave(EXIT_FAILED)
    leave(0)


if __name__ == "__main__":
    main()

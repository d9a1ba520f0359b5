"""Ends a worker whose stage has gone, however the stage went: `python -I keeper.py PID`.

It waits on its standard input. A byte means that the worker has ended already; the end of the pipe means that the
stage died. Then the worker's process group gets SIGTERM, and after 5 s SIGKILL. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

STOP_S = 5.0


def main() -> None:
    """Wait for the stage to go."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    group = int(sys.argv[1])
    if os.read(0, 1):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while time.monotonic() < deadline:
            time.sleep(0.05)
            os.killpg(group, 0)
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()

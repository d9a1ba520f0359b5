"""Keeps other processes off all cores while something is measured: on each, a process that only takes idle time away.

It has real-time priority, but the least (Linux). What is measured runs above it (`chrt -r 5 python bench/...`) and so
loses nothing to it, while others stand still but for the 5 % that the kernel leaves them: so blocks are kept short.
Where the bench itself has no real-time priority, or none can be had, nothing happens.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

PROGRAM = """
import os, select, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
print(flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(100_000):
        pass
"""


@contextlib.contextmanager
def others_kept_off() -> Iterator[None]:
    """Inside the block only what has real-time priority runs."""
    if not _is_real_time():
        yield
        return
    processes = []
    try:
        for core in sorted(os.sched_getaffinity(0)):
            command = [sys.executable, "-S", "-c", PROGRAM, str(core)]
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            process.wait()


def _is_real_time() -> bool:
    return hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)

"""Makes a process slower: it has only a share of the time, in turns far shorter than a stage's forward.

    python bench/limiter.py --pid PID --share 0.5

Ends with its standard input or with the process. Where the process is kept on one core and real-time priority can be
had (Linux), the limiter runs on that core above it and keeps it busy for the rest of the time; elsewhere it stops and
continues the process (SIGSTOP, SIGCONT), in longer turns. Either way a stage takes 1 / share times as long.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

TURN_S = 2e-4
"""How long the process runs at a time where the limiter shares its core."""
PERIOD_S = 2e-3
"""A turn of running and a turn of standing still where it is stopped and continued."""
SLEEP_S = 6e-5
"""About what a sleep overshoots."""
PRIORITY = 50


def limit(pid: int, share: float) -> None:
    """Keep `pid` to its share until standard input ends or the process has gone."""
    with contextlib.suppress(ProcessLookupError):
        if _beside(pid):
            _crowd(pid, share)
        else:
            _stop_and_go(pid, share)


def _beside(pid: int) -> bool:
    """Come to run on the process's core, above it; whether that can be."""
    try:
        cores = os.sched_getaffinity(pid)
        if len(cores) > 1:
            return False
        os.sched_setaffinity(0, cores)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except (OSError, AttributeError):
        return False
    return True


def _crowd(pid: int, share: float) -> None:
    more = (1 - share) / share
    while not _ended():
        os.kill(pid, 0)
        for _ in range(100):
            begun = time.perf_counter()
            time.sleep(TURN_S - SLEEP_S)
            woken = time.perf_counter()
            # In proportion to how long it was really left to run, so that the share holds.
            until = woken + more * min(woken - begun, 2 * TURN_S)
            while time.perf_counter() < until:
                pass


def _stop_and_go(pid: int, share: float) -> None:
    run_s, stop_s = share * PERIOD_S, (1 - share) * PERIOD_S
    try:
        while not _ended():
            os.kill(pid, signal.SIGSTOP)
            begun = time.perf_counter()
            time.sleep(max(0.0, stop_s - SLEEP_S))
            os.kill(pid, signal.SIGCONT)
            stopped = time.perf_counter() - begun
            time.sleep(max(0.0, run_s * stopped / stop_s - SLEEP_S))
    finally:
        os.kill(pid, signal.SIGCONT)


def _ended() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


@contextlib.contextmanager
def limited(pid: int, share: float) -> Iterator[list[int]]:
    """`pid` runs only a share of the time inside the block; 1 leaves it alone. Gives the limiter's process, if any."""
    if share >= 1.0:
        yield []
        return
    command = [sys.executable, str(Path(__file__)), "--pid", str(pid), "--share", str(share)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield [process.pid]
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def main() -> None:
    """Limit a process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--share", type=float, required=True)
    args = parser.parse_args()
    if not 0 < args.share <= 1:
        parser.error("--share is above 0 and at most 1")
    limit(args.pid, args.share)


if __name__ == "__main__":
    main()

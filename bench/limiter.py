"""Makes a process slower: it may run only a share of the time, in short turns (SIGSTOP and SIGCONT).

    python bench/limiter.py --pid PID --share 0.5 [--period-ms 2]

Ends, and lets the process run again, with its standard input or with the process. The turns are far shorter than a
stage's forward, so that a stage takes 1 / share times as long, whenever its rows come.
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


def limit(pid: int, share: float, period_s: float) -> None:
    """Stop and continue `pid` until standard input ends or the process has gone."""
    run_s, stop_s = share * period_s, (1 - share) * period_s
    # It has to come to run in time, also where what it limits has the processors first (`chrt`).
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    try:
        while not select.select([sys.stdin], [], [], 0)[0]:
            os.kill(pid, signal.SIGSTOP)
            begun = time.perf_counter()
            time.sleep(max(0.0, stop_s - SLEEP_S))
            os.kill(pid, signal.SIGCONT)
            stopped = time.perf_counter() - begun
            # It may run in proportion to how long it was really stopped, so that the share holds.
            time.sleep(max(0.0, run_s * stopped / stop_s - SLEEP_S))
    except ProcessLookupError:
        return
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


SLEEP_S = 6e-5
"""About what a sleep overshoots."""


@contextlib.contextmanager
def limited(pid: int, share: float, period_ms: float = 2.0) -> Iterator[None]:
    """`pid` runs only a share of the time inside the block; 1 leaves it alone."""
    if share >= 1.0:
        yield
        return
    command = [sys.executable, str(Path(__file__)), "--pid", str(pid), "--share", str(share)]
    process = subprocess.Popen([*command, "--period-ms", str(period_ms)], stdin=subprocess.PIPE)
    try:
        yield
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
    parser.add_argument("--period-ms", type=float, default=2.0)
    args = parser.parse_args()
    if not 0 < args.share <= 1:
        parser.error("--share is above 0 and at most 1")
    limit(args.pid, args.share, args.period_ms / 1e3)


if __name__ == "__main__":
    main()

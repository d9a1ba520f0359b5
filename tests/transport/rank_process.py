"""One rank in a process of its own, for tests that kill and stop it: reads its setup from standard input, says what
happens on standard output, one JSON object a line, and exits with 70 when the ring is lost.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from typing import Any

from ropeway.transport import Ring, RingConfig, RingEnded, RingLost, RingStopped, join
from ropeway.wire import Done, Ready, Returns
from transport.rings import MAX_ROWS, describe, echo, layout, prompt, receive_back, send_parts


def say(**words: Any) -> None:
    """One line."""
    print(json.dumps(words), flush=True)


def drive(ring: Ring, rows: int) -> None:
    """Rank 0: rounds of two parts, one after the other, for ever; `rows` 0: none at all."""
    ring.descriptions()
    ring.readies()
    if not rows:
        say(running=True)
        ring.next_done()
    payload = bytes(range(256)) * (rows * ring.layout.boundary.row_bytes() // 256)
    stream = 0
    while True:
        plan = prompt(stream, rows, (rows // 2,), Returns.LAST)
        number = ring.send_plan(plan)
        send_parts(ring, number, plan, payload)
        receive_back(ring, number, plan)
        if stream == 3:
            say(running=True)
        stream += 1


def compute(ring: Ring) -> None:
    """A stage in one endless forward that nothing interrupts."""
    time.sleep(600)
    ring.done(0, Done(ring.rank))


def told(ring: Ring) -> None:
    """Leave, whatever the main thread does."""
    report(ring.end)
    os._exit(70 if ring.lost else 0)


def report(end: RingEnded | None) -> None:
    """Say how it ended."""
    assert end is not None
    say(end=type(end).__name__, code=end.code.label, rank=end.rank, text=end.text)


def main() -> int:
    """Be a rank."""
    setup = json.loads(sys.stdin.readline())
    rank, shape = setup["rank"], layout(setup["world"], setup["hidden"])
    listener = socket.socket(fileno=setup["listener"])
    config = RingConfig(
        rank, shape, bytes.fromhex(setup["key"]), tuple(setup["addresses"]), MAX_ROWS, listener=listener
    )
    ring = join(config)
    if setup["computes"]:
        ring.on_end(lambda: told(ring))
    try:
        if rank == 0:
            drive(ring, setup["rows"])
        ring.describe(describe(shape, rank))
        ring.ready(Ready(rank, 0, 0, 0))
        say(running=True)
        if setup["computes"]:
            compute(ring)
        report(echo(ring))
    except RingStopped as end:
        report(end)
    except RingLost as end:
        report(end)
    finally:
        ring.close()
        listener.close()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("ropeway")] == []
    return 0 if isinstance(ring.end, RingStopped) else 70


if __name__ == "__main__":
    sys.exit(main())

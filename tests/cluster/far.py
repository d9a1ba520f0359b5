"""A slow and lossy switch in user space: every frame arrives late, some never. For hosts that are far apart.

(The kernel has such a thing, netem, but not every kernel.)
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time
from itertools import count

_TUNSETIFF = 0x400454CA
_TAP, _NO_HEADER = 0x0002, 0x1000
_FRAME_BYTES = 2048


def open_tap(name: str) -> int:
    """A network device in this thread's namespace, whose frames are read and written by the descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP | _NO_HEADER))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class FarSwitch:
    """Hands every frame to every other device `delay_s` later; of 1 / `loss` frames one is lost."""

    def __init__(self, delay_s: float, loss: float) -> None:
        self._delay_s = delay_s
        self._loss = loss
        self._draw = random.Random(7)
        self._taps: list[int] = []
        self._late: list[tuple[float, int, int, bytes]] = []
        self._order = count()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="far switch", daemon=True)

    def add(self, tap: int) -> None:
        """Join a device; before `start`."""
        self._taps.append(tap)

    def start(self) -> None:
        """Begin to carry frames."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and close every device."""
        self._closing = True
        self._thread.join(5)
        for tap in self._taps:
            os.close(tap)

    def _run(self) -> None:
        poller = select.poll()
        for tap in self._taps:
            poller.register(tap, select.POLLIN)
        while not self._closing:
            left_s = self._late[0][0] - time.monotonic() if self._late else 0.1
            for tap, _ in poller.poll(max(0.0, min(left_s, 0.1)) * 1e3):
                self._take(tap)
            while self._late and self._late[0][0] <= time.monotonic():
                self._hand_out(*heapq.heappop(self._late)[2:])

    def _take(self, tap: int) -> None:
        try:
            frame = os.read(tap, _FRAME_BYTES)
        except BlockingIOError:
            return
        if self._draw.random() >= self._loss:
            heapq.heappush(self._late, (time.monotonic() + self._delay_s, next(self._order), tap, frame))

    def _hand_out(self, sender: int, frame: bytes) -> None:
        for tap in self._taps:
            if tap != sender:
                try:
                    os.write(tap, frame)
                except OSError:
                    continue  # its queue is full: lost, as on any wire

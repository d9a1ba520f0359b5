"""A loopback of a set width: a network namespace of our own whose `lo` is shaped by tc's token bucket filter (Linux).

    python bench/link.py --rate 1gbit        # how wide it is in truth: 128 MiB over one bare connection

`--link 1gbit` of a bench runs it anew in such a namespace. The bucket holds a millisecond at most, so that a part does
not pass in one burst. All hops of a ring share the one `lo`: on two stages, where the rows of a prompt cross once, that
is as wide as a link of their own. Needs `unshare` and `tc`, and root or user namespaces.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from typing import Final

_INSIDE: Final = "BENCH_LINK"
MTU_BYTES: Final = 65536
_UNITS: Final = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def bits_per_s(rate: str) -> float:
    """'10gbit' as 1e10. Raises ValueError."""
    found = re.fullmatch(r"([0-9.]+)(kbit|mbit|gbit)", rate)
    if found is None:
        raise ValueError(f"link: {rate!r} is not a rate such as 1gbit or 100mbit")
    return float(found[1]) * _UNITS[found[2]]


def inside(rate: str | None) -> None:
    """Go on in a namespace whose loopback has this rate: the program starts anew there. Nothing to do for None."""
    if rate is None:
        return
    width = bits_per_s(rate)
    if os.environ.get(_INSIDE) == rate:
        _shape(rate, width)
        return
    for tool in ("unshare", "tc", "ip"):
        if shutil.which(tool) is None:
            raise SystemExit(f"link: {tool} is missing (Debian: util-linux, iproute2)")
    own = ["--net"] if os.geteuid() == 0 else ["--net", "--map-root-user"]
    os.environ[_INSIDE] = rate
    sys.stdout.flush()
    os.execvp("unshare", ["unshare", *own, sys.executable, *sys.argv])


def _shape(rate: str, width: float) -> None:
    burst = max(2 * MTU_BYTES, round(width / 8 * 1e-3))
    limit = burst + round(width / 8 * 0.1)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    shaping = ["rate", rate, "burst", str(burst), "limit", str(limit)]
    subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "tbf", *shaping], check=True)


def measured_bits_per_s(size: int = 128 << 20) -> float:
    """What one bare connection carries here."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_pour, args=(listener.getsockname(), size), daemon=True).start()
        sink, _ = listener.accept()
        room = bytearray(1 << 20)
        with sink:
            left, started = size, time.perf_counter()
            while left:
                count = sink.recv_into(room)
                if not count:
                    raise EOFError("the other end has gone")
                left -= count
            return size * 8 / (time.perf_counter() - started)


def _pour(address: tuple[str, int], size: int) -> None:
    chunk = bytes(1 << 20)
    with socket.create_connection(address) as source:
        for _ in range(size // len(chunk)):
            source.sendall(chunk)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="1gbit")
    args = parser.parse_args()
    inside(args.rate)
    found = measured_bits_per_s()
    print(f"{args.rate}: {found / 1e9:.3f} Gbit/s over one bare connection")


if __name__ == "__main__":
    main()

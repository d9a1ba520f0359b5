"""A ring whose second machine has become slow: what `place --from` proposes, and what its cuts bring.

    python bench/closed_loop.py [--share 0.4] [--streams 4] [--tokens 160] [--repeats 3] [--json]

Two ranks on this machine, a core and a thread each, placed for throughput from one calibration as two equal nodes. Then
rank 1 may use only a share of its core (limiter.py), streams are decoded, and `ropeway place --from URL` is asked. The
ring is started again with the cuts that it proposes, and the same streams are decoded: tokens a second before and
after, and the gain by its own prediction. All of it with the commands that a person would use.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from limiter import limited
from results import Figure, Result

UP_S = 120.0
GOAL = "throughput"


def ropeway(*words: str) -> list[str]:
    """A command line."""
    return [sys.executable, "-m", "ropeway", *words]


def asked(*words: str) -> dict[str, Any]:
    """What a command says with `--json`."""
    done = subprocess.run(ropeway(*words, "--json"), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def cuts_of(price: Mapping[str, Any]) -> str:
    """A price's cuts as a flag."""
    return ",".join(map(str, price["cuts"]))


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


@contextmanager
def running(command: Sequence[str], core: int) -> Iterator[int]:
    """A process on one core, ended at the end; its process id."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process.pid, {core % (os.cpu_count() or 1)})
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def get(url: str) -> dict[str, Any] | None:
    """JSON from the server; None while it is not there."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            value: dict[str, Any] = json.load(reply)
            return value
    except OSError:
        return None


def decode(url: str, args: argparse.Namespace) -> float:
    """Tokens a second of all streams together."""

    listed = get(f"{url}/v1/models")
    assert listed is not None
    model = listed["data"][0]["id"]

    def one(number: int) -> int:
        body = {"model": model, "prompt": f"Stream {number} counts:", "max_tokens": args.tokens}
        request = urllib.request.Request(
            f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as reply:
            return int(json.load(reply)["usage"]["completion_tokens"])

    started = time.perf_counter()
    with ThreadPoolExecutor(args.streams) as pool:
        tokens = sum(pool.map(one, range(args.streams)))
    return tokens / (time.perf_counter() - started)


@contextmanager
def ring(common: Sequence[str], cuts: str, place: Sequence[str], share: float) -> Iterator[str]:
    """A served ring with a limited second rank; its URL. `place` says where rank 0 has its cuts from."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with (
        running(ropeway("stage", *common, "--rank", "1", "--cuts", cuts), 1) as slow,
        running(ropeway("serve", *common, *place, "--port", str(port)), 0),
    ):
        deadline = time.monotonic() + UP_S
        while (get(f"{url}/v1/ring") or {}).get("state") != "ready":
            if time.monotonic() > deadline:
                raise SystemExit(f"the ring at {url} did not come up")
            time.sleep(0.3)
        with limited(slow, share):
            yield url


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--share", type=float, default=0.4, help="of its core that rank 1 has once the ring is placed")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        subprocess.run(
            ropeway(
                "calibrate", args.model, "--name", "a", "--threads", "1", "--shared", "--out", str(here / "a.json")
            ),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
        nodes = here / "nodes.toml"
        nodes.write_text(
            "".join(
                f'[[node]]\nfile = "a.json"\nname = "{node}"\naddress = "{address}"\n'
                for node, address in zip("ab", addresses, strict=True)
            )
            + "[links]\nround_trip_ms = 0.0\ngbit = 20\n"
        )
        subprocess.run(ropeway("key", "new", str(here / "key")), stdout=subprocess.DEVNULL, check=True)
        load = ["--context", "512", "--parallel", str(args.streams)]
        common = [args.model, "--ring", ",".join(addresses), "--key", str(here / "key"), "--threads", "1", *load]
        where = ["--nodes", str(nodes), "--goal", GOAL, "--first", "a", *load]
        old = cuts_of(asked("place", args.model, *where))
        before, after = [], []
        with ring(common, old, ["--place", str(nodes), "--goal", GOAL], args.share) as url:
            decode(url, args)
            before += [decode(url, args) for _ in range(args.repeats)]
            told = asked("place", args.model, "--from", url, *where)
        best, was = told["best"], told["running"]
        new = cuts_of(best)
        with ring(common, new, ["--cuts", new], args.share) as url:
            decode(url, args)
            after += [decode(url, args) for _ in range(args.repeats)]
    gain = float(best["tokens_per_s"]) / float(was["tokens_per_s"])
    figures = (
        Figure.of(f"cut {old}, as placed", "tokens/s", before),
        Figure.of(f"cut {new}, as proposed", "tokens/s", after),
        Figure.of("after by before", "times", [b / a for a, b in zip(before, after, strict=True)]),
        Figure.of("as predicted", "times", [gain]),
    )
    setting = f"{args.model}, {args.streams} streams, rank 1 with {args.share:.0%} of its core since it was placed"
    Result("closed_loop", setting, figures).tell(args)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()

"""Many clients at once against a real `ropeway serve`: every reply complete, slots free at the end, memory flat.

    python bench/soak.py [--model demo] [--stages 2] [--clients 32] [--seconds 60]

Each client asks for one streamed reply after another until the time is up. Prints one JSON object; exit status 1 where
a reply was not complete or a slot was still taken.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path


def rss_mb(pid: int) -> float:
    """Resident memory of a process, in MB (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1e3
    return 0.0


def ask(base: str, model: str, number: int, tokens: int) -> str:
    """One streamed reply; its finish_reason, or what went wrong."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"Tell me fact number {number} about mountains."}],
        "max_tokens": tokens,
        "stream": True,
        "seed": number,
    }
    request = urllib.request.Request(
        f"{base}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    finish, done = "", False
    with urllib.request.urlopen(request, timeout=120) as reply:
        for raw in reply:
            line = raw.decode().strip()
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    return f"error: {event['error']['message']}"
                for choice in event["choices"]:
                    finish = choice["finish_reason"] or finish
    return finish if done else "cut off"


def main() -> int:
    """Serve, load, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tokens", type=int, default=24)
    args = parser.parse_args()
    command = [sys.executable, "-m", "ropeway", "serve", args.model, "--stages", str(args.stages), "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        base = ""
        assert server.stderr is not None
        for line in server.stderr:
            if "http://" in line:
                base = "http://" + line.split("http://")[1].strip()
            if base and "ready" in line:
                break
        threading.Thread(target=server.stderr.read, daemon=True).start()
        while json.load(urllib.request.urlopen(f"{base}/v1/ring", timeout=30))["state"] != "ready":
            time.sleep(0.1)
        model = json.load(urllib.request.urlopen(f"{base}/v1/models", timeout=30))["data"][0]["id"]
        results: Counter[str] = Counter()
        stop = time.monotonic() + args.seconds

        def client(number: int) -> None:
            while time.monotonic() < stop:
                try:
                    results[ask(base, model, number, args.tokens)] += 1
                except OSError as error:
                    results[f"error: {error}"] += 1

        threads = [threading.Thread(target=client, args=(number,)) for number in range(args.clients)]
        for thread in threads:
            thread.start()
        time.sleep(args.seconds / 3)
        early = rss_mb(server.pid)
        for thread in threads:
            thread.join()
        late = rss_mb(server.pid)
        time.sleep(1.0)
        ring = json.load(urllib.request.urlopen(f"{base}/v1/ring", timeout=30))
    finally:
        server.terminate()
        server.wait(20)
    good = all(result in ("stop", "length") for result in results) and ring["slots"]["used"] == 0
    value = {
        "clients": args.clients,
        "seconds": args.seconds,
        "replies": dict(results),
        "slots_used_at_end": ring["slots"]["used"],
        "rss_mb_after_a_third": early,
        "rss_mb_at_end": late,
        "ok": good,
    }
    print(json.dumps(value))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

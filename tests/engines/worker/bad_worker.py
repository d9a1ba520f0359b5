"""A worker that starts well and then misbehaves as its argument says. Standard library only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

READY = {
    "status": "ready",
    "pid": os.getpid(),
    "stage": 1,
    "hidden_dim": 16,
    "vocab_size": 32,
    "total_blocks": 8,
    "layer_range": [2, 6],
    "eog_ids": [3],
}


def say(text: str) -> None:
    os.write(1, text.encode())


def main() -> None:
    mode = sys.argv[1]
    sys.stderr.write("loading a model\nof no use\n")
    sys.stderr.flush()
    if mode == "no-start":
        sys.stderr.write("there is no such model\n")
        raise SystemExit(2)
    if mode == "mute":
        time.sleep(600)
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "child":
        subprocess.Popen([sys.executable, "-c", f"import time; time.sleep(600)  # {sys.argv[2]}"])
    told = sys.argv[-1]
    ready = READY | (json.loads(told) if told.startswith("{") else {})
    say(json.dumps(ready) + "\n" + ("and more\n" if mode == "eager" else ""))
    if mode == "idle-death":
        time.sleep(float(sys.argv[2]))
        sys.stderr.write("the card has fallen off the bus\n")
        raise SystemExit(7)
    if mode == "deaf":
        while True:
            time.sleep(600)
    for line in sys.stdin:
        request = json.loads(line)
        number = request["request_id"]
        good = {"request_id": number, "hidden_b64": "", "seq_len": request.get("seq_len")}
        match mode:
            case "garbage":
                say("Loading weights: 100%\n")
            case "endless":
                while True:
                    say("x" * 65536)
            case "another":
                say(json.dumps(good | {"request_id": number + 1}) + "\n")
            case "two":
                say(json.dumps(good) + "\n" + json.dumps(good) + "\n")
            case "late":
                time.sleep(600)
            case "error":
                say(json.dumps({"request_id": number, "error": "no memory"}) + "\n")
            case "short":
                say(json.dumps(good | {"hidden_b64": "AAAA"}) + "\n")
            case "rows":
                say(json.dumps(good | {"seq_len": 5}) + "\n")
            case "true":
                say(json.dumps(good | {"seq_len": True}) + "\n")
            case "base64":
                say(json.dumps(good | {"hidden_b64": "!!!!"}) + "\n")
            case "list":
                say("[1, 2]\n")
            case "killed":
                sys.stderr.write("out of memory\n")
                sys.stderr.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            case "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "closes":
                os.close(1)
                time.sleep(600)
            case _:
                say(json.dumps(good) + "\n")


if __name__ == "__main__":
    main()

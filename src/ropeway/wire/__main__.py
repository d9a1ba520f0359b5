"""`python -m ropeway.wire FILE`: print a capture, hex with comments or binary, as readable messages, a line each."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ropeway.wire.capture import Broken, describe_frame, load_capture, read_capture


def main(arguments: list[str]) -> int:
    """Print the capture. Gives the exit status: 0, 1 for a bad capture, 2 for a file that cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m ropeway.wire", description="Print a capture as readable messages.")
    parser.add_argument("file", metavar="FILE", help="hex with # comments, or binary; - is the standard input")
    name: str = parser.parse_args(arguments).file
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        print(f"{name}: {error.strerror}", file=sys.stderr)
        return 2
    try:
        frames = load_capture(raw)
    except ValueError as error:
        print(f"{name}: neither binary nor hex: {error}", file=sys.stderr)
        return 1
    status = 0
    for frame in read_capture(frames):
        if isinstance(frame, Broken):
            print(f"@{frame.offset} error {frame.error}")
            status = 1
        else:
            print(describe_frame(frame))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

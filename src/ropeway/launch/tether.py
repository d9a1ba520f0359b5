"""A command on a tether: `python -m ropeway.launch.tether COMMAND...` runs it, and ends it when standard input ends.

So a process that somebody else may kill at any time leaves nothing behind: whoever holds the other end of the pipe has
only to die. Where the tether itself is killed the system kills the command (Linux). The command gets the tether's open
files. Exits with the command's own status, 128 and the signal's number where a signal ended it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Final

from ropeway.launch.orphans import die_with_parent

END_S: Final = 3.0
"""How long the command may take to end after SIGTERM; a rank whose ring is lost needs half of that."""


def main() -> None:
    """Run the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is not for us
    before = _die_with_us if sys.platform == "linux" else None
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, preexec_fn=before, close_fds=False)
    threading.Thread(target=_end_with_parent, args=(process,), name="tether", daemon=True).start()
    status = process.wait()
    os._exit(status if status >= 0 else 128 - status)


def _die_with_us() -> None:
    """In the command's process, before it begins: a stopped one dies with us too."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end_with_parent(process: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        pass
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()


if __name__ == "__main__":
    main()

"""A command on a tether: `python -m ropeway.launch.tether COMMAND...` runs it, and ends it when standard input ends.

So a process that somebody else may kill at any time leaves nothing behind: whoever holds the other end of the pipe has
only to die. Exits with the command's own status, 128 and the signal's number where a signal ended it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Final

END_S: Final = 5.0
"""How long the command may take to end after SIGTERM."""


def main() -> None:
    """Run the command."""
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_parent, args=(process,), name="tether", daemon=True).start()
    status = process.wait()
    os._exit(status if status >= 0 else 128 - status)


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

"""`pp-gpu-node`: what the image runs. The environment says which stage it is (docs/smoke-run.md).

Its one flag, `--health`, asks whether the node that runs here is well: exit status 0 or 1. Without it, 2 is for a
variable that is missing or wrong, named on standard error; 1 when the stage has failed; 143 when it was terminated.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from types import FrameType
from typing import NoReturn

EXIT_FAILED = 1
EXIT_USAGE = 2
TERMINATED = 128 + signal.SIGTERM


def run(variables: Mapping[str, str]) -> int:
    """Judge the environment, then be the node; the exit status."""
    from ropeway.smoke.environment import BadVariable, read_settings

    try:
        settings = read_settings(variables)
    except BadVariable as error:
        sys.stderr.write(f"pp-gpu-node: {error}\n")
        return EXIT_USAGE
    from ropeway.smoke.node import serve

    return serve(settings)


def _terminate(_: int, __: FrameType | None) -> NoReturn:
    raise SystemExit(TERMINATED)


def main() -> None:
    """The command; ends the process."""
    if sys.argv[1:] == ["--health"]:
        from ropeway.smoke.health import is_well

        raise SystemExit(0 if is_well(os.environ) else EXIT_FAILED)
    if len(sys.argv) > 1:
        sys.stderr.write("pp-gpu-node: it takes no arguments but --health; its environment says what to do\n")
        raise SystemExit(EXIT_USAGE)
    signal.signal(signal.SIGTERM, _terminate)
    local = os.environ.get("END_WITH_STDIN") == "1"  # Ctrl-C reaches a whole terminal: the orchestrator alone decides
    signal.signal(signal.SIGINT, signal.SIG_IGN if local else _terminate)
    raise SystemExit(run(os.environ))


if __name__ == "__main__":
    main()

"""Does a program keep the process bridge? `python -m ropeway.engines.conformance --model M -- PROGRAM ARGUMENTS`.

Starts the program as a first, a middle and a last worker and asks it everything that docs/worker.md has a rule for,
one printed line a rule. Exit status 0 where all are kept, 1 where one is not. What a ready line does not declare is
not asked for, and named.
"""

from __future__ import annotations

import argparse
import os
import sys

from ropeway.engines.conformance.examine import examine
from ropeway.engines.worker.setting import Role


def main() -> None:
    """Print every rule; the exit status says whether all were kept."""
    parser = argparse.ArgumentParser(prog="python -m ropeway.engines.conformance", description=__doc__)
    parser.add_argument("--model", default="", help="what the worker is told as MODEL")
    parser.add_argument("--role", action="append", choices=[role.value for role in Role], help="just this role")
    parser.add_argument("--wait", type=float, default=300.0, help="seconds for the ready line and for each reply")
    parser.add_argument("command", nargs="+", metavar="PROGRAM")
    arguments = parser.parse_args()
    broken = 0
    for role in Role:
        if arguments.role and role.value not in arguments.role:
            continue
        for result in examine(arguments.command, role, arguments.model, arguments.wait):
            word = {True: "kept", False: "BROKEN", None: "not declared"}[result.kept]
            why = f": {result.why}" if result.kept is False and result.why else ""
            sys.stdout.write(f"{role.value:6}  {word:12}  {result.rule}{why}\n")
            sys.stdout.flush()
            broken += result.kept is False
    sys.stdout.write(f"{broken} rules broken\n" if broken else "every rule kept\n")
    sys.stdout.flush()
    os._exit(1 if broken else 0)


if __name__ == "__main__":
    main()

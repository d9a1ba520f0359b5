"""The commands, one file each; they parse flags and print, and have no logic of their own."""

from __future__ import annotations


def main() -> None:
    """The `ropeway` command; ends the process."""
    from ropeway.cli.app import app
    from ropeway.launch.rank import leave

    try:
        app()
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        leave(end.code or 0)

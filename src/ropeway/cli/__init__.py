"""The commands, one file each; they parse flags and print, and have no logic of their own."""

from __future__ import annotations


def main() -> None:
    """The `ropeway` command."""
    from ropeway.cli.app import app

    app()

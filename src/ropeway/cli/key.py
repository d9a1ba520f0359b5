"""`ropeway key new FILE`: make the key that every rank of a ring shares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropeway.cli.flags import people
from ropeway.launch.keys import write_key

app = typer.Typer(no_args_is_help=True, help="The ring's shared key.")


@app.callback()
def _key() -> None:
    """The ring's shared key."""


@app.command()
def new(file: Annotated[Path, typer.Argument(metavar="FILE")]) -> None:
    """Write a fresh key to FILE (mode 0600). Copy it to every machine of the ring, over a channel you trust."""
    with people():
        write_key(file)
    typer.echo(f"{file}: a new key; copy it to every machine of the ring")

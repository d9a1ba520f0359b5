"""`ropeway pull MODEL`: have a model in the cache before it is needed."""

from __future__ import annotations

import typer

from ropeway.checkpoints.checkpoint import resolve_checkpoint
from ropeway.cli.flags import Model, people


def pull(model: Model = "demo") -> None:
    """Fetch MODEL into the cache (demo, or hf:ORG/NAME) and print where it is."""
    with people():
        typer.echo(str(resolve_checkpoint(model)))

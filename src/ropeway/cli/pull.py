"""`ropeway pull MODEL`: have a model's file in the cache before it is needed."""

from __future__ import annotations

import typer

from ropeway.checkpoints.demo import resolve_model
from ropeway.cli.flags import Model, people


def pull(model: Model = "demo") -> None:
    """Fetch MODEL into the cache (the demo model, so far) and print where it is."""
    with people():
        typer.echo(str(resolve_model(model)))

"""`ropeway digests MODEL`: list a checkpoint's digests, for those who fetch parts of it."""

from __future__ import annotations

import typer

from ropeway.checkpoints.checkpoint import resolve_checkpoint
from ropeway.checkpoints.fetch.digests import make_digests
from ropeway.checkpoints.fetch.offer import local_offer
from ropeway.cli.flags import Model, people


def digests(model: Model) -> None:
    """Print the SHA-256 of MODEL's headers, tensors and files as JSON, for `ropeway pull --digests`."""
    with people():
        typer.echo(make_digests(local_offer(resolve_checkpoint(model))).encode())

"""`ropeway pull MODEL`: have a model, or a rank's layers of it, in the cache before they are needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ropeway.checkpoints.budget import cache_limit, parse_size
from ropeway.checkpoints.checkpoint import resolve_checkpoint
from ropeway.checkpoints.demo import DEMO
from ropeway.checkpoints.fetch.bar import progress_bar
from ropeway.checkpoints.fetch.digests import Digests
from ropeway.checkpoints.fetch.joined import part_names
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.offer import open_offer
from ropeway.checkpoints.fetch.provide import Fetch, Fetched
from ropeway.checkpoints.fetch.spec import is_remote
from ropeway.cli.flags import Json, Model, people
from ropeway.launch.fetching import SLICED


def pull(
    model: Model = DEMO,
    layers: Annotated[
        str | None, typer.Option("--layers", metavar="0:15", help="Only these layers; the embeddings go with layer 0.")
    ] = None,
    head: Annotated[bool, typer.Option("--head", help="With --layers: the norm and output matrix too.")] = False,
    engine: Annotated[str, typer.Option("--engine", help="With --layers: the engine that will load them.")] = "",
    limit: Annotated[
        str | None,
        typer.Option("--cache-limit", metavar="40GB", help="Most that fetched models and slices may take on the disk."),
    ] = None,
    digests: Annotated[
        Path | None,
        typer.Option("--digests", metavar="FILE", help="Hold every piece against this list (ropeway digests MODEL)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch MODEL into the cache and print where it is: demo, hf:ORG/NAME[@REVISION][:FILE], a URL, or a path.

    Repeat it after a failure: what has been fetched is not read again.
    """
    with people():
        listed = None if digests is None else Digests.read(digests)
        if layers is None and (head or engine):
            raise ValueError("layers: --head and --engine are for a part of a model (--layers)")
        need = None if layers is None else Need.parse(layers, head=head)
        most = cache_limit() if limit is None else parse_size(limit, "cache-limit")
        place = model
        if not is_remote(model) and part_names(Path(model).name) is None:
            place = str(path := resolve_checkpoint(model))
            if need is None and listed is None:
                _print(Fetched(path, (path,), 0, ()), as_json)
                return
        with open_offer(place) as offer, progress_bar(f"Fetching {offer.text}") as progress:
            sliced = bool(offer.gguf) and engine in ("", SLICED)
            vouch = {} if listed is None else listed.for_offer(offer)
            fetched = Fetch(offer, limit=most, progress=progress, vouch=vouch).provide(need, slices=sliced)
        _print(fetched, as_json)


def _print(fetched: Fetched, as_json: bool) -> None:
    if as_json:
        value = {
            "path": str(fetched.path),
            "files": [str(file) for file in fetched.files],
            "network_bytes": fetched.network_bytes,
            "checked": list(fetched.checked),
        }
        typer.echo(json.dumps(value))
        return
    typer.echo(str(fetched.path))
    if fetched.network_bytes:
        typer.echo(f"ropeway: {_megabytes(fetched.network_bytes)} came over the network", err=True)
    for line in fetched.checked:
        typer.echo(f"ropeway: checked: {line}", err=True)


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"

"""`ropeway probe`: round trip and bandwidth between every pair of machines, and what is wrong with a link."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ropeway.cli import flags
from ropeway.cli.session import ring_setup
from ropeway.placement.inventory import link_json
from ropeway.placement.probe import Measured, probe_layout, probe_links, rows
from ropeway.transport import RingConfig


def probe(
    ring: Annotated[str, typer.Option("--ring", metavar="HOST:PORT,...", help="Every machine's address, in order.")],
    rank: Annotated[int, typer.Option("--rank", min=0, help="This machine's place in --ring.")],
    key: flags.Key = None,
    names: Annotated[str, typer.Option("--names", metavar="NAME,...", help="The nodes' names, as in --ring.")] = "",
    wait_s: Annotated[float, typer.Option("--wait-s", min=0, help="How long the others may take to start.")] = 60.0,
    listen: flags.Listen = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Append the links to a nodes file.")] = None,
    as_json: flags.Json = False,
) -> None:
    """Run it on every machine at about the same time. Exit status 1 where a link does not work."""
    with flags.people():
        setup = ring_setup(rank, ring, key, listen)
        addresses = setup.addresses
        called = [name.strip() for name in names.split(",")] if names else [f"rank{r}" for r in range(len(addresses))]
        if len(called) != len(addresses):
            raise ValueError(f"names: {len(called)} names for {len(addresses)} addresses")
        config = RingConfig(
            rank, probe_layout(len(addresses)), setup.key, addresses, 1, listen=setup.listen or addresses[rank]
        )
        try:
            found = probe_links(config, wait_s, lambda one: None if as_json else _say(one, called))
        except OSError as error:
            raise flags.fail(str(error), flags.EXIT_FAILED) from error
        links = [link_json(called[rank], called[one.rank], one.link) for one in found if one.link]
        if out is not None:
            flags.write_text(out, "".join(_toml(link) for link in links), "a")
        if as_json:
            troubles = {called[one.rank]: one.trouble for one in found if one.trouble}
            typer.echo(json.dumps({"link": links, "trouble": troubles}))
        else:
            for one in found:
                if one.link and one.trouble:
                    typer.echo(one.trouble)
        if any(one.trouble for one in found):
            raise typer.Exit(flags.EXIT_FAILED)


def _say(one: Measured, names: list[str]) -> None:
    if one.link is None:
        typer.echo(f"{names[one.rank]}: {one.trouble}")
        return
    (_, address, trip, bandwidth) = rows([one])[0]
    typer.echo(f"{names[one.rank]} ({address}): round trip {trip} (spread {one.spread:.0%}), {bandwidth}")


def _toml(link: dict[str, object]) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in link.items()]
    return "\n[[link]]\n" + "\n".join(lines) + "\n"

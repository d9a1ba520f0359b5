"""The `ropeway` command line."""

from __future__ import annotations

from typing import Annotated

import typer

from ropeway import __version__
from ropeway.cli import calibrate, check, demo, digests, facts, key, nodes, place, probe, pull, run, serve, stage, up

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="One language model, split by layers over the machines you have, with the same bits as one process.",
    epilog="Exit status: 0 done, 1 failed, 2 wrong usage, 70 the ring was lost, 130 interrupted, 143 terminated.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ropeway {__version__}")
        raise typer.Exit


@app.callback()
def _ropeway(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """One language model, split by layers over the machines you have, with the same bits as one process."""


app.command()(demo.demo)
app.command()(run.run)
app.command()(serve.serve)
app.command()(check.check)
app.command()(stage.stage)
app.command()(pull.pull)
app.command()(digests.digests)
app.command()(place.place)
app.command()(facts.facts)
app.command()(calibrate.calibrate)
app.command()(probe.probe)
app.command()(up.up)
app.command()(up.node)
app.command()(nodes.nodes)
app.command()(nodes.drain)
app.command()(nodes.down)
app.add_typer(key.app, name="key")

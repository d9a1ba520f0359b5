"""`pp-smoke-run`: rent machines (or start processes here), say hello through a ring over them, give everything back.

Exit status: 0 a reply came and nothing is left; 1 anything else; 2 wrong usage, before anything was rented.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from ropeway.cluster.settings import DEFAULT_RELAYS, check_relays
from ropeway.launch.provider import Provider, Wanted
from ropeway.launch.vastai import SERVER, TIMEOUT_S, VastAi, check_server
from ropeway.smoke.cleanup import clean_up
from ropeway.smoke.cluster import HERE, KINDS, Reach
from ropeway.smoke.ledger import Ledger
from ropeway.smoke.local import LocalProvider
from ropeway.smoke.renting import Pace
from ropeway.smoke.reporter import Reporter
from ropeway.smoke.result import Result, banner, leftovers
from ropeway.smoke.run import RunSettings, new_label, smoke_run, usable_threads
from ropeway.smoke.steps import LIMITS_S

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
RENTED_MODEL: Final = "llama3.2:1b"
LOCAL_POLL_S: Final = 0.5

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def smoke(
    vastai: Annotated[bool, typer.Option("--vastai", help="Rent machines on vast.ai.")] = False,
    local: Annotated[bool, typer.Option("--local", help="Child processes on this machine (the default).")] = False,
    cleanup: Annotated[bool, typer.Option("--cleanup", help="Give back what runs that were killed have left.")] = False,
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", envvar="VAST_API_KEY", show_envvar=True, help="The account's key.", metavar="KEY"),
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option("--api-key-file", metavar="FILE", help="A file that holds the key and nothing else.")
    ] = None,
    num_stages: Annotated[int, typer.Option("--num-stages", min=1, max=64, help="How many machines.")] = 2,
    prompt: Annotated[str, typer.Option("--prompt", help="What to say.")] = "Say hello",
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Longest reply.")] = 64,
    model: Annotated[
        str | None, typer.Option("--model", help=f"What the stages load: {RENTED_MODEL} on rented machines, else demo.")
    ] = None,
    engine: Annotated[
        str,
        typer.Option("--engine", help="What computes: llamacpp, torch, tinygrad, or worker: a process behind a pipe."),
    ] = "",
    worker_cmd: Annotated[
        str, typer.Option("--worker-cmd", metavar="COMMAND", help="The worker's; pp_tinygrad_worker.py by default.")
    ] = "",
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="Only this card, as the service names it.")] = "",
    image: Annotated[
        str, typer.Option("--image", envvar="ROPEWAY_IMAGE", show_envvar=True, help="The image of docker/Dockerfile.")
    ] = "",
    disk: Annotated[int, typer.Option("--disk", min=1, help="Gigabytes a machine.")] = 40,
    max_price: Annotated[
        float | None, typer.Option("--max-price", help="Dollars an hour, all machines together.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", help="Dollars that the run may cost if it takes as long as it may.")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds, all told; giving back is not counted.")] = 300.0,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="STEP=SECONDS", help=f"Another limit for one of: {', '.join(LIMITS_S)}."),
    ] = None,
    keep_on_failure: Annotated[
        bool, typer.Option("--keep-on-failure", help="Leave the machines of a failed run for ten minutes.")
    ] = False,
    label: Annotated[str, typer.Option("--label", help="What the run's label begins with.")] = "",
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="|".join(KINDS), help="How nodes meet; tcp is for this machine only.")
    ] = "",
    relays: Annotated[
        str, typer.Option("--relays", metavar="default|none|URL,...", help="Relays for iroh; none on this machine.")
    ] = "",
    server_url: Annotated[str, typer.Option("--server-url", help="Another address of the service.")] = SERVER,
    poll: Annotated[
        float | None, typer.Option("--poll", min=0.05, help="Seconds between looks at the machines.")
    ] = None,
    request_timeout: Annotated[
        float, typer.Option("--request-timeout", min=0.1, help="Seconds for one answer of the service.")
    ] = TIMEOUT_S,
    reconcile: Annotated[
        float, typer.Option("--reconcile", min=0, help="Seconds to look for the machine of a create without an answer.")
    ] = 30.0,
    context: Annotated[int, typer.Option("--context", min=1, help="Most positions, prompt and reply.")] = 2048,
    threads: Annotated[int, typer.Option("--threads", min=0, help="CPU threads a stage; 0: as suits.")] = 0,
    as_json: Annotated[bool, typer.Option("--json/--no-json", help="Print one JSON object instead.")] = False,
) -> None:
    """Rent machines, say hello through a ring over them, and give every one of them back."""
    try:
        if vastai and local:
            raise ValueError("local: --local and --vastai exclude each other")
        if keep_on_failure and not vastai:
            raise ValueError("keep-on-failure: processes on this machine end with the run")
        pace = Pace(poll_s=poll or (10.0 if vastai else LOCAL_POLL_S), reconcile_s=reconcile)
        limits = _limits(limit or [])
        with Reporter() as reporter:
            if cleanup:
                limit_s = limits.get("destroy", LIMITS_S["destroy"])
                make = partial(_service, api_key, api_key_file, request_timeout)
                raise typer.Exit(0 if clean_up(make, server_url, reporter, limit_s, 2 * reconcile) else EXIT_FAILED)
            cluster = cluster or ("iroh" if vastai else "tcp")
            settings = RunSettings(
                Wanted(num_stages, gpu, disk_gb=disk),
                prompt=prompt,
                max_tokens=max_tokens,
                model=model or (RENTED_MODEL if vastai else "demo"),
                engine=engine,
                worker_cmd=worker_cmd,
                image=image,
                cluster=_cluster(cluster, vastai, server_url),
                reach=_reach(relays, vastai and server_url.startswith("https:")),
                context=context,
                threads=threads or (0 if vastai else usable_threads(num_stages)),
                max_price=max_price,
                budget=budget,
                timeout_s=timeout,
                limits_s=limits,
                pace=pace,
                keep_on_failure=keep_on_failure,
                label=new_label(label),
                server=server_url if vastai and server_url != SERVER else "",
            )
            if vastai and not image:
                raise ValueError("image: --vastai needs --image NAME or ROPEWAY_IMAGE (docs/smoke-run.md makes one)")
            provider: Provider
            provider = _service(api_key, api_key_file, request_timeout, server_url) if vastai else LocalProvider()
            status = _run(settings, provider, reporter, as_json)
    except ValueError as error:
        sys.stderr.write(f"pp-smoke-run: {error}\n")
        raise typer.Exit(EXIT_USAGE) from None
    raise typer.Exit(status)


def _service(key: str | None, key_file: Path | None, timeout_s: float, server: str) -> Provider:
    return VastAi(_key(key, key_file), server, timeout_s=timeout_s)


def _run(settings: RunSettings, provider: Provider, reporter: Reporter, as_json: bool) -> int:
    result: Result | None = None
    ledger: Ledger | None = None
    try:
        if provider.server:
            ledger = Ledger.begin(provider.name, provider.server, settings.label)
        result = smoke_run(settings, provider, ledger, reporter)
    finally:
        provider.close()
        if ledger is not None:
            ledger.close(settled=result is not None and not result.left)
    reporter.settle()
    status = 0 if result.ok else EXIT_FAILED
    text = banner(result.text, shutil.get_terminal_size().columns) if result.text else ""
    try:
        typer.echo(json.dumps(result.to_json()) if as_json else text, nl=as_json or bool(text))
    except OSError:  # nobody reads it; what may still cost money must be said all the same
        status = EXIT_FAILED
    if not as_json:
        for line in result.summary():
            reporter.plain(line)
    for line in leftovers(result.left, provider.destroy_command("{id}"), settings.label):
        reporter.red(line)
    return status


def _key(given: str | None, file: Path | None) -> str:
    """The key, from a file, a flag or VAST_API_KEY. Raises ValueError that does not hold it."""
    if file is not None:
        try:
            return file.read_text().strip()
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"api-key-file: {file} cannot be read") from None
    if not given:
        raise ValueError("api-key: --vastai needs --api-key KEY, --api-key-file FILE or VAST_API_KEY")
    return given.strip()


def _cluster(kind: str, vastai: bool, server_url: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"cluster: {kind!r} is none of {', '.join(KINDS)}")
    check_server(server_url)
    if kind == "tcp" and vastai and server_url.startswith("https:"):
        raise ValueError("cluster: tcp reaches this machine only; rented ones need iroh")
    return kind


def _reach(relays: str, far: bool) -> Reach:
    check_relays(relays or DEFAULT_RELAYS)
    if far:
        return Reach(relays or DEFAULT_RELAYS)
    return replace(HERE, relays=relays) if relays else HERE


def _limits(texts: list[str]) -> dict[str, float]:
    limits: dict[str, float] = {}
    for text in texts:
        name, _, seconds = text.partition("=")
        if name not in LIMITS_S:
            raise ValueError(f"limit: {name!r} is none of {', '.join(LIMITS_S)}")
        try:
            limits[name] = float(seconds)
        except ValueError:
            raise ValueError(f"limit: {text!r} is not STEP=SECONDS") from None
        if not 0 < limits[name] < float("inf"):
            raise ValueError(f"limit: {text!r} is not above 0")
    return limits


def main() -> None:
    """The command; ends the process."""
    try:
        app()
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        _leave(end.code or 0)


def _leave(status: int) -> NoReturn:
    """End the process now: a request for a log that nobody waits for any more would hold it up."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody can read it any more
            status = status or EXIT_FAILED
    os._exit(status)


if __name__ == "__main__":
    main()

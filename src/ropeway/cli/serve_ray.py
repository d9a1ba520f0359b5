"""`ropeway serve MODEL --on ray`: several rings on a Ray cluster behind one address."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import typer

from ropeway.launch.placement import Options


def serve_on_ray(
    options: Options,
    listener: socket.socket,
    host: str,
    *,
    replicas: int,
    address: str,
    gpus: float,
    serving: tuple[str, ...],
    api_key: Path | None,
    drain_s: float,
) -> None:
    """Serve until terminated. Raises ValueError where there is no Ray, or an option cannot be had on it."""
    from ropeway.api import run_server
    from ropeway.api.balancer import Balancer
    from ropeway.launch.ray import RayOptions, RayReplicas, connect

    keys = api_key.read_text() if api_key is not None else ""
    wanted = RayOptions(options.model, options.stages, replicas, rank_flags(options), serving, keys, gpus=gpus)
    rings = RayReplicas(connect(address), wanted)
    logging.getLogger("ropeway.ray").info("%d replicas of %d ranks", replicas, options.stages)
    rings.start()
    try:
        run_server(
            Balancer(rings.backends),
            listener,
            on_ready=lambda at: typer.echo(f"ropeway: http://{host}:{at}", err=True),
            drain_s=drain_s,
        )
    finally:
        rings.stop()


def rank_flags(options: Options) -> tuple[str, ...]:
    """The flags that every rank of a ring is started with. Raises ValueError for one that Ray cannot have."""
    if options.worker_cmd:
        raise ValueError("worker_cmd: on Ray every rank runs our own engines")
    words = [
        *("--context", str(options.context), "--parallel", str(options.parallel), "--part", str(options.part)),
        *("--threads", str(options.threads), "--gpu-layers", str(options.gpu_layers)),
    ]
    if options.cuts is not None:
        words += ["--cuts", ",".join(map(str, options.cuts))]
    if options.engines:
        words += ["--engines", ",".join(options.engines)]
    for name, text in (("--dtype", options.dtype), ("--device", options.device)):
        words += [name, text] if text else []
    for name, wanted in (("--invariant", options.invariant), ("--verify-weights", options.verify_weights)):
        words += [name] if wanted else []
    return tuple(words)

"""`ropeway serve MODEL --on ray`: several rings on a Ray cluster behind one address."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass

import typer

from ropeway.launch.placement import Options
from ropeway.launch.ray_nodes import Demand
from ropeway.launch.signals import Interrupted


@dataclass(frozen=True, slots=True)
class OnRay:
    """What the flags of `ropeway serve` say of Ray."""

    replicas: int
    address: str
    demand: Demand
    serving: tuple[str, ...]
    """Flags for each replica's rank 0."""


def serve_on_ray(
    options: Options,
    on: OnRay,
    listener: socket.socket,
    host: str,
    *,
    keys: tuple[bytes, ...],
    names: frozenset[str] | None,
    drain_s: float,
) -> None:
    """Serve until terminated. Raises ValueError where there is no Ray, or an option cannot be had on it."""
    from ropeway.api import Settings, run_server
    from ropeway.api.balancer import Balancer
    from ropeway.launch.ray import RayOptions, RayReplicas, connect

    wanted = RayOptions(options, on.replicas, on.demand, on.serving)
    ray = connect(on.address)
    rings = RayReplicas(ray, wanted)
    logging.getLogger("ropeway.ray").info("%d replicas of %d ranks", on.replicas, options.stages)
    rings.start()
    draining = threading.Thread(target=rings.drain, args=(drain_s,), name="drain", daemon=True)
    try:
        with suppress(Interrupted):
            run_server(
                Balancer(rings.backends, Settings(keys, names), options.context),
                listener,
                on_ready=lambda at: typer.echo(f"ropeway: http://{host}:{at}", err=True),
                on_stop=draining.start,
                drain_s=drain_s,
            )
    finally:
        rings.stop()
        ray.shutdown()
        listener.close()

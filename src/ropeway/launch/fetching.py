"""The placement of one rank of a ring over machines, whose node fetches only what that rank needs."""

from __future__ import annotations

import socket
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.bar import progress_bar
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.offer import local_offer, open_offer, peer_offer
from ropeway.checkpoints.fetch.provide import Fetch
from ropeway.checkpoints.fetch.spec import is_remote
from ropeway.cluster.job import Weights
from ropeway.launch.placement import Options, Placement, place
from ropeway.transport.switched import ask

SLICED = "llamacpp"
"""The engine that loads slices; the others read a copy of the checkpoint by layers."""
ASK_S = 15.0
"""How long a node may take to answer that it gives weights."""


def place_rank(options: Options, rank: int, world: int) -> Placement:
    """As `place`; a model that is elsewhere is fetched as far as `rank` of `world` needs it, before a ring is joined.

    Nothing but headers is fetched for a placement of another world, which the caller refuses. Raises CheckpointError,
    or ValueError naming the option that is wrong.
    """
    if not is_remote(options.model):
        return place(options)
    with open_offer(options.model) as offer, progress_bar(f"Fetching {offer.text}") as progress:
        fetch = Fetch(offer, progress=progress)
        placement = place(replace(options, model=str(fetch.header())))
        if placement.layout.world != world:
            return placement
        return provided(placement, rank, fetch)


def place_from_nodes(options: Options, rank: int, weights: Weights, switch: Path) -> Placement:
    """As `place_rank`, for a model that lies on nodes of the cluster, which is reached through the agent's switch.

    Where the same files lie here under the same name they are used as they are.
    """
    if _lies_here(options.model, weights):
        return place(options)
    peers = [(f"node {node[:8]}", partial(_connect, switch, node)) for node in weights.nodes]
    with (
        closing(peer_offer(weights.text, weights.keys, peers)) as offer,
        progress_bar(f"Fetching {offer.text}") as progress,
    ):
        fetch = Fetch(offer, progress=progress)
        return provided(place(replace(options, model=str(fetch.header()))), rank, fetch)


def _lies_here(model: str, weights: Weights) -> bool:
    try:
        return local_offer(Path(model)).keys == weights.keys
    except CheckpointError:
        return False


def _connect(switch: Path, node: str) -> socket.socket:
    return ask(switch, {"to": "weights", "node": node}, ASK_S)[0]


def provided(placement: Placement, rank: int, fetch: Fetch) -> Placement:
    """The placement with what `rank` needs in the cache. Raises CheckpointError."""
    need = rank_need(placement, rank)
    return replace(placement, path=fetch.provide(need, slices=placement.engines[rank] == SLICED).path)


def rank_need(placement: Placement, rank: int) -> Need:
    """What a rank needs of the checkpoint."""
    config = placement.engine_config(rank)
    return Need(config.first, config.end, config.embed, config.head)

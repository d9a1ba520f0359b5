"""The placement of one rank of a ring over machines, whose node fetches only what that rank needs."""

from __future__ import annotations

from dataclasses import replace

from ropeway.checkpoints.fetch.bar import progress_bar
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.offer import open_offer
from ropeway.checkpoints.fetch.provide import Fetch
from ropeway.checkpoints.fetch.spec import is_remote
from ropeway.launch.placement import Options, Placement, place

SLICED = "llamacpp"
"""The engine that loads slices; the others read a copy of the checkpoint by layers."""


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


def provided(placement: Placement, rank: int, fetch: Fetch) -> Placement:
    """The placement with what `rank` needs in the cache. Raises CheckpointError."""
    need = rank_need(placement, rank)
    return replace(placement, path=fetch.provide(need, slices=placement.engines[rank] == SLICED).path)


def rank_need(placement: Placement, rank: int) -> Need:
    """What a rank needs of the checkpoint."""
    config = placement.engine_config(rank)
    return Need(config.first, config.end, config.embed, config.head)

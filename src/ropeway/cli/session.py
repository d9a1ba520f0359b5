"""What `demo`, `run` and `check` share: flags to a placement, a placement to a ring that is ready, and its views."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ropeway.checkpoints.checkpoint import resolve_checkpoint
from ropeway.checkpoints.fetch.spec import is_remote
from ropeway.cli.picture import StageView
from ropeway.engines.cores import usable_cores
from ropeway.launch.fetching import place_rank
from ropeway.launch.keys import read_key
from ropeway.launch.placement import Options, Placement, place
from ropeway.launch.rank import RankSetup, leave_soon
from ropeway.launch.rank0 import Rank0, open_local, open_ring
from ropeway.launch.signals import Interruption
from ropeway.transport import Ring, tcp


def ring_setup(rank: int, ring: str, key: Path | None, listen: str | None) -> RankSetup:
    """A rank's place in a ring over several machines. Raises ValueError naming the flag."""
    addresses = tuple(part.strip() for part in ring.split(","))
    if key is None:
        raise ValueError("key: a ring over several machines needs --key FILE (ropeway key new FILE makes one)")
    if not 0 <= rank < len(addresses):
        raise ValueError(f"rank: {rank} has no address in --ring, which names {len(addresses)} ranks")
    tcp.check_listen(listen or addresses[rank])
    return RankSetup(rank, addresses, read_key(key), listen=listen or "")


def place_ring(options: Options, setup: RankSetup) -> Placement:
    """The placement of a ring whose addresses are given. Raises ValueError where it has another number of stages."""
    placement = place_rank(replace(options, stages=len(setup.addresses)), setup.rank, len(setup.addresses))
    if placement.layout.world != len(setup.addresses):
        raise ValueError(
            f"cuts: they make {placement.layout.world} stages, --ring has {len(setup.addresses)} addresses"
        )
    return placement


@contextmanager
def open_rank0(
    options: Options,
    interruption: Interruption,
    ring: str | None = None,
    key: Path | None = None,
    listen: str | None = None,
) -> Iterator[Rank0]:
    """A ring that is ready: over the machines of `ring`, or of child processes here. An interruption stops it."""

    def begun(live: Ring) -> None:
        # A command must end within a second of its ring, even in the middle of a forward.
        live.on_end(lambda: leave_soon(0, live))
        interruption.cover(live.stop)

    if ring is not None:
        setup = ring_setup(0, ring, key, listen)
        with open_ring(place_ring(options, setup), setup, begun) as rank0:
            yield rank0
        return
    with open_local(place_local(options, key, listen), begun=begun) as rank0:
        yield rank0


def place_local(options: Options, key: Path | None, listen: str | None) -> Placement:
    """The placement of a ring of child processes, which share this machine's cores out among them."""
    if key is not None or listen is not None:
        raise ValueError("ring: --key and --listen are for a ring over several machines (--ring)")
    if is_remote(options.model):  # once, not in every rank's process
        options = replace(options, model=str(resolve_checkpoint(options.model)))
    placement = place(options)
    if options.threads:
        return placement
    threads = max(1, usable_cores() // placement.layout.world)
    return replace(placement, options=replace(options, threads=threads))


def stage_views(rank0: Rank0) -> list[StageView]:
    """The stages as pictures and JSON show them."""
    layout = rank0.placement.layout
    return [
        StageView(
            rank=rank,
            first=fact.describe.first,
            end=fact.describe.end,
            engine=fact.describe.engine.name.lower(),
            backend=fact.describe.backend.name.lower(),
            weights_bytes=fact.ready.weights_bytes,
            embeds=rank == 0,
            has_head=rank == layout.head_rank,
        )
        for rank, fact in enumerate(rank0.facts)
    ]


def stages_json(rank0: Rank0) -> list[dict[str, object]]:
    """The stages for `--json`."""
    names = ("rank", "first", "end", "engine", "backend", "weights_bytes")
    return [{name: getattr(view, name) for name in names} for view in stage_views(rank0)]

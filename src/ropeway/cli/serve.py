"""`ropeway serve MODEL`: an OpenAI-compatible API on a split model, and a page that shows the ring."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropeway.cli import flags
from ropeway.cli.serve_ray import OnRay, serve_on_ray
from ropeway.cli.session import place_local, place_ring, ring_setup
from ropeway.launch.drafting import DraftOptions, check_draft
from ropeway.launch.fetching import place_rank
from ropeway.launch.placement import CHUNK, Options, Placement
from ropeway.launch.placing import place_options
from ropeway.launch.rank import EXIT_FAILED, RankSetup
from ropeway.launch.rank0 import Rank0, open_local, open_ring
from ropeway.launch.ray_nodes import Demand
from ropeway.launch.replica import Opener, Replica
from ropeway.launch.replica_options import LONGEST_PAUSE_S, ReplicaOptions
from ropeway.launch.signals import Interrupted
from ropeway.transport import Ring
from ropeway.types import SamplerAt
from ropeway.verify.evidence import certified

if TYPE_CHECKING:
    from ropeway.launch.cluster import ClusterOpener


class Resume(Enum):
    """What becomes of replies whose ring is lost."""

    OFF = "off"
    """They end with an error event."""
    SAME_BACKEND = "same-backend"
    """They go on where the next ring has the same engines and backends."""


def serve(
    model: flags.Model,
    host: Annotated[
        str, typer.Option("--host", help="Address to serve at; beyond loopback only with a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any free port.")] = 8000,
    api_key: Annotated[
        Path | None, typer.Option("--api-key", metavar="FILE", help="File with the API's key, or several, one a line.")
    ] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Let anybody who reaches the address use it.")] = False,
    queue: Annotated[int, typer.Option("--queue", min=0, help="Requests that may wait for a slot.")] = 64,
    cache_mb: Annotated[
        int, typer.Option("--cache-mb", min=0, help="Memory for kept prompts, all stages together.")
    ] = 256,
    restarts: Annotated[
        int, typer.Option("--restarts", min=0, help="How often in a row a lost ring is brought up again.")
    ] = 5,
    groups: Annotated[int, typer.Option("--groups", min=0, help="Rounds under way at once; 0: one a stage.")] = 0,
    drain: Annotated[
        float, typer.Option("--drain", min=0, help="Seconds that replies may go on once it is told to stop.")
    ] = 10.0,
    model_id: Annotated[
        str, typer.Option("--model-id", help="The model's name in the API; the file's unless given.")
    ] = "",
    stages: flags.Stages = 2,
    cuts: flags.Cuts = None,
    threads: flags.Threads = 0,
    context: flags.Context = 4096,
    parallel: flags.Parallel = 8,
    part: flags.Part = 0,
    draft: flags.Draft = "none",
    draft_batch: flags.DraftBatch = False,
    gpu_layers: flags.GpuLayers = -1,
    verify_weights: flags.VerifyWeights = False,
    engine: flags.Engine = "",
    engines: flags.Engines = "",
    dtype: flags.Dtype = "",
    device: flags.Device = "",
    invariant: flags.Invariant = False,
    worker_cmd: flags.WorkerCmd = "",
    ring: flags.RingOption = None,
    key: flags.Key = None,
    listen: flags.Listen = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Place the stages on the nodes of this machine's cluster (ropeway up).")
    ] = False,
    home: flags.HomeOption = None,
    resume: Annotated[
        Resume, typer.Option("--resume", help="Whether replies of a lost ring go on on the next one, after a pause.")
    ] = Resume.OFF,
    on: Annotated[
        str, typer.Option("--on", metavar="ray", help="Run the rings as actors of a Ray cluster, a rank a node.")
    ] = "",
    replicas: Annotated[
        int, typer.Option("--replicas", min=1, help="With --on ray: rings behind this address, the least busy answers.")
    ] = 1,
    ray_address: Annotated[str, typer.Option("--ray-address", help="The Ray cluster; auto: the one here.")] = "auto",
    ray_cpus: Annotated[
        float,
        typer.Option("--ray-cpus", min=0, help="CPUs that each rank asks Ray for; 0: all that its node has free."),
    ] = 0.0,
    ray_gpus: Annotated[float, typer.Option("--ray-gpus", min=0, help="GPUs that each rank asks Ray for.")] = 0.0,
    place: flags.Place = "",
    goal: flags.GoalOption = "decode",
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="This placement's certificate; replies bear its id."),
    ] = None,
    certificate_key: Annotated[
        Path | None, typer.Option("--certificate-key", metavar="FILE", help="The key that signed it.")
    ] = None,
) -> None:
    """Serve until interrupted or terminated, which is its good end (exit status 0).

    With --ring this is rank 0; the others run `ropeway stage` with the same flags. With --cluster the agents of the
    nodes run them, as many as --stages says and nodes are there, and take others when one is lost.
    """
    from ropeway.api import Settings, create_app, open_listener, read_api_keys, run_server
    from ropeway.api.settings import LOOPBACK_NAMES

    logging.basicConfig(level=logging.INFO, format="ropeway: %(message)s")
    with flags.people(guarded=False):
        if on not in ("", "ray"):
            raise ValueError(f"on: {on!r} is not ray")
        if on and (cluster or ring or key or listen or place or home):
            raise ValueError("on: a ring on Ray takes no flags of other rings")
        if on and (draft != "none" or resume is not Resume.OFF or certificate or certificate_key):
            raise ValueError("on: a ring on Ray cannot have --draft, --resume or --certificate yet")
        if replicas > 1 and not on:
            raise ValueError("replicas: several rings behind one address are for --on ray")
        if cluster and (ring or key or listen or place):
            raise ValueError("cluster: it places and joins its ring itself; leave --ring, --key, --listen and --place")
        keys = read_api_keys(api_key) if api_key is not None else ()
        try:
            listener = open_listener(host, port, protected=bool(keys) or no_auth)
        except OSError as error:
            raise flags.fail(f"{host}:{port} cannot be listened at: {error.strerror or error}", EXIT_FAILED) from None
        options = Options(
            model,
            stages,
            flags.parse_cuts(cuts),
            SamplerAt.FIRST,
            context,
            parallel,
            max(part, CHUNK),
            part,
            threads,
            gpu_layers,
            verify_weights or certificate is not None,
            flags.parse_engines(engine, engines),
            dtype,
            device,
            invariant,
            worker_cmd,
        )
        names = None if keys or no_auth else LOOPBACK_NAMES
        if on:
            given = ("--queue", str(queue), "--cache-mb", str(cache_mb), "--groups", str(groups), "--drain", str(drain))
            named = ("--model-id", model_id) if model_id else ()
            ray = OnRay(replicas, ray_address, Demand(ray_cpus, ray_gpus), (*given, *named))
            serve_on_ray(options, ray, listener, host, keys=keys, names=names, drain_s=drain)
            return
        plan = None
        drafts = DraftOptions.parse(draft, batch=draft_batch)
        if place:
            options, plan = place_options(options, place, goal, ring.split(",") if ring else (), drafts)
        over = _over_cluster(options, home) if cluster else None
        if over is None:
            placement, bring_up = _ring(options, ring, key, listen)
        else:
            placement, bring_up = place_rank(options, 0, 0), over  # of a model that is elsewhere, headers alone
        check_draft(drafts, placement)
        replica = Replica(
            placement,
            bring_up,
            ReplicaOptions(
                queue,
                cache_mb << 20,
                groups or placement.layout.world,
                restarts if over is None else sys.maxsize,  # nodes come back when they do
                longest_pause_s=LONGEST_PAUSE_S if over is None else over.pause_s,
                model_id=model_id,
                resume=resume is Resume.SAME_BACKEND,
                draft=drafts,
                plan=plan,
            ),
        )
        if over is not None:
            over.on_drain = lambda node: replica.place_again(f"{node} is being drained: placing again without it")
        told = "", ""
        if certificate is not None:
            told = certified(certificate, certificate_key or key, placement)
        app = create_app(replica, Settings(keys, names, certificate=told[0], certified=told[1]))
        replica.start()
        draining = threading.Thread(target=replica.drain, args=(drain,), name="drain", daemon=True)
        try:
            with suppress(Interrupted):
                run_server(
                    app,
                    listener,
                    on_ready=lambda at: typer.echo(f"ropeway: http://{host}:{at}", err=True),
                    on_stop=draining.start,
                    drain_s=drain,
                )
        finally:
            replica.stop(drain_s=0)
            listener.close()


def _over_cluster(options: Options, home: Path | None) -> ClusterOpener:
    from ropeway.cluster.home import Home, default_home
    from ropeway.launch.cluster import ClusterOpener

    return ClusterOpener(options, Home(home or default_home()))


class _Opener:
    """Brings the ring up, each time anew."""

    def __init__(self, placement: Placement, setup: RankSetup | None) -> None:
        self._placement = placement
        self._setup = setup

    def __call__(self, begun: Callable[[Ring], None]) -> AbstractContextManager[Rank0]:
        if self._setup is None:
            return open_local(self._placement, begun=begun)
        return open_ring(self._placement, self._setup, begun)


def _ring(options: Options, ring: str | None, key: Path | None, listen: str | None) -> tuple[Placement, Opener]:
    setup = None if ring is None else ring_setup(0, ring, key, listen)
    placement = place_local(options, key, listen) if setup is None else place_ring(options, setup)
    return placement, _Opener(placement, setup)

"""One ring on Ray: its nodes reserved, its ranks started, watched until one is lost, given back, and placed again."""

from __future__ import annotations

import http.client
import logging
import secrets
import threading
import time
from enum import Enum
from typing import Any, Final

from ropeway.checkpoints.errors import CheckpointError
from ropeway.launch.cluster_cuts import DoesNotFit
from ropeway.launch.keys import new_key
from ropeway.launch.placement import Options
from ropeway.launch.rank import EXIT_FAILED
from ropeway.launch.ray import Fleet
from ropeway.launch.ray_actor import RankHost
from ropeway.launch.ray_nodes import Seat, Seats
from ropeway.launch.tether import END_S
from ropeway.serving.backends import Backend, Backends

log = logging.getLogger("ropeway.ray")

LOOK_S: Final = 0.5
"""How often a replica is looked after."""
ROOM_S: Final = 5.0
"""How long Ray may take to give us nodes that have room; then others are tried."""
START_S: Final = 45.0
"""How long a node may take to begin a rank; less than a rank's lease."""
HOLD_S: Final = 5.0
"""How often the ranks hear that we are still there."""
READY_S: Final = 1.0
"""Longest wait for a replica to say whether it is ready."""
SILENT_S: Final = 15.0
"""How long a replica that has answered once may say nothing at all."""
PAUSE_S: Final = 1.0


class State(Enum):
    """What a replica's server says of itself."""

    READY = "ready"
    NOT_READY = "not ready"
    SILENT = "silent"


class RayReplica:
    """One ring on Ray, placed again after every loss."""

    def __init__(self, fleet: Fleet, name: str, backends: Backends, stopping: threading.Event) -> None:
        self._ray = fleet.ray
        self._fleet = fleet
        self._backends = backends
        self._stopping = stopping
        self._said = ""
        self.name = name

    def keep(self) -> None:
        """Until told to stop."""
        while not self._stopping.is_set():
            try:
                why = self._one()
            except (DoesNotFit, CheckpointError, ValueError, self._ray.exceptions.RayError) as error:
                why = str(error).splitlines()[0]
            except Exception as error:
                log.exception("%s", self.name)
                why = f"the launcher has failed ({type(error).__name__})"
            if not self._stopping.is_set():
                self._tell(why)
                self._stopping.wait(PAUSE_S)

    def _tell(self, why: str) -> None:
        """Say why there is no ring; the same thing once."""
        self._backends.missing = f"{self.name}: {why}"
        if why != self._said:
            log.warning("%s: %s", self.name, why)
        self._said = why

    def _one(self) -> str:
        """Place a ring and look after it until it ends; why it ended. Raises DoesNotFit, CheckpointError, RayError."""
        from ray.util.placement_group import placement_group, remove_placement_group

        with self._fleet.placing:
            plan = self._fleet.seats()
            nodes = tuple(one.node.node for one in plan.seats)
            group = placement_group([one.bundle for one in plan.seats], strategy="STRICT_SPREAD")
            if not group.wait(timeout_seconds=ROOM_S):
                self._fleet.put_aside(nodes)
                remove_placement_group(group)
                return "Ray has not given us the nodes that seemed to have room"
            self._fleet.hold(self.name, nodes)
        try:
            return self._on(group, plan)
        finally:
            with self._fleet.placing:
                remove_placement_group(group)
                self._fleet.hold(self.name, ())

    def _on(self, group: Any, plan: Seats) -> str:
        """Run a ring on nodes that are ours, until it ends. Raises RayError."""
        actors = [self._actor(group, rank, one) for rank, one in enumerate(plan.seats)]
        waits: list[Any] = []
        backend: Backend | None = None
        why = "stopped"
        try:
            backend = self._start(actors, plan)
            waits = [actor.wait.remote() for actor in actors]
            why = self._look_after(actors, waits, plan, backend)
            return why
        finally:
            if backend is not None:
                self._backends.take_out(backend, why)
            for actor in actors:
                actor.stop.remote()
            if waits:
                self._ray.wait(waits, num_returns=len(waits), timeout=END_S + LOOK_S)
            for actor in actors:
                self._ray.kill(actor)

    def _actor(self, group: Any, rank: int, seat: Seat) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        settings = {
            "num_cpus": seat.bundle.get("CPU", 0),
            "num_gpus": seat.bundle.get("GPU", 0),
            "max_concurrency": 4,
            "max_restarts": 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
        }
        return self._ray.remote(RankHost).options(**settings).remote(seat.node.address)

    def _start(self, actors: list[Any], plan: Seats) -> Backend:
        """Start every rank's command. Raises RayError."""
        options, get = self._fleet.options, self._ray.get
        addresses = get([actor.reserve.remote() for actor in actors], timeout=START_S)
        door: str = get(actors[0].reserve.remote(), timeout=START_S)
        host, _, port = door.rpartition(":")
        kept = {"key": new_key().hex()}
        door_key = secrets.token_urlsafe(32)
        at = ("--ring", ",".join(addresses), "--key", "{key}")
        served = ("--host", host, "--port", port, "--api-key", "{door}", "--restarts", "0", *options.serving)
        starts = []
        for rank, (actor, one) in enumerate(zip(actors, plan.seats, strict=True)):
            flags = rank_flags(options.ring, plan.cuts, one)
            if rank == 0:
                words = ["serve", options.ring.model, *at, *flags, *served]
                starts.append(actor.start.remote(words, {**kept, "door": door_key}))
            else:
                starts.append(actor.start.remote(["stage", options.ring.model, "--rank", str(rank), *at, *flags], kept))
        get(starts, timeout=START_S)
        log.info("%s: ranks at %s, cut at %s", self.name, ", ".join(addresses), ", ".join(map(str, plan.cuts)))
        return Backend(self.name, host, int(port), ready=False, key=door_key)

    def _look_after(self, actors: list[Any], waits: list[Any], plan: Seats, backend: Backend) -> str:
        """Let the replica answer once it is ready, until a rank ends; why."""
        self._backends.put(backend)
        heard_at: float | None = None
        held_at = 0.0
        while not self._stopping.is_set():
            ended, _ = self._ray.wait(waits, num_returns=1, timeout=LOOK_S)
            if ended:
                return self._why(waits.index(ended[0]), ended[0], plan)
            state, now = state_of(backend), time.monotonic()
            if now - held_at > HOLD_S:
                held_at = now
                for actor in actors:
                    actor.hold.remote()
            if state is State.READY and not backend.ready:
                log.info("%s: ready", self.name)
                self._said = ""
            backend.ready = state is State.READY
            if state is not State.SILENT:
                heard_at = now
            elif heard_at is not None and now - heard_at > SILENT_S:
                return f"rank 0 ({plan.seats[0].node.address}) has not answered for {SILENT_S:g} s"
        return "stopped"

    def _why(self, rank: int, ended: Any, plan: Seats) -> str:
        """Why a rank has ended; its node is put aside where that was its own fault."""
        node = plan.seats[rank].node
        who = f"rank {rank} ({node.address})"
        try:
            status, said = self._ray.get(ended)
        except self._ray.exceptions.RayError as error:
            return f"{who} was lost with its node or its host process ({type(error).__name__})"
        if status == EXIT_FAILED:
            self._fleet.put_aside((node.node,))
        return f"{who} has ended with status {status}: {said}".rstrip(": ")


def rank_flags(options: Options, cuts: tuple[int, ...], seat: Seat) -> tuple[str, ...]:
    """The flags that one rank of a ring is started with."""
    words = [
        *("--cuts", ",".join(map(str, cuts)), "--threads", str(options.threads or max(1, int(seat.cpus)))),
        *("--context", str(options.context), "--parallel", str(options.parallel), "--part", str(options.part)),
        *("--gpu-layers", str(options.gpu_layers)),
    ]
    if options.engines:
        words += ["--engines", ",".join(options.engines)]
    for name, text in (("--dtype", options.dtype), ("--device", options.device)):
        words += [name, text] if text else []
    for name, wanted in (("--invariant", options.invariant), ("--verify-weights", options.verify_weights)):
        words += [name] if wanted else []
    return tuple(words)


def state_of(backend: Backend) -> State:
    """What a replica says of itself."""
    connection = http.client.HTTPConnection(backend.host, backend.port, timeout=READY_S)
    try:
        connection.request("GET", "/ready")
        return State.READY if connection.getresponse().status == http.client.OK else State.NOT_READY
    except (OSError, http.client.HTTPException):
        return State.SILENT
    finally:
        connection.close()

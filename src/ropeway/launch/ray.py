"""Rings on Ray: each replica is a placement group, its ranks are actors of it, one a node, joined over TCP.

Ray says where there is room and which nodes are lost; the ring and its bytes stay ours, so this is for networks one
trusts as much as Ray itself. A replica whose rank or node is lost is placed anew, as soon as there is room for it.
"""

from __future__ import annotations

import http.client
import logging
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from ropeway.api.balancer import Backend, Backends
from ropeway.launch.keys import new_key
from ropeway.launch.ray_actor import RankHost

log = logging.getLogger("ropeway.ray")

LOOK_S: Final = 0.5
"""How often a replica is looked after."""
ROOM_S: Final = 5.0
"""How often room that is not there is asked for again."""
READY_S: Final = 1.0
"""Longest wait for a replica to say whether it is ready."""
PAUSE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class RayOptions:
    """`flags` are those that every rank's command gets, `serving` those of rank 0 alone. `api_keys`: a file's text."""

    model: str
    stages: int
    replicas: int
    flags: tuple[str, ...] = ()
    serving: tuple[str, ...] = ()
    api_keys: str = ""
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"replicas: {self.replicas} is not at least 1")
        if self.stages < 2:
            raise ValueError("stages: a ring on Ray has at least 2; a model that one node holds needs no ring")


class RayMissing(ValueError):
    """The extra is not installed, or there is no Ray cluster."""


def connect(address: str = "auto") -> Any:
    """The `ray` module, connected to its cluster. Raises RayMissing."""
    try:
        import ray
    except ImportError as error:
        raise RayMissing(f"ray: the package is not installed here: pip install 'ropeway[ray]' ({error})") from None
    try:
        ray.init(address=address, log_to_driver=False, ignore_reinit_error=True)
    except (ConnectionError, RuntimeError) as error:
        raise RayMissing(f"ray: there is no Ray cluster to connect to: {error}") from None
    return ray


class RayReplicas:
    """Keeps `options.replicas` rings on Ray; `backends` are those that answer."""

    def __init__(self, ray: Any, options: RayOptions) -> None:
        self.backends = Backends()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=_Replica(ray, number, options, self.backends, self._stopping).keep, daemon=True)
            for number in range(options.replicas)
        ]

    def start(self) -> None:
        """Begin; returns at once."""
        for thread in self._threads:
            thread.start()

    def stop(self, limit_s: float = 20.0) -> None:
        """End every ring."""
        self._stopping.set()
        deadline = time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


class _Replica:
    """One ring on Ray, placed again after every loss."""

    def __init__(
        self, ray: Any, number: int, options: RayOptions, backends: Backends, stopping: threading.Event
    ) -> None:
        self._ray = ray
        self._options = options
        self._backends = backends
        self._stopping = stopping
        self.name = f"replica {number}"

    def keep(self) -> None:
        """Until told to stop."""
        while not self._stopping.is_set():
            why = self._one()
            if not self._stopping.is_set():
                log.warning("%s: %s", self.name, why)
                self._stopping.wait(PAUSE_S)

    def _one(self) -> str:
        """Place a ring and look after it until it ends; why it ended."""
        from ray.util.placement_group import placement_group, remove_placement_group

        options = self._options
        bundle = {"CPU": options.cpus} | ({"GPU": options.gpus} if options.gpus else {})
        group = placement_group([bundle] * options.stages, strategy="STRICT_SPREAD")
        actors: list[Any] = []
        backend: Backend | None = None
        why = "stopped"
        try:
            if not self._wait_for_room(group):
                return why
            actors = [self._actor(group, rank, bundle) for rank in range(options.stages)]
            backend = self._start(actors)
            why = self._look_after(actors, backend)
        except self._ray.exceptions.RayError as error:
            why = f"a rank or its node was lost: {type(error).__name__}"
        finally:
            if backend is not None:
                self._backends.take_out(backend, f"{self.name}: {why}")
            for actor in actors:
                self._ray.kill(actor)
            remove_placement_group(group)
        return why

    def _wait_for_room(self, group: Any) -> bool:
        """Wait until Ray has nodes for all ranks; False once we are to stop."""
        while not self._stopping.is_set():
            if group.wait(timeout_seconds=ROOM_S):
                return True
            self._backends.missing = f"{self.name}: Ray has no {self._options.stages} nodes with room for a rank each"
        return False

    def _actor(self, group: Any, rank: int, bundle: dict[str, float]) -> Any:
        from ray.util import get_node_ip_address
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        class Rank(RankHost):
            """The rank's host, at the address that Ray knows its node by."""

            def __init__(self) -> None:
                super().__init__(get_node_ip_address())

        settings = {
            "num_cpus": bundle["CPU"],
            "num_gpus": bundle.get("GPU", 0),
            "max_concurrency": 4,
            "max_restarts": 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
        }
        return self._ray.remote(Rank).options(**settings).remote()

    def _start(self, actors: list[Any]) -> Backend:
        """Start every rank's command. Raises RayError."""
        get, options = self._ray.get, self._options
        addresses = get([actor.reserve.remote() for actor in actors])
        door: str = get(actors[0].reserve.remote())
        secrets = {"key": new_key().hex()}
        ring = ("--ring", ",".join(addresses), "--key", "{key}", *options.flags)
        host, _, port = door.rpartition(":")
        head = ["serve", options.model, *ring, "--host", host, "--port", port, "--restarts", "0", *options.serving]
        if options.api_keys:
            head += ["--api-key", "{api}"]
        else:
            head.append("--no-auth")
        starts = [actors[0].start.remote(head, secrets | ({"api": options.api_keys} if options.api_keys else {}))]
        for rank, actor in enumerate(actors[1:], 1):
            starts.append(actor.start.remote(["stage", options.model, "--rank", str(rank), *ring], secrets))
        get(starts)
        log.info("%s: ranks at %s", self.name, ", ".join(addresses))
        return Backend(self.name, host, int(port), ready=False)

    def _look_after(self, actors: list[Any], backend: Backend) -> str:
        """Put the replica among the others once it is ready, until a rank ends; why. Raises RayError."""
        self._backends.put(backend)
        waits = [actor.wait.remote() for actor in actors]
        while not self._stopping.is_set():
            ended, _ = self._ray.wait(waits, num_returns=1, timeout=LOOK_S)
            if ended:
                status, said = self._ray.get(ended[0])
                return f"rank {waits.index(ended[0])} has ended with status {status}: {said}".rstrip(": ")
            backend.ready = is_ready(backend)
        return "stopped"


def is_ready(backend: Backend) -> bool:
    """What a replica says of itself."""
    connection = http.client.HTTPConnection(backend.host, backend.port, timeout=READY_S)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()

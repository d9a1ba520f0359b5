"""Rings on Ray: each replica is a placement group, its ranks are actors of it, one a node, joined over TCP.

Ray says where there is room and which nodes are lost; the ring and its bytes stay ours, so this is for networks one
trusts as much as Ray itself. A replica whose rank or node is lost is placed anew, as soon as there is room for it
(launch/ray_replica.py).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ropeway.checkpoints.checkpoint import Checkpoint, open_checkpoint
from ropeway.launch.placement import Options, place
from ropeway.launch.ray_nodes import Demand, RayNode, Seats, living, seat
from ropeway.serving.backends import Backends

ASIDE_S: Final = 60.0
"""How long a node that a rank has failed on, or that did not take one, is used only where no other will do."""
OLDEST: Final = (2, 44)
STOP_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class RayOptions:
    """What is asked for: the ring's own options, how many rings, each rank's demand, and flags for rank 0 alone."""

    ring: Options
    replicas: int
    demand: Demand = field(default_factory=Demand)
    serving: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"replicas: {self.replicas} is not at least 1")
        if self.ring.worker_cmd:
            raise ValueError("worker_cmd: on Ray every rank runs our own engines")
        stages = self.ring.stages if self.ring.cuts is None else len(self.ring.cuts) + 1
        if stages < 2:
            raise ValueError("stages: a ring on Ray has at least 2; a model that one node holds needs no ring")


class RayMissing(ValueError):
    """The extra is not installed, or there is no Ray cluster."""


def connect(address: str = "auto") -> Any:
    """The `ray` module, connected to its cluster. Raises RayMissing."""
    try:
        import ray
    except ImportError as error:
        raise RayMissing(f"ray: the package is not installed here: pip install 'ropeway[ray]' ({error})") from None
    if tuple(int(part) for part in ray.__version__.split(".")[:2]) < OLDEST:
        raise RayMissing(f"ray: {ray.__version__} is too old, 2.44 will do")
    with _our_signals():
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise RayMissing(f"ray: there is no Ray cluster to connect to at {address}: {error}") from None
    return ray


@contextmanager
def _our_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself; what it means to us is what it meant before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Fleet:
    """Ray's nodes, as our replicas share them: one is placed after the other, so that no two ask for the same room."""

    def __init__(self, ray: Any, checkpoint: Checkpoint, options: RayOptions) -> None:
        self.ray = ray
        self.options = options
        self._checkpoint = checkpoint
        self.placing = threading.Lock()
        self._held: dict[str, tuple[str, ...]] = {}
        self._aside: dict[str, float] = {}

    def seats(self) -> Seats:
        """Who would hold what now, for one more replica. Raises DoesNotFit, ValueError, RayError."""
        return seat(self._checkpoint, self.options.ring, self._nodes(), self.options.demand, self.aside())

    def aside(self) -> set[str]:
        """The nodes that are used only where no others will do."""
        now = time.monotonic()
        held = {node for nodes in self._held.values() for node in nodes}
        return held | {node for node, since in self._aside.items() if now - since < ASIDE_S}

    def _nodes(self) -> list[RayNode]:
        from ray._private.state import available_resources_per_node

        return living(self.ray.nodes(), available_resources_per_node())

    def hold(self, name: str, nodes: tuple[str, ...]) -> None:
        """These nodes have a replica's ranks now."""
        self._held[name] = nodes

    def put_aside(self, nodes: tuple[str, ...]) -> None:
        """Use these only where no others will do, for a while."""
        self._aside.update(dict.fromkeys(nodes, time.monotonic()))


class RayReplicas:
    """Keeps `options.replicas` rings on Ray; `backends` are those that answer.

    Raises CheckpointError, or ValueError naming the option that is wrong.
    """

    def __init__(self, ray: Any, options: RayOptions) -> None:
        from ropeway.launch.ray_replica import RayReplica

        self.backends = Backends()
        self._stopping = threading.Event()
        whole = place(replace(options.ring, stages=1, cuts=(), engines=options.ring.engines[:1]))  # headers will do
        fleet = Fleet(ray, open_checkpoint(whole.path), options)
        keep: list[Callable[[], None]] = [
            RayReplica(fleet, f"replica {number}", self.backends, self._stopping).keep
            for number in range(options.replicas)
        ]
        self._threads = [threading.Thread(target=one, name="replica", daemon=True) for one in keep]

    def start(self) -> None:
        """Begin; returns at once."""
        for thread in self._threads:
            thread.start()

    def drain(self, limit_s: float) -> None:
        """Let replies under way go on for so long; then they end, as those of a lost replica do."""
        if not self._stopping.wait(limit_s):
            for backend in self.backends.all():
                self.backends.take_out(backend, "the server is being stopped")

    def stop(self, limit_s: float = STOP_S) -> None:
        """End every ring."""
        self._stopping.set()
        deadline = time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

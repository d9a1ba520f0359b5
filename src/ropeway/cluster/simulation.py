"""A world of members on one thread: simulated time, a seeded network that loses, delays and parts, stopped and slow
nodes.

For tests and benches: what real processes would do to each other in an hour takes seconds here, and the same seed gives
the same hour.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random

from ropeway.cluster.swim.core import Swim
from ropeway.cluster.swim.events import Event
from ropeway.cluster.swim.timing import LAN, Timing
from ropeway.cluster.swim.values import Contact, Seal, Statement, Unsealed

CLUSTER = b"simulate"


@dataclass(frozen=True, slots=True)
class Weather:
    """What the network does to every packet: lost with this probability, else delayed evenly in `low_s..high_s`."""

    loss: float = 0.0
    low_s: float = 0.0005
    high_s: float = 0.002


@dataclass(slots=True)
class Node:
    """A member in the world. `lag_s`: it handles everything so much late (a busy machine)."""

    swim: Swim
    label: str
    running: bool = True
    lag_s: float = 0.0
    island: int = 0
    wakes_at: float = -1.0


@dataclass(slots=True)
class Traffic:
    """What has been sent."""

    packets: int = 0
    sent_bytes: int = 0
    largest: int = 0
    kinds: Counter[int] = field(default_factory=Counter)


class World:
    """Members, the network between them, and the time. `log` has every event as (time, label of who saw it, event)."""

    def __init__(self, seed: int, timing: Timing = LAN, weather: Weather | None = None) -> None:
        self.now = 1_000.0
        self.timing = timing
        self.weather = weather or Weather()
        self.draw = Random(seed)
        self.nodes: dict[str, Node] = {}
        self.traffic = Traffic()
        self.log: list[tuple[float, str, Event]] = []
        self._ids: dict[bytes, str] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0

    def add(self, label: str, by: Iterable[str] = (), *, seal: Seal | None = None) -> Node:
        """Start a node, or a stopped one anew, that comes in by some others."""
        start = int(self.now * 1_000)
        me = Statement(node_id(label), start, label=label, address=b"sim://" + label.encode())
        swim = Swim(me, CLUSTER, self.timing, Random(self.draw.getrandbits(64)), self.now, seal or Unsealed())
        node = self.nodes[label] = Node(swim, label)
        self._ids[swim.id] = label
        swim.join(self.now, [Contact(node_id(other)) for other in by])
        self._after(node)
        return node

    def grow(self, count: int, apart_s: float = 0.05) -> list[str]:
        """Start so many nodes, one after the other; each comes in by the first of all."""
        labels = [f"n{index:03}" for index in range(len(self.nodes), len(self.nodes) + count)]
        for label in labels:
            self.add(label, list(self.nodes)[:1])
            self.run(apart_s)
        return labels

    def stop(self, label: str) -> None:
        """Stop a node for good (or until `resume`): it does nothing and hears nothing, as under SIGSTOP."""
        self.nodes[label].running = False

    def resume(self, label: str) -> None:
        """Let a stopped node go on as if nothing had happened."""
        node = self.nodes[label]
        node.running = True
        self._wake(node)

    def part(self, *islands: Iterable[str]) -> None:
        """Cut the network into islands; nodes that are in none stay on island 0 with the rest. Without any: heal."""
        for node in self.nodes.values():
            node.island = 0
        for number, labels in enumerate(islands, 1):
            for label in labels:
                self.nodes[label].island = number

    def run(self, seconds: float) -> None:
        """Let time pass."""
        ends_at = self.now + seconds
        while self._queue and self._queue[0][0] <= ends_at:
            at, _, action = heapq.heappop(self._queue)
            self.now = max(self.now, at)
            action()
        self.now = ends_at

    def run_until(self, done: Callable[[], bool], most_s: float, step_s: float = 0.25) -> float:
        """Let time pass until something is so, and say how long it took. Raises TimeoutError after `most_s`."""
        began = self.now
        while not done():
            if self.now - began >= most_s:
                raise TimeoutError(f"not so after {most_s} s of simulated time")
            self.run(step_s)
        return self.now - began

    def act(self, label: str, do: Callable[[Swim, float], None]) -> None:
        """Call something on a node's core, and send what comes of it."""
        node = self.nodes[label]
        do(node.swim, self.now)
        self._after(node)

    def running(self) -> list[Node]:
        """The nodes that are not stopped."""
        return [node for node in self.nodes.values() if node.running]

    def agreed(self) -> bool:
        """Whether all running members believe the same, of members and of names."""
        views = (view(node.swim) for node in self.running() if not node.swim.left)
        first = next(views, None)
        return all(other == first for other in views)

    def _after(self, node: Node) -> None:
        """Carry off what a core has to say, and see to it that it is called again in time."""
        for event in node.swim.events():
            self.log.append((self.now, node.label, event))
        for send in node.swim.outgoing():
            self._carry(node, send.to, send.packet)
        at = max(node.swim.next_at(), self.now) + node.lag_s
        if node.wakes_at < self.now or at < node.wakes_at:
            node.wakes_at = at
            self._at(at, lambda: self._tick(node, at))

    def _tick(self, node: Node, at: float) -> None:
        if node.wakes_at != at:
            return
        node.wakes_at = -1.0
        self._wake(node)

    def _wake(self, node: Node) -> None:
        if node.running and self.nodes[node.label] is node:
            node.swim.tick(self.now)
            self._after(node)

    def _carry(self, node: Node, to: bytes, packet: bytes) -> None:
        self.traffic.packets += 1
        self.traffic.sent_bytes += len(packet)
        self.traffic.largest = max(self.traffic.largest, len(packet))
        self.traffic.kinds[packet[5]] += 1
        label = self._ids.get(to)
        if label is None or self.draw.random() < self.weather.loss:
            return
        delay_s = self.weather.low_s + self.draw.random() * (self.weather.high_s - self.weather.low_s)
        at = self.now + delay_s + self.nodes[label].lag_s
        self._at(at, lambda: self._deliver(node.swim.id, node.island, label, packet))

    def _deliver(self, sender: bytes, island: int, label: str, packet: bytes) -> None:
        node = self.nodes[label]
        if node.running and node.island == island:
            node.swim.received(self.now, sender, packet)
            self._after(node)

    def _at(self, at: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (at, self._order, action))


def node_id(label: str) -> bytes:
    """The key of a simulated node."""
    return blake2b(label.encode(), digest_size=32).digest()


def view(swim: Swim) -> tuple[object, ...]:
    """All that a member believes, without the times: equal on all members once they agree."""
    members = tuple((m.statement, m.state, m.incarnation) for m in swim.members())
    return members, tuple(swim.names().values())

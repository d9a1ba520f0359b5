"""A replica on fake rings, in threads of one process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from fake_engine import Shape, reply_alone
from fake_ranks import FakeRing, fake_ring, layout_of, placement_of
from ropeway.launch.rank0 import Rank0
from ropeway.launch.replica import Replica
from ropeway.launch.replica_options import ReplicaOptions
from ropeway.serving.service import (
    GenerateRequest,
    ServiceState,
)
from ropeway.transport import Ring
from ropeway.types import SamplerAt
from ropeway.wire import ErrorCode
from serving.served import Client
from transport.rings import wait_until

SHAPE = Shape(context=400, max_rows=400, parallel=4)
QUICK = ReplicaOptions(pause_s=0.0)


class Rings:
    """Brings fake rings up, as often as asked; `refuse` is raised instead while it is set."""

    def __init__(self, world: int, sampler: SamplerAt = SamplerAt.FIRST) -> None:
        self.placement = placement_of(SHAPE, layout_of(SHAPE, world, sampler))
        self.world = world
        self.asked = 0
        self.made: list[FakeRing] = []
        self.refuse: Exception | None = None
        self.before: Callable[[], None] = lambda: None
        self.behind: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def __call__(self, begun: Callable[[Ring], None]) -> Iterator[Rank0]:
        self.asked += 1
        self.before()
        if self.refuse is not None:
            raise self.refuse
        try:
            with fake_ring(self.world, SHAPE, placement=self.placement) as ring:
                self.made.append(ring)
                if ring.rank0.ring is not None:
                    begun(ring.rank0.ring)
                yield ring.rank0
        finally:
            self.behind()

    def lose(self, text: str = "rank 1 has lost its mind") -> None:
        """The latest ring fails from its last rank on."""
        self.made[-1].rings[-1].fail(ErrorCode.ENGINE_FAILED, text)


class Place:
    """A replica on fake rings, started; stopped at the end."""

    def __init__(
        self,
        model: Path,
        options: ReplicaOptions = QUICK,
        world: int = 2,
        sampler: SamplerAt = SamplerAt.FIRST,
    ) -> None:
        self.rings = Rings(world, sampler)
        placement = self.rings.placement
        placement = type(placement)(model, placement.layout, placement.options)
        self.rings.placement = placement
        self.replica = Replica(placement, self.rings, options)

    def __enter__(self) -> Place:
        self.replica.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.replica.stop(drain_s=0)

    def ready(self, rings: int = 1) -> FakeRing:
        """Wait for a ring, the so-many-th."""
        wait_until(lambda: len(self.rings.made) >= rings and self.replica.state() is ServiceState.READY)
        return self.rings.made[-1]

    def ask(self, first: int, size: int = 5, max_tokens: int = 20, client: type[Client] = Client) -> Client:
        one = client(GenerateRequest((first, *range(1, size)), max_tokens))
        one.id = self.replica.submit(one.request, one)
        return one

    def judge(self, client: Client) -> None:
        """The whole reply, and no other."""
        wait_until(lambda: client.ended)
        assert client.failed is None
        prompt = client.request.prompt
        assert client.tokens == reply_alone(prompt, client.request.max_tokens, SHAPE.layers)

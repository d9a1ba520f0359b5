"""A real ring in this process: engines of any kind, followers in threads, real loopback TCP, a checkpoint on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from ropeway.engines.base import Engine, EngineError
from ropeway.launch.placement import Options, Placement, place
from ropeway.launch.rank0 import Rank0, StageFacts
from ropeway.stage.describe import describe_stage
from ropeway.stage.follower import follow
from ropeway.stage.stage import Stage
from ropeway.transport import Ring, RingEnded, join
from ropeway.wire import ErrorCode, Ready
from transport.rings import Place

Spoil = Callable[[int, Engine], Engine]


@contextlib.contextmanager
def real_ring(options: Options, spoil: Spoil = lambda _, engine: engine) -> Iterator[Rank0]:
    """A ring that is ready. `spoil` may put something else in the place of a rank's engine, before it loads."""
    placement = place(options)
    layout = placement.layout
    engines = [spoil(rank, placement.make_engine(rank)) for rank in range(layout.world)]
    here = Place(layout)
    limits = {"max_rows": max(options.context, options.chunk), "chunk": options.chunk}
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(here))
        for engine in engines:
            stack.callback(engine.close)
        pool = stack.enter_context(ThreadPoolExecutor(layout.world))
        followers = [
            pool.submit(_follow, here, placement, rank, engines[rank], limits) for rank in range(1, layout.world)
        ]
        with join(here.config(0, **limits)) as ring:
            yield _rank0(placement, engines[0], ring)
        for follower in followers:
            follower.result()


def _rank0(placement: Placement, engine: Engine, ring: Ring) -> Rank0:
    own = describe_stage(placement.layout, 0, engine)
    described = [own, *ring.descriptions()]
    engine.load()
    readies = [Ready(0, 1, 0, engine.weights_bytes), *ring.readies()]
    facts = tuple(StageFacts(d, r, "127.0.0.1:0") for d, r in zip(described, readies, strict=True))
    return Rank0(placement, Stage(engine), ring, facts)


def _follow(here: Place, placement: Placement, rank: int, engine: Engine, limits: dict[str, int]) -> None:
    with contextlib.closing(join(here.config(rank, **limits))) as ring, contextlib.suppress(RingEnded):
        try:
            ring.describe(describe_stage(placement.layout, rank, engine))
            engine.load()
            ring.ready(Ready(rank, 1, 0, engine.weights_bytes))
            follow(ring, Stage(engine), placement.layout, rank)
        except EngineError as error:
            ring.fail(ErrorCode.ENGINE_FAILED, f"rank {rank}: {error}")


Followers = list[Future[None]]

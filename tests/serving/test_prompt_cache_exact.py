"""Recurrent states serve at their own last whole piece alone, and shorter ones stay beside longer ones."""

from __future__ import annotations

from ropeway.serving.prompt_cache import PromptCache
from ropeway.serving.sequence import Sequence
from ropeway.serving.slots import Prefix, Soon
from ropeway.wire import CacheAck

TEXT = tuple(range(1000))


def cache_with(*lengths: int, limit: int = 1 << 20) -> PromptCache:
    """A cache of one rank that holds the states of so many rows of the same text."""
    cache = PromptCache(1, 64, 10, limit, exact=True)
    for length in lengths:
        kept = cache.add(TEXT[:length])
        assert kept is not None, length
        cache.acknowledge(0, [CacheAck(kept[0], True)])
    return cache


def rows(cache: PromptCache, prompt: tuple[int, ...]) -> int:
    found = cache.lookup(Sequence(0, prompt, 1))
    assert not isinstance(found, Soon)
    return 0 if found is None else found.rows


def test_a_state_serves_where_it_was_kept() -> None:
    cache = cache_with(300)
    assert rows(cache, TEXT[:400]) == 256
    assert rows(cache, TEXT[:257]) == 256
    assert rows(cache, TEXT[:256]) == 0, "at most all rows but one"
    assert rows(cache, (*TEXT[:200], 5)) == 0, "no state at 192"


def test_shorter_states_stay() -> None:
    cache = cache_with(300, 130, 700)
    assert len(cache) == 3
    assert rows(cache, TEXT[:900]) == 640
    assert rows(cache, TEXT[:600]) == 256
    assert rows(cache, TEXT[:200]) == 128


def test_the_same_state_is_not_kept_twice() -> None:
    cache = cache_with(300)
    assert cache.add(TEXT[:290]) is None
    assert cache.add(TEXT[:130]) is not None


def test_room_is_made_by_age() -> None:
    cache = cache_with(300, 130, limit=5000)
    kept = cache.add(TEXT[:330])
    assert kept is not None
    assert len(kept[1]) == 1
    assert len(cache) == 2


def test_a_state_on_its_way_is_waited_for_where_it_will_serve() -> None:
    cache = PromptCache(1, 64, 10, 1 << 20, exact=True)
    assert cache.add(TEXT[:300]) is not None
    assert isinstance(cache.lookup(Sequence(0, TEXT[:400], 1)), Soon)
    assert cache.lookup(Sequence(1, (*TEXT[:200], 5), 1)) is None


def test_cut_anywhere_otherwise() -> None:
    cache = PromptCache(1, 64, 10, 1 << 20)
    kept = cache.add(TEXT[:300])
    assert kept is not None
    cache.acknowledge(0, [CacheAck(kept[0], True)])
    assert cache.lookup(Sequence(0, (*TEXT[:200], 5), 1)) == Prefix(kept[0], 192)

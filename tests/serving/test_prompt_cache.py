"""Rank 0's account of kept prefixes: what serves, what is kept, and who goes first."""

from __future__ import annotations

import time
from collections.abc import Sequence as Items

from hypothesis import given, settings
from hypothesis import strategies as st

from ropeway.serving.prompt_cache import LEAST_ROWS, PromptCache
from ropeway.serving.sequence import Sequence
from ropeway.serving.slots import Prefix, Soon
from ropeway.wire import CacheAck

PIECE = 32
ROW = 10


def cache(rows: int = 1 << 20, world: int = 2, piece: int = PIECE) -> PromptCache:
    """One with room for so many rows."""
    return PromptCache(world, piece, ROW, rows * ROW)


def ids(*blocks: int, more: int = 0) -> tuple[int, ...]:
    """A piece of equal ids for each block, and some further ids."""
    return tuple(block for block in blocks for _ in range(PIECE)) + (999,) * more


def ask(prompt: Items[int], cached: int = 0) -> Sequence:
    sequence = Sequence(0, tuple(prompt), 5)
    sequence.cached_rows = cached
    return sequence


def keep(one: PromptCache, tokens: Items[int], ranks: Items[int] = (0, 1)) -> bytes:
    """Add what is worth it; these ranks have kept their part."""
    added = one.add(tokens)
    assert added is not None
    for rank in ranks:
        assert one.acknowledge(rank, [CacheAck(added[0], True)]) == []
    return added[0]


def test_a_prefix_serves_once_every_rank_has_it() -> None:
    one = cache()
    key = keep(one, ids(1, 2, 3, more=5), ranks=())
    prompt = ask(ids(1, 2, 3, 4))
    assert one.lookup(prompt) == Soon(None)
    one.acknowledge(0, [CacheAck(key, True)])
    one.acknowledge(0, [CacheAck(key, True)])
    assert one.lookup(prompt) == Soon(None)
    one.acknowledge(1, [CacheAck(key, True)])
    assert one.lookup(prompt) == Prefix(key, 3 * PIECE)


def test_only_whole_pieces_serve_and_never_a_whole_prompt() -> None:
    one = cache()
    key = keep(one, ids(1, 2, 3, 4, more=20))
    assert one.lookup(ask(ids(1, 2, 3, 4, more=1))) == Prefix(key, 4 * PIECE)
    assert one.lookup(ask(ids(1, 2, 3, 4))) == Prefix(key, 3 * PIECE)
    assert one.lookup(ask(ids(1, 2, 3, 4)[:-1])) == Prefix(key, 3 * PIECE)
    assert one.lookup(ask(ids(1, 2, 9, 4))) == Prefix(key, 2 * PIECE)
    assert one.lookup(ask(ids(9, 2, 3, 4))) is None
    assert one.lookup(ask((*ids(1, 2)[:-1], 9, *ids(3)))) is None


def test_short_prefixes_are_not_worth_it() -> None:
    one = cache()
    assert LEAST_ROWS == 2 * PIECE
    assert one.add(ids(1, more=PIECE - 1)) is None
    keep(one, ids(1, 2))
    assert one.lookup(ask(ids(1, 9))) is None
    assert one.lookup(ask(ids(1, 2, 3))) is not None
    assert cache(piece=128).add(ids(1, 2, 3, more=PIECE - 1)) is None


def test_what_is_held_already_is_not_kept_again() -> None:
    one = cache()
    keep(one, ids(1, 2, 3), ranks=())
    assert one.add(ids(1, 2, 3)) is None
    assert one.add(ids(1, 2, 3, more=PIECE - 1)) is None
    assert one.add(ids(1, 2)) is None
    assert one.add(ids(1, 2, 4)) is not None


def test_what_a_new_entry_holds_as_well_goes() -> None:
    one = cache()
    short, other = keep(one, ids(1, 2)), keep(one, ids(1, 3))
    added = one.add(ids(1, 2, 3, more=3))
    assert added is not None
    assert added[1] == [short]
    assert len(one) == 2
    assert one.kept_bytes == (2 * PIECE + 3 * PIECE + 3) * ROW
    # The new one does not serve before it is acknowledged, and the old one is gone.
    assert one.lookup(ask(ids(1, 2, 3, 4))) == Soon(None)
    assert one.lookup(ask(ids(1, 3, 4))) == Prefix(other, 2 * PIECE)


def test_an_entry_that_is_not_acknowledged_stays_beside_the_one_that_holds_it() -> None:
    one = cache()
    short = keep(one, ids(1, 2), ranks=(0,))
    added = one.add(ids(1, 2, 3))
    assert added is not None
    assert added[1] == []
    one.acknowledge(1, [CacheAck(short, True)])
    assert one.lookup(ask(ids(1, 2, 3, 4))) == Prefix(short, 2 * PIECE)


def test_a_state_that_is_being_kept_is_worth_a_wait_where_it_spares_much() -> None:
    one = cache()
    short = keep(one, ids(1, 2), ranks=(0,))
    longer = keep(one, ids(1, 2, 3, 4), ranks=(1,))
    one.acknowledge(1, [CacheAck(short, True)])
    long, middling = ask(ids(1, 2, 3, 4, 5)), ask(ids(1, 2, 3, 5))
    assert one.lookup(long) == Soon(Prefix(short, 2 * PIECE))
    assert one.lookup(middling) == Prefix(short, 2 * PIECE), "one piece more is not worth a wait"
    one.acknowledge(0, [CacheAck(longer, True)])
    assert one.lookup(long) == Prefix(longer, 4 * PIECE)
    assert one.lookup(middling) == Prefix(longer, 3 * PIECE)


def test_least_recently_used_goes_first() -> None:
    one = cache(rows=9 * PIECE)
    first, second, third = (keep(one, ids(block, block, block)) for block in (1, 2, 3))
    one.entered(ask(ids(1, 1, 1, 5), cached=3 * PIECE))
    added = one.add(ids(4, 4, 4))
    assert added is not None
    assert added[1] == [second]
    one.acknowledge(0, [CacheAck(added[0], True)])
    added = one.add(ids(5, 5))
    assert added is not None
    assert added[1] == [third]
    assert one.lookup(ask(ids(1, 1, 1, 5))) == Prefix(first, 3 * PIECE)
    assert one.kept_bytes == 8 * PIECE * ROW


def test_the_budget_holds_whatever_waits_for_acknowledgements() -> None:
    one = cache(rows=6 * PIECE)
    keep(one, ids(1, 1, 1), ranks=(0,))
    second = keep(one, ids(2, 2, 2))
    assert one.add(ids(3, 3, 3, 3)) is None
    assert one.lookup(ask(ids(2, 2, 2, 2))) == Prefix(second, 3 * PIECE)
    assert one.add(ids(4, 4, 4)) is not None
    assert one.add(ids(5, 5, 5)) is None
    assert one.kept_bytes == one.limit_bytes == 6 * PIECE * ROW
    assert cache(rows=3 * PIECE - 1).add(ids(1, 1, 1)) is None
    assert cache(rows=0).add(ids(1, 1, 1)) is None


def test_a_rank_that_could_not_keep_its_part() -> None:
    one = cache(world=3)
    added = one.add(ids(1, 2, 3))
    assert added is not None
    key = added[0]
    assert one.acknowledge(0, [CacheAck(key, True)]) == []
    assert one.acknowledge(2, [CacheAck(key, False)]) == [key]
    assert one.acknowledge(1, [CacheAck(key, False)]) == []
    assert (len(one), one.kept_bytes) == (0, 0)
    again = one.add(ids(1, 2, 3))
    assert again is not None
    assert again[0] != key


def test_hits_are_counted() -> None:
    one = cache()
    keep(one, ids(1, 2, 3))
    one.entered(ask(ids(4)))
    one.entered(ask(ids(1, 2, 3, 4), cached=2 * PIECE))
    one.entered(ask(ids(1, 2, 3, 4), cached=3 * PIECE))
    assert (one.hits, one.misses, one.hit_tokens) == (2, 1, 5 * PIECE)


def test_a_lookup_takes_no_longer_for_what_else_is_kept() -> None:
    """1,000 states that all begin with the same 4,064 ids, and one prompt of 4,096: by hashes, once over the prompt."""
    one = PromptCache(1, PIECE, 1, 1 << 40)
    common = tuple(range(4064))
    for number in range(1000):
        keep(one, (*common, *[10_000 + number] * PIECE), ranks=(0,))
    prompt = ask((*common, *[12_345] * PIECE, 1))
    started = time.thread_time()
    for _ in range(20):
        assert one.lookup(prompt) is not None
    assert (time.thread_time() - started) / 20 < 0.02


def shared(a: Items[int], b: Items[int]) -> int:
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


BLOCKS = st.lists(st.integers(0, 1), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_history(data: st.DataObject) -> None:
    """Against a list that is searched from end to end."""
    limit = data.draw(st.integers(0, 16), "pieces of room") * PIECE
    one = cache(rows=limit)
    held: dict[bytes, tuple[tuple[int, ...], set[int]]] = {}
    for _ in range(data.draw(st.integers(1, 25), "events")):
        tokens = ids(*data.draw(BLOCKS, "blocks"), more=data.draw(st.integers(0, PIECE - 1), "more"))
        what = data.draw(st.sampled_from(["add", "ack", "ack", "look"]))
        if what == "add":
            before = dict(held)
            added = one.add(tokens)
            if added is not None:
                key, dropped = added
                for old in dropped:
                    assert held.pop(old)[1] == {0, 1}
                assert all(shared(kept, tokens) // PIECE < len(tokens) // PIECE for kept, _ in before.values())
                held[key] = tokens, set()
        elif what == "ack" and held:
            key = data.draw(st.sampled_from(sorted(held)))
            rank, ok = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 5)) > 0
            assert one.acknowledge(rank, [CacheAck(key, ok)]) == ([] if ok else [key])
            if ok:
                held[key][1].add(rank)
            else:
                del held[key]
        else:
            best = max((shared(kept, tokens[:-1]) for kept, acked in held.values() if acked == {0, 1}), default=0)
            best -= best % PIECE
            soon = max((shared(kept, tokens[:-1]) for kept, acked in held.values() if acked != {0, 1}), default=0)
            soon -= soon % PIECE
            found = one.lookup(ask(tokens))
            assert isinstance(found, Soon) == (soon - (best if best >= LEAST_ROWS else 0) >= LEAST_ROWS)
            if isinstance(found, Soon):
                found = found.now
            assert (found.rows if found else 0) == (best if best >= LEAST_ROWS else 0)
            if found:
                kept, acked = held[found.key]
                assert (kept[: found.rows], acked) == (tokens[: found.rows], {0, 1})
                one.entered(ask(tokens, found.rows))
        assert one.kept_bytes == sum(len(kept) for kept, _ in held.values()) * ROW <= limit * ROW
        assert len(one) == len(held)

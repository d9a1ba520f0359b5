"""The queue of news: bounded by room, by number, and by how often each piece is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.swim.strategies import steady
from ropeway.cluster.swim.gossip import GossipQueue


def test_the_least_told_and_then_the_newest_come_first() -> None:
    queue = GossipQueue()
    queue.put("a", b"aa")
    queue.put("b", b"bb")
    assert queue.take(2, 9, 9) == [b"bb"]
    assert queue.take(2, 9, 9) == [b"aa"]
    queue.put("c", b"cc")
    assert queue.take(4, 9, 9) == [b"cc", b"bb"]


def test_what_does_not_fit_is_passed_over_and_kept() -> None:
    queue = GossipQueue()
    queue.put("small", b"s")
    queue.put("large", b"l" * 10)
    assert queue.take(5, 9, 9) == [b"s"]
    assert queue.take(10, 9, 9) == [b"l" * 10]


def test_newer_news_take_the_place_of_older() -> None:
    queue = GossipQueue()
    queue.put("a", b"old")
    queue.take(10, 2, 9)
    queue.put("a", b"new")
    assert len(queue) == 1
    assert [queue.take(10, 2, 9) for _ in range(3)] == [[b"new"], [b"new"], []]


@steady
@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=20), st.integers(0, 100), st.integers(1, 4), st.integers(1, 9)
)
def test_every_piece_is_told_so_often_and_no_packet_is_too_big(
    pieces: list[bytes], room: int, most_told: int, most: int
) -> None:
    queue = GossipQueue()
    for number, piece in enumerate(pieces):
        queue.put(str(number), piece)
    told: list[bytes] = []
    for _ in range(len(pieces) * most_told + 1):
        taken = queue.take(room, most_told, most)
        assert sum(map(len, taken)) <= room
        assert len(taken) <= most
        told += taken
    fitting = [piece for piece in pieces if len(piece) <= room]
    assert sorted(told) == sorted(fitting * most_told)

"""Names: the last writer wins in whatever order news come, tombstones last an hour, the clock never falls behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.swim.strategies import steady
from ropeway.cluster.names import NAME_BYTES, NAMES_MOST, NAMES_PER_NODE, TIME_MAX, VALUE_BYTES, Entry, Names

A, B = b"A" * 32, b"B" * 32


def always(_node: bytes, _generation: int) -> bool:
    return True


def never(_node: bytes, _generation: int) -> bool:
    return False


entries = st.builds(
    Entry,
    st.sampled_from(["pp-entry", "pp-exit"]),
    st.integers(0, 5),
    st.integers(0, 2),
    st.sampled_from([A, B]),
    st.booleans(),
)


def state(names: Names) -> dict[str, tuple[int, int, bytes]]:
    return {held.entry.name: held.entry.stamp for held in names.held()}


@steady
@given(st.lists(entries, max_size=8))
def test_the_order_of_news_does_not_matter(news: list[Entry]) -> None:
    first, second = Names(), Names()
    for entry in news:
        first.merge(0.0, entry)
    for entry in sorted(news, key=lambda entry: entry.stamp, reverse=True) + news:
        second.merge(0.0, entry)
    assert state(first) == state(second)
    assert first.clock == second.clock == max((entry.time for entry in news), default=0)


@steady
@given(st.lists(entries, min_size=1, max_size=8))
def test_the_greatest_stamp_wins(news: list[Entry]) -> None:
    names = Names()
    for entry in news:
        names.merge(0.0, entry)
    for name, stamp in state(names).items():
        assert stamp == max(entry.stamp for entry in news if entry.name == name)


@steady
@given(st.lists(entries, max_size=8))
def test_our_own_write_beats_all_that_was_heard(news: list[Entry]) -> None:
    names = Names()
    for entry in news:
        names.merge(0.0, entry)
    written = names.write(0.0, Entry("pp-entry", 0, 0, A))
    assert written.time == names.clock
    assert names.resolve("pp-entry", always) == written
    for entry in news:
        assert not names.merge(0.0, entry)


def test_time_comes_before_generation_and_generation_before_node() -> None:
    assert Entry("n", 2, 0, A).stamp > Entry("n", 1, 9, B).stamp
    assert Entry("n", 1, 2, A).stamp > Entry("n", 1, 1, B).stamp
    assert Entry("n", 1, 1, B).stamp > Entry("n", 1, 1, A).stamp


def test_a_name_leads_nowhere_while_its_node_is_dead() -> None:
    names = Names()
    entry = names.write(0.0, Entry("n", 0, 7, A))
    assert names.resolve("n", always) == entry
    assert names.resolve("n", never) is None
    assert names.resolve("n", lambda node, generation: (node, generation) == (A, 7)) == entry
    assert names.resolve("other", always) is None


def test_a_tombstone_hides_older_registrations_for_an_hour() -> None:
    names = Names()
    names.write(0.0, Entry("n", 0, 1, A))
    names.write(10.0, Entry("n", 0, 1, A, live=False))
    assert names.resolve("n", always) is None
    assert not names.merge(11.0, Entry("n", 1, 1, A))
    names.expire(10.0 + 3_599.0)
    assert names.get("n") is not None
    assert names.next_at() == 10.0 + 3_600.0
    names.expire(10.0 + 3_600.0)
    assert names.get("n") is None
    assert names.next_at() == float("inf")


def test_a_tombstone_passed_on_keeps_its_age() -> None:
    names = Names()
    assert names.merge(1_000.0, Entry("n", 4, 1, A, live=False), age_s=3_000.0)
    assert names.next_at() == 1_600.0
    assert not names.merge(1_000.0, Entry("o", 4, 1, A, live=False), age_s=3_600.0)


def test_an_earlier_life_takes_its_names_along_and_leaves_its_tombstones() -> None:
    names = Names()
    names.write(0.0, Entry("old", 0, 1, A))
    names.write(0.0, Entry("gone", 0, 1, A, live=False))
    names.write(0.0, Entry("new", 0, 2, A))
    names.write(0.0, Entry("other", 0, 1, B))
    names.drop_lives(A, 2)
    assert set(state(names)) == {"gone", "new", "other"}
    names.drop_node(A)
    assert set(state(names)) == {"gone", "other"}


def test_one_node_cannot_fill_the_table() -> None:
    names = Names()
    for number in range(NAMES_PER_NODE + 10):
        names.merge(0.0, Entry(f"n{number}", 1, 1, A))
    assert len(state(names)) == NAMES_PER_NODE
    assert names.merge(0.0, Entry("n0", 2, 1, A))
    assert names.merge(0.0, Entry("mine", 1, 1, B))


def test_all_nodes_together_cannot_fill_it_either() -> None:
    names = Names()
    for number in range(NAMES_MOST + 10):
        names.merge(0.0, Entry(f"n{number}", 1, 1, (number // 200).to_bytes(32, "big")))
    assert len(state(names)) == NAMES_MOST
    assert names.merge(0.0, Entry("n0", 2, 1, B))


def test_names_that_went_make_room_for_others() -> None:
    names = Names()
    for number in range(NAMES_PER_NODE):
        names.merge(0.0, Entry(f"n{number}", 1, 1, A))
    assert not names.merge(0.0, Entry("more", 1, 1, A))
    assert names.merge(0.0, Entry("n0", 2, 1, B))
    assert names.merge(0.0, Entry("more", 1, 1, A))
    names.drop_node(A)
    assert names.merge(0.0, Entry("again", 1, 1, A))


def test_the_clock_ends_before_it_overflows() -> None:
    names = Names()
    names.merge(0.0, Entry("n", TIME_MAX, 1, A))
    with pytest.raises(ValueError, match="time"):
        names.write(0.0, Entry("m", 0, 1, B))


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("name", lambda: Entry("", 0, 0, A)),
        ("name", lambda: Entry("n" * (NAME_BYTES + 1), 0, 0, A)),
        ("name", lambda: Entry("a\nb", 0, 0, A)),
        ("value", lambda: Entry("n", 0, 0, A, value=bytes(VALUE_BYTES + 1))),
        ("time", lambda: Entry("n", TIME_MAX + 1, 0, A)),
    ],
)
def test_a_bad_entry_names_its_field(field: str, make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=field):
        make()

"""Precedence: the same news in any order end in the same belief; who is accused refutes what is new, and only that."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cluster.swim.strategies import steady
from ropeway.cluster.swim.events import Died, Event, Forgotten, Joined, Left, Outlived, Recovered, Suspected, Updated
from ropeway.cluster.swim.records import MemberRecord, stated
from ropeway.cluster.swim.roster import Roster
from ropeway.cluster.swim.suspicion import Health
from ropeway.cluster.swim.timing import LAN
from ropeway.cluster.swim.values import U32_MAX, Claim, State, Statement, Unsealed
from ropeway.cluster.swim.voice import Voice

ME, A, B, C, D = (bytes([number]) * 32 for number in range(5))


def make_roster(*others: bytes) -> Roster:
    """A roster of ME and others, alive at start 10 and incarnation 0, with nothing left to fetch."""
    roster = Roster(0.0, Voice(b"roster 1", Statement(ME, 10), Unsealed()), LAN, Health(8))
    for other in others:
        roster.hear_member(0.0, stated(Statement(other, 10)))
    fetch(roster)
    return roster


def fetch(roster: Roster) -> list[Event]:
    events = list(roster.events)
    roster.events.clear()
    roster.news.clear()
    roster.touched.clear()
    return events


def kinds(roster: Roster) -> list[type]:
    return [type(event) for event in fetch(roster)]


def state(roster: Roster, member: bytes = A) -> State:
    held = roster.get(member)
    assert held is not None
    return held.state


def suspect(incarnation: int = 0, by: bytes = B, start: int = 10, member: bytes = A) -> Claim:
    return Claim(member, start, incarnation, State.SUSPECT, by)


def dead(incarnation: int = 0, by: bytes = B, start: int = 10, member: bytes = A) -> Claim:
    return Claim(member, start, incarnation, State.DEAD, by)


News = MemberRecord | Claim
lives = st.integers(10, 11)
counts = st.integers(0, 3)
news_of_a: st.SearchStrategy[News] = st.one_of(
    st.builds(lambda start, count, left: stated(Statement(A, start, count, left=left)), lives, counts, st.booleans()),
    st.builds(
        lambda start, count, state: Claim(A, start, count, state, B),
        lives,
        counts,
        st.sampled_from([State.SUSPECT, State.DEAD]),
    ),
)


def settle(roster: Roster, news: list[News]) -> tuple[int, int, State]:
    """Hear news twice, as gossip would have it, let every suspicion end, and say what is believed."""
    for piece in news + news:
        if isinstance(piece, Claim):
            roster.hear_claim(1.0, piece)
        else:
            roster.hear_member(1.0, piece)
    roster.expire(1_000.0)
    held = roster.get(A)
    assert held is not None
    return held.rank


@steady
@given(st.lists(news_of_a, max_size=6).flatmap(lambda news: st.tuples(st.just(news), st.permutations(news))))
def test_any_order_of_news_ends_in_the_same_belief(orders: tuple[list[News], list[News]]) -> None:
    first, second = orders
    assume(all(left_last(first, start) for start in (10, 11)))
    known = [stated(Statement(A, start)) for start in (10, 11) if any(rank_of(piece)[0] == start for piece in first)]
    assert settle(make_roster(A, B), [*known, *first]) == settle(make_roster(A, B), [*known, *second])


def left_last(news: list[News], start: int) -> bool:
    """Whether a life that ends by leaving ends so: an honest member says nothing more."""
    said = [p.statement for p in news if isinstance(p, MemberRecord) and p.statement.start == start]
    return not any(
        left.left and other.incarnation >= left.incarnation and left != other for left in said for other in said
    )


def rank_of(piece: News) -> tuple[int, int, State]:
    return piece.rank if isinstance(piece, Claim) else piece.statement.rank


@steady
@given(st.lists(news_of_a, min_size=1, max_size=6))
def test_statements_never_fall_back_and_the_books_agree(news: list[News]) -> None:
    roster = make_roster(A, B)
    before = (10, 0)
    for piece in news:
        if isinstance(piece, Claim):
            roster.hear_claim(1.0, piece)
        else:
            roster.hear_member(1.0, piece)
        held = roster.get(A)
        assert held is not None
        assert (held.start, held.statement.incarnation) >= before
        before = held.start, held.statement.incarnation
        assert roster.living == sum(member.state.living for member in roster.all())
        assert set(roster.suspicions) == {m.id for m in roster.all() if m.state is State.SUSPECT}


def test_at_one_incarnation_dead_beats_suspect_beats_alive() -> None:
    roster = make_roster(A, B)
    roster.hear_claim(1.0, suspect())
    assert (state(roster), kinds(roster)) == (State.SUSPECT, [Suspected])
    roster.hear_member(1.0, stated(Statement(A, 10)))
    assert state(roster) is State.SUSPECT
    roster.hear_claim(9.0, dead())
    assert (state(roster), kinds(roster)) == (State.DEAD, [Died])
    roster.hear_claim(9.0, suspect())
    roster.hear_member(1.0, stated(Statement(A, 10)))
    assert (state(roster), kinds(roster)) == (State.DEAD, [])


@pytest.mark.parametrize("claim", [suspect(), dead()])
def test_a_higher_incarnation_beats_any_claim(claim: Claim) -> None:
    roster = make_roster(A, B)
    roster.hear_claim(1.0, suspect())
    roster.hear_claim(9.0, claim)
    fetch(roster)
    roster.hear_member(9.0, stated(Statement(A, 10, 1)))
    assert (state(roster), kinds(roster)) == (State.ALIVE, [Recovered])
    roster.hear_claim(3.0, claim)
    assert state(roster) is State.ALIVE


def test_a_later_start_is_another_life() -> None:
    roster = make_roster(A, B)
    roster.hear_member(1.0, stated(Statement(A, 11)))
    assert kinds(roster) == [Died, Joined]
    roster.hear_claim(1.0, dead(incarnation=9, start=10))
    assert state(roster) is State.ALIVE
    roster.hear_claim(1.0, dead(incarnation=9, start=12))
    assert state(roster) is State.ALIVE


def test_left_is_not_dead_and_only_its_own_word_brings_it_back() -> None:
    roster = make_roster(A, B)
    roster.hear_member(1.0, stated(Statement(A, 10, 1, left=True)))
    assert (state(roster), kinds(roster)) == (State.LEFT, [Left])
    roster.hear_claim(2.0, dead(incarnation=5))
    roster.hear_claim(2.0, suspect(incarnation=5))
    roster.expire(100.0)
    assert (state(roster), kinds(roster)) == (State.LEFT, [])
    roster.hear_member(3.0, stated(Statement(A, 11)))
    assert (state(roster), kinds(roster)) == (State.ALIVE, [Joined])


def test_a_death_that_is_news_leaves_time_to_refute() -> None:
    roster = make_roster(A, B)
    roster.hear_claim(1.0, dead())
    roster.hear_claim(2.0, dead(by=C))
    assert (state(roster), kinds(roster)) == (State.SUSPECT, [Suspected])
    assert roster.next_at() == 1.0 + LAN.suspicion_min_s(3)
    roster.expire(roster.next_at())
    assert (state(roster), kinds(roster)) == (State.DEAD, [Died])


def test_confirmations_shorten_and_are_passed_on() -> None:
    roster = make_roster(A, B, C, D)
    roster.hear_claim(0.0, suspect(by=B))
    assert roster.next_at() == 24.0
    roster.hear_claim(1.0, suspect(by=B))
    roster.accuse(1.0, A)
    roster.hear_claim(1.0, suspect(by=b"\xee" * 32))  # nobody whom we know
    roster.hear_claim(1.0, suspect(by=C))
    assert roster.next_at() == pytest.approx(4.0)
    assert [record.by for record in roster.news if isinstance(record, Claim)] == [B, ME, C]


def test_a_probe_without_an_answer_makes_a_suspect_once() -> None:
    roster = make_roster(A, B)
    roster.accuse(1.0, A)
    roster.accuse(2.0, A)
    roster.accuse(2.0, b"\xee" * 32)
    assert kinds(roster) == [Suspected]


@pytest.mark.parametrize(
    ("claim", "incarnation"),
    [
        (suspect(2, member=ME), 3),  # as new as what we said: refuted
        (dead(2, member=ME), 3),
        (suspect(7, member=ME), 8),  # newer than anything that we said: refuted above it
        (suspect(1, member=ME), 2),  # answered already
        (dead(1, member=ME), 2),
        (dead(9, member=ME, start=9), 2),  # another life
    ],
)
def test_only_claims_at_least_as_new_are_refuted(claim: Claim, incarnation: int) -> None:
    roster = make_roster(A, B)
    roster.hear_claim(0.0, suspect(0, member=ME))
    roster.hear_claim(0.0, suspect(1, member=ME))
    roster.news.clear()
    roster.hear_claim(1.0, claim)
    held = roster.get(ME)
    assert held is not None
    assert held.statement.incarnation == held.incarnation == incarnation
    assert held.state is State.ALIVE
    assert len(roster.news) == (incarnation > 2)


def test_a_later_life_of_our_own_key_is_outlived() -> None:
    roster = make_roster(A)
    roster.hear_member(1.0, stated(Statement(ME, 99, 4)))
    held = roster.get(ME)
    assert held is not None
    assert (held.start, held.incarnation) == (100, 0)
    assert fetch(roster) == [Outlived(99)]


def test_the_last_incarnation_is_followed_by_another_life() -> None:
    roster = make_roster(A)
    roster.hear_claim(1.0, suspect(U32_MAX, member=ME))
    held = roster.get(ME)
    assert held is not None
    assert (held.start, held.incarnation) == (11, 0)


def test_who_is_long_dead_is_forgotten_and_not_taken_in_again() -> None:
    roster = make_roster(A, B)
    roster.hear_claim(-9.0, suspect())
    roster.hear_claim(0.0, dead())
    fetch(roster)
    roster.expire(LAN.forget_s - 1)
    assert state(roster) is State.DEAD
    roster.expire(LAN.forget_s)
    assert kinds(roster) == [Forgotten]
    assert roster.get(A) is None
    old = MemberRecord(Statement(A, 10), State.DEAD, 0, B, int(LAN.forget_s))
    roster.hear_member(LAN.forget_s, old)
    assert roster.get(A) is None


def test_a_dead_stranger_is_kept_with_its_age_and_no_event() -> None:
    roster = make_roster()
    roster.hear_member(100.0, MemberRecord(Statement(A, 10), State.DEAD, 0, B, 60))
    held = roster.get(A)
    assert held is not None
    assert (held.state, held.since, kinds(roster)) == (State.DEAD, 40.0, [])


def test_a_suspected_stranger_has_joined_and_is_suspected() -> None:
    roster = make_roster(B)
    roster.hear_member(1.0, MemberRecord(Statement(A, 10, 2), State.SUSPECT, 2, B))
    assert kinds(roster) == [Joined, Suspected]


def test_a_claim_may_come_before_the_statement_that_it_is_about() -> None:
    roster = make_roster(A, B)
    roster.hear_claim(1.0, suspect(3))
    roster.hear_member(1.0, stated(Statement(A, 10, 3, "moved")))
    held = roster.get(A)
    assert held is not None
    assert (held.state, held.incarnation, held.label) == (State.SUSPECT, 3, "moved")


def test_another_address_is_an_update() -> None:
    roster = make_roster(A)
    roster.hear_member(1.0, stated(Statement(A, 10, 1, "", b"there")))
    assert kinds(roster) == [Updated]


def test_claims_about_strangers_are_ignored() -> None:
    roster = make_roster(A)
    roster.hear_claim(1.0, suspect(member=C))
    assert roster.get(C) is None
    assert roster.news == []


def test_a_stop_of_ours_shortens_nobodys_suspicion() -> None:
    roster = make_roster(A, B)
    roster.hear_claim(0.0, suspect())
    ends_at = roster.next_at()
    roster.delay(20.0)
    assert roster.next_at() == ends_at + 20.0

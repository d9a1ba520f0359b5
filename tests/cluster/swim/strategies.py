"""Hypothesis strategies for valid packets."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ropeway.cluster.names import Entry
from ropeway.cluster.swim.errors import Fault
from ropeway.cluster.swim.packets import Ack, Body, Gossip, Nack, Packet, Ping, PingReq, Pull, Refuse, Sync, Told
from ropeway.cluster.swim.records import MemberRecord, NameRecord, Record
from ropeway.cluster.swim.values import TIME_MAX, U32_MAX, Claim, State, Statement

steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For property tests on a busy machine."""

U32 = st.integers(0, U32_MAX)
U64 = st.integers(0, (1 << 64) - 1)
TIMES = st.integers(0, TIME_MAX)
IDS = st.sampled_from([bytes([number]) * 32 for number in range(1, 5)])
SEALS = st.sampled_from([b"", bytes(range(64))])
PRINTED = st.characters(codec="utf-8", exclude_categories=["C", "Z"])


@st.composite
def member_records(draw: st.DrawFn) -> MemberRecord:
    state = draw(st.sampled_from(State))
    own = draw(U32)
    accused = state in (State.SUSPECT, State.DEAD)
    label = draw(st.text(PRINTED, max_size=15))
    address = draw(st.binary(max_size=60))
    statement = Statement(draw(IDS), draw(TIMES), own, label, address, state is State.LEFT, draw(SEALS))
    incarnation = draw(st.integers(own, U32_MAX)) if accused else own
    by = draw(IDS.filter(lambda by: by != statement.member)) if accused else statement.member
    return MemberRecord(statement, state, incarnation, by, 0 if state.living else draw(U32))


@st.composite
def claims(draw: st.DrawFn) -> Claim:
    member = draw(IDS)
    by = draw(IDS.filter(lambda by: by != member))
    return Claim(member, draw(TIMES), draw(U32), draw(st.sampled_from([State.SUSPECT, State.DEAD])), by)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    name = draw(st.text(PRINTED, min_size=1, max_size=15))
    return Entry(
        name, draw(TIMES), draw(TIMES), draw(IDS), draw(st.booleans()), draw(st.binary(max_size=20)), draw(SEALS)
    )


@st.composite
def name_records(draw: st.DrawFn) -> NameRecord:
    entry = draw(entries())
    return NameRecord(entry, 0 if entry.live else draw(U32))


@st.composite
def syncs(draw: st.DrawFn) -> Sync:
    keys = sorted(draw(st.sets(U64, max_size=6)))
    low = draw(st.integers(0, keys[0])) if keys else 0
    high = draw(st.integers(keys[-1], (1 << 64) - 1)) if keys else draw(U64)
    return Sync(draw(st.booleans()), low, high, tuple((key, draw(U32)) for key in keys))


bodies: st.SearchStrategy[Body] = st.one_of(
    st.builds(Ping, U32),
    st.builds(Ack, U32),
    st.builds(PingReq, U32, IDS),
    st.builds(Nack, U32),
    st.just(Gossip()),
    syncs(),
    st.builds(Pull, st.sets(U64, max_size=6).map(sorted).map(tuple)),
    st.builds(Told, st.booleans()),
    st.builds(Refuse, st.sampled_from(Fault)),
)
records: st.SearchStrategy[Record] = st.one_of(member_records(), claims(), name_records())
packets = st.builds(Packet, st.binary(min_size=8, max_size=8), bodies, st.lists(records, max_size=3).map(tuple))

"""The page's pure modules, run where they will run."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from page.fake_ring import Load, ring_at

Run = Callable[[str], Any]

JUNK: list[Any] = [
    None,
    True,
    -1,
    1e300,
    "",
    "x" * 5000,
    "<b>&",
    [],
    {},
    [[]],
    [{}],
    {"a": [1]},
    0.5,
    "ready",
    [None, 3],
]


def bent(seed: int) -> Any:
    """A ring with a few of its values replaced by junk, at any depth."""
    rng = random.Random(seed)
    ring: Any = ring_at(seed, 1 + seed % 4, Load(streams=seed % 5))
    for _ in range(1 + seed % 4):
        place: Any = ring
        keys: list[Any] = []
        while isinstance(place, (dict, list)) and place and (rng.random() < 0.75 or not keys):
            keys.append(rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place)))
            parent, place = place, place[keys[-1]]
        if keys:
            parent[keys[-1]] = rng.choice(JUNK)
    return ring


def test_format(module: Run) -> None:
    said = module(
        """(async () => { const f = await m('format.js'); return [
        f.count(32768), f.rate(61.04), f.rate(6.13), f.rate(0.042), f.rate(0),
        f.bytes(92e6), f.bytes(999.6), f.bytes(12), f.millis(0.3), f.millis(640), f.millis(2100),
        f.seconds(123), f.seconds(59.6), f.seconds(3600), f.seconds(90000),
        f.percent(0.4731), f.plural(1, 'stream'), f.plural(2000, 'entry', 'entries')] })()"""
    )
    assert said == [
        "32,768", "61", "6.1", "0.04", "0", "92 MB", "1 kB", "12 B",
        "0.3 ms", "640 ms", "2.1 s", "2 min 3 s", "1 min", "1 h", "1 d 1 h",
        "47 %", "1 stream", "2,000 entries",
    ]  # fmt: skip


def test_a_ring_is_read_as_it_is(module: Run) -> None:
    ring = ring_at(5, 3, Load(streams=4))
    read = module(f"m('ring_state.js').then((s) => s.readRing({json.dumps(ring)}))")
    assert [stage["end"] for stage in read["stages"]] == [10, 20, 30]
    assert read["stages"][1]["kvRowsUsed"] == ring["stages"][1]["kv_rows_used"]
    assert read["links"][2] == {"from": 2, "to": 0, "rowBytes": 2304}
    assert read["recent"][0]["stages"][2]["spans"][0]["kind"] == "wait_rows"
    assert read["overlap"]["efficiency"] == ring["overlap"]["efficiency"]
    assert read["stages"][1]["shares"]["wire"] == ring["stages"][1]["shares"]["wire"]
    assert len(read["streams"]) == 4


def test_bent_rings_are_read_all_the_same(module: Run) -> None:
    rings = [bent(seed) for seed in range(300)] + [{}, {"stages": {}}, {"recent": [{"timeline": {"stages": [{}]}}]}]
    kinds = module(
        f"""m('ring_state.js').then((s) => [...new Set({json.dumps(rings)}.map((r) => {{
            if (typeof r !== 'object' || r === null || Array.isArray(r)) return 'no object';
            const ring = s.readRing(r);
            const bad = [];
            const wrong = (v) => v === undefined || (typeof v === 'number' && !(v >= 0));
            JSON.stringify(ring, (key, v) => {{ if (wrong(v)) bad.push(key); return v; }});
            return ring.stages.every((t) => t.shares.forward <= 1) ? bad.join() : 'share';
        }}))])"""
    )
    assert [kind for kind in kinds if kind not in ("", "no object")] == []


@pytest.mark.parametrize("value", [None, 3, "x", [], [{}]])
def test_only_an_object_is_a_ring(module: Run, value: Any) -> None:
    outcome = module(f"m('ring_state.js').then((s) => s.readRing({json.dumps(value)})).catch((e) => e.name)")
    assert outcome == "TypeError"


def test_events_do_not_depend_on_how_the_bytes_are_split(module: Run) -> None:
    text = ': ping\n\ndata: {"a": 1}\r\n\r\nevent: x\rdata: one\rdata:two\r\rid: 3\n\ndata\n\n'
    text += "data: [DONE]\n\ndata: never ended"
    pieces = [[text], list(text), *([text[:at], text[at:]] for at in range(1, len(text)))]
    read = module(
        f"""m('sse.js').then((s) => {json.dumps(pieces)}.map((split) => {{
            const reader = new s.EventReader(); return split.flatMap((piece) => reader.read(piece)); }}))"""
    )
    assert all(events == ['{"a": 1}', "one\ntwo", "", "[DONE]"] for events in read)


def test_stations_and_ropes_fit(module: Run) -> None:
    """Ropes join the stations in a ring, stay on the picture and clear of the ground."""
    sizes = list(itertools.product([1, 2, 3, 4, 6, 9, 12], [560, 800, 1200, 1248]))
    plans = module(f"m('geometry.js').then((g) => {json.dumps(sizes)}.map(([n, width]) => g.across(n, width)))")
    for (count, width), plan in zip(sizes, plans, strict=True):
        stations, legs = plan["stations"], plan["legs"]
        assert len(stations) == count
        assert len(legs) == count
        for at, leg in enumerate(legs):
            assert leg[0] == stations[at]
            assert leg[-1] == stations[(at + 1) % count]
        for point in itertools.chain(*legs):
            assert 0 <= point["x"] <= width
            assert 0 <= point["y"] <= plan["height"]
        for point in plan["out"]:
            ground = min(plan["ground"], key=lambda each: abs(each["x"] - point["x"]))
            assert ground["y"] - point["y"] > 24, (count, width, point)


def test_a_narrow_page_hangs_the_stations_one_below_the_other(module: Run) -> None:
    plan = module("m('geometry.js').then((g) => g.down([78, 200, 380], 460))")
    assert [leg[0]["y"] for leg in plan["legs"]] == [78, 200, 380]
    assert all(0 <= point["y"] <= 460 for point in itertools.chain(*plan["legs"]))


def test_a_point_moves_along_a_rope(module: Run) -> None:
    points = [{"x": 0, "y": 0}, {"x": 10, "y": 0}, {"x": 10, "y": 30}]
    found = module(f"m('geometry.js').then((g) => [0, 0.25, 0.5, 1, 2].map((a) => g.pointAt({json.dumps(points)}, a)))")
    assert found == [{"x": 0, "y": 0}, {"x": 10, "y": 0}, {"x": 10, "y": 10}, {"x": 10, "y": 30}, {"x": 10, "y": 30}]


def test_the_picture_is_slowed_by_a_round_number(module: Run) -> None:
    rates = [0.01, 0.3, 1, 7, 68, 900, 20000]
    slower = module(f"m('pace.js').then((p) => {json.dumps(rates)}.map((r) => p.slowdown(r, 2, 0)))")
    assert slower == [1, 2, 5, 50, 500, 5000, 100000]
    kept = module("m('pace.js').then((p) => [p.slowdown(70, 2, 200), p.slowdown(500, 2, 200), p.slowdown(1, 2, 200)])")
    assert kept == [200, 2000, 5]


def test_a_trip_is_half_work_and_half_rope(module: Run) -> None:
    parts = module("m('pace.js').then((p) => p.timetable([6, 3, 0], [100, 100, 200]))")
    assert sum(part["share"] for part in parts) == pytest.approx(1)
    inside = [part["share"] for part in parts if part["at"] == "station"]
    assert sum(inside) == pytest.approx(0.5)
    assert inside[0] > inside[1] > inside[2] > 0
    alone = module("m('pace.js').then((p) => p.timetable([6], [0]))")
    assert [part["share"] for part in alone] == [1, 0]
    places = module(
        "m('pace.js').then((p) => { const t = p.timetable([1, 1], [100, 100]);"
        " return [0, 0.3, 0.6, 0.999, 1.0, 7.3].map((phase) => p.locate(t, phase)).map((l) => l.at + l.index); })"
    )
    assert places == ["station0", "leg0", "station1", "leg1", "station0", "leg0"]


def test_sums_of_a_timeline(module: Run) -> None:
    spans = [
        {"kind": "forward", "start": 0, "end": 6}, {"kind": "wait_rows", "start": 6, "end": 16},
        {"kind": "wait_send", "start": 16, "end": 17}, {"kind": "forward", "start": 17, "end": 20},
    ]  # fmt: skip
    found = module(f"m('sums.js').then((s) => s.sums({json.dumps(spans)}, 25))")
    assert found == {"forward": 9, "waitRows": 10, "waitSend": 1, "other": 5}
    assert module("m('sums.js').then((s) => s.ticks(640, 8))") == [0, 100, 200, 300, 400, 500, 600]
    request = {"queuedMs": 2, "firstTokenMs": 80, "totalMs": 640, "stages": []}
    phases = module(f"m('sums.js').then((s) => s.phases({json.dumps(request)}))")
    assert [(phase["name"], phase["start"], phase["end"]) for phase in phases] == [
        ("queued", 0, 2), ("prompt", 2, 80), ("reply", 80, 640),
    ]  # fmt: skip

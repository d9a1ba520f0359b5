"""What /v1/ring shows, while the loop works and while threads look on."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from fake_engine import Shape
from fake_ranks import fake_ring, layout_of
from ropeway.serving import board as board_file
from ropeway.serving.board import Board, StageCard
from ropeway.serving.chooser import Job
from ropeway.serving.drawing import Finished, last_round, links, stage_figures, stream
from ropeway.serving.figures import RECENT, TIMELINE_ROUNDS
from ropeway.serving.prompt_cache import PromptCache
from ropeway.serving.sequence import Finish, Sequence, State
from ropeway.serving.service import GenerateRequest, ServiceState
from ropeway.serving.underway import RoundRecord
from ropeway.types import SamplerAt, placement_name
from ropeway.wire import Done
from serving.served import Served

MS = 1_000_000
LAYOUT = layout_of(Shape(), 2)


def card(rank: int) -> StageCard:
    first, zero = 2 * rank, rank == 0
    return StageCard(rank, first, first + 2, "worker", "cpu", f"127.0.0.1:{rank}", 100, 5, 384, zero, zero)


def board() -> Board:
    return Board(LAYOUT, "tiny", 96, 4, 8)


def shown(one: Board) -> Any:
    """What a client reads."""
    return json.loads(json.dumps(one.ring()))


def test_before_anything_has_happened() -> None:
    one = board()
    ring = shown(one)
    assert (ring["state"], ring["detail"], ring["stages"], ring["streams"]) == ("starting", "", [], [])
    assert ring["model"] == {"id": "tiny", "layers": 4, "hidden": 8, "context": 96, "checkpoint": "ab" * 32}
    assert ring["placement"].startswith("rw-")
    assert ring["round"] == {"number": 0, "rows": 0, "parts": 0, "last_ms": None, "per_s": 0.0, "wire_ms": None}
    one.attach((card(0), card(1)), PromptCache(2, 8, 1, 1000), {})
    ring = shown(one)
    assert [stage["rank"] for stage in ring["stages"]] == [0, 1]
    assert ring["stages"][1]["activity"] == "waiting"
    assert ring["stages"][1]["forward_ms"] is None
    assert ring["stages"][1]["shares"] == {
        "forward": 0.0, "wait_rows": 0.0, "wait_send": 0.0, "wire": 0.0, "waiting": 0.0, "other": 1.0,
    }  # fmt: skip
    assert ring["overlap"] == {"at_work": None, "possible": None, "efficiency": None}
    assert ring["prompt_cache"]["limit_bytes"] == 1000


def test_draining_is_for_good() -> None:
    one = board()
    for state in (ServiceState.READY, ServiceState.RESTARTING, ServiceState.FAILED, ServiceState.DRAINING):
        one.become(state, f"because of {state.value}")
        assert (one.state, one.detail) == (state, f"because of {state.value}")
    one.become(ServiceState.READY)
    assert (one.state, one.detail) == (ServiceState.DRAINING, "because of draining")


def test_the_links_go_round() -> None:
    assert links(LAYOUT) == [{"from": 0, "to": 1, "row_bytes": 32}, {"from": 1, "to": 0, "row_bytes": 32}]
    chain = links(layout_of(Shape(), 3, SamplerAt.LAST))
    assert [link["row_bytes"] for link in chain] == [32, 32, 16]
    assert links(layout_of(Shape(), 1)) == []


def record(number: int, landed: int, dones: dict[int, Done] | None = None) -> RoundRecord:
    at = (landed - 20) * MS
    return RoundRecord(number, 3, 1, at, at, at + 15 * MS, landed * MS, 4 * MS, 2 * MS, dones=dones or {})


def test_the_latest_round_that_a_stage_has_ended_counts() -> None:
    records = [record(7, 1000, {1: Done(1, forward_ns=6 * MS)}), record(8, 1030)]
    zero, one = stage_figures((card(0), card(1)), records, 12, 1040 * MS)
    assert (zero["forward_ms"], one["forward_ms"], one["kv_rows_used"]) == (6.0, 6.0, 12)
    drawn = last_round(records, 1040 * MS, 2)
    assert (drawn["number"], drawn["rows"], drawn["last_ms"], drawn["per_s"]) == (8, 3, 20.0, 1.0)
    assert drawn["wire_ms"] == 15 - 4 - 6
    under_way = record(9, 0)
    under_way.launched_ns, under_way.landed_ns = 1035 * MS, 0
    assert last_round([*records, under_way], 1040 * MS, 2)["last_ms"] == 5.0
    assert stage_figures((card(0),), [under_way], 0, 1040 * MS)[0]["forward_ms"] is None


@pytest.mark.parametrize(
    ("forward", "rows", "send", "activity"),
    [(0, 4900, 0, "waiting"), (50, 4900, 0, "waiting"), (2000, 2900, 0, "computing"), (1000, 500, 2000, "sending")],
)
def test_what_a_stage_is_said_to_do(forward: int, rows: int, send: int, activity: str) -> None:
    """Milliseconds of the last five seconds."""
    done = Done(1, (), rows * MS, forward * MS, send * MS)
    (drawn,) = stage_figures((card(1),), [record(1, 5000, {1: done})], 0, 5000 * MS)
    assert drawn["activity"] == activity
    (drawn,) = stage_figures((card(1),), [record(1, 5000, {1: done})], 0, 5000 * MS, idle=True)
    assert drawn["activity"] == "waiting", "a ring at rest computes nothing, whatever it did a second ago"


@pytest.mark.parametrize(
    ("state", "name"), [(State.WAITING, "waiting"), (State.ENTERING, "entering"), (State.DECODING, "decoding")]
)
def test_streams(state: State, name: str) -> None:
    sequence = Sequence(3, (1, 2, 3), 5, produced=[4], cached_rows=2, state=state)
    job = Job(GenerateRequest((1, 2, 3), 5), sequence, lambda _: None, 1000 * MS)
    assert stream(job, 1250 * MS) == {
        "id": 3,
        "state": name,
        "prompt_tokens": 3,
        "cached_tokens": 2,
        "produced": 1,
        "age_s": 0.25,
    }


def test_a_finished_request_is_drawn_once_all_dones_are_there() -> None:
    rounds = [record(1, 20), record(2, 40)]
    one = Finished({"id": 5}, rounds, 2, 0)
    assert [len(stage["spans"]) for stage in one.show()["timeline"]["stages"]] == [4, 0]  # type: ignore[index]
    for late in rounds:
        late.dones[1] = Done(1, forward_ns=3 * MS)
    drawn = one.show()
    assert [len(stage["spans"]) for stage in drawn["timeline"]["stages"]] == [4, 2]  # type: ignore[index]
    assert drawn["timeline"]["rounds"] == 2  # type: ignore[index]
    assert one.show() is drawn


def test_the_latest_requests_come_first_and_are_bounded() -> None:
    one = board()
    for number in range(RECENT + 3):
        job = Job(GenerateRequest((1,), 1), Sequence(number, (1,), 1), lambda _: None, 0)
        one.finished(job, Finish.CANCELLED)
    recent = shown(one)["recent"]
    assert [request["id"] for request in recent] == list(range(RECENT + 2, 2, -1))
    assert recent[0]["finish"] == "cancelled"
    assert recent[0]["first_token_ms"] is None
    assert recent[0]["queued_ms"] == recent[0]["total_ms"]


def test_a_timeline_has_the_first_rounds_of_a_long_reply() -> None:
    with fake_ring(1, Shape(context=600, max_rows=600)) as ring:
        served = Served(ring)
        served.ask(GenerateRequest((1, 2), TIMELINE_ROUNDS + 50))
        (request,) = shown(served.board)["recent"]
        assert request["completion_tokens"] == TIMELINE_ROUNDS + 50
        assert request["timeline"]["rounds"] == TIMELINE_ROUNDS
        (stage,) = request["timeline"]["stages"]
        assert stage["spans"][0][1] == pytest.approx(request["queued_ms"], abs=0.002)
        assert stage["spans"][-1][2] < request["total_ms"]


def test_the_moving_figures_of_a_working_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_file, "REFRESH_NS", 0)
    with fake_ring(2) as ring:
        served = Served(ring, queue=9)
        served.board.attach((card(0), card(1)), served.cache, served.chooser.jobs)
        served.board.become(ServiceState.READY)
        clients = [served.submit(GenerateRequest((number, 2, 3), 20)) for number in range(6)]
        served.until(lambda: len(clients[3].tokens) == 10)
        live = shown(served.board)
        assert (live["slots"], live["queue"]) == ({"used": 4, "total": 4}, {"waiting": 2, "limit": 9})
        assert [one["state"] for one in live["streams"]] == ["decoding"] * 4 + ["waiting"] * 2
        assert [one["produced"] for one in live["streams"]] == [10] * 4 + [0] * 2
        assert [stage["kv_rows_used"] for stage in live["stages"]] == [4 * 12] * 2
        assert live["throughput"] == {"tokens_per_s": 8.0, "prompt_tokens_per_s": 2.4}
        assert (live["round"]["rows"], live["round"]["parts"]) == (4, 1)
        assert live["stages"][0]["forward_ms"] > 0
        assert 0 < live["overlap"]["at_work"] <= live["overlap"]["possible"] <= 2
        assert 0 < live["overlap"]["efficiency"] <= 1
        assert live["live"]["slots_used"] == 4
        assert live["live"]["kv_rows_used"] == 48
        assert all(name.isidentifier() and isinstance(value, (int, float)) for name, value in live["live"].items())
        served.finish()
        served.board.idle(served.loop)
        idle = shown(served.board)
        assert (idle["slots"]["used"], idle["queue"]["waiting"], idle["streams"]) == (0, 0, [])
        assert [stage["activity"] for stage in idle["stages"]] == ["waiting"] * 2
        served.board.detach()
        gone = shown(served.board)
        assert gone["prompt_cache"] == {}
        assert [stage["kv_rows_used"] for stage in gone["stages"]] == [0, 0]
        assert len(gone["recent"]) == 6


def test_any_thread_may_look_while_the_loop_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_file, "REFRESH_NS", 0)
    stop = threading.Event()

    def look(one: Board) -> int:
        looks = 0
        while not stop.wait(0.001):
            ring = shown(one)
            assert len(ring["stages"]) == 2
            assert ring["slots"]["used"] <= 4
            assert all(len(request["timeline"]["stages"]) == 2 for request in ring["recent"])
            looks += 1
        return looks

    with fake_ring(2) as ring:
        served = Served(ring, groups=2, cache_rows=200)
        served.board.attach((card(0), card(1)), served.cache, served.chooser.jobs)
        looking = ring.pool.submit(look, served.board)
        for number in range(60):
            served.submit(GenerateRequest((number % 50, 2, 3), 1 + number % 20))
        served.finish()
        for _ in range(200):
            served.board.attach((card(0), card(1)), served.cache, served.chooser.jobs)
            served.board.detach()
        stop.set()
        assert looking.result(20) > 0


def test_a_placement_is_named_by_its_layout_and_by_what_computes_it() -> None:
    one = board()
    before = one.placement
    names = [
        placement_name(LAYOUT.fingerprint(), computing)
        for computing in (
            (),
            ("LLAMACPP CPU", "TORCH CPU"),
            ("TORCH CPU", "LLAMACPP CPU"),
            ("LLAMACPP CPU", "TORCH CUDA"),
        )
    ]
    assert len(set(names)) == 4
    assert before == names[0]
    one.show(LAYOUT, names[1])
    assert shown(one)["placement"] == one.placement == names[1]

"""Timing a real engine on tiny models: what is loaded, what comes out, what is kept, what a busy machine shows."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

from ropeway.launch.model_facts import model_facts
from ropeway.placement.calibrated import kept, key
from ropeway.placement.calibration import CALM, CLEARED_BYTES, Calibration, Settings, calibrate
from ropeway.placement.facts import Cost, Costs, Node
from ropeway.placement.machine import Machine, limit_of, machine_facts, watch_others
from tiny_gguf import TinyModel, write_tiny

SETTINGS = Settings("llamacpp", streams=2, part=32, short=16, deep=64, steps=4, threads=1, limit_s=2.0)
MACHINE = Machine("here", "a processor", 2, 1 << 33, 1 << 32, False, 0.0)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("m") / "tiny.gguf", TinyModel(layers=8, width=128, feed_forward=256))


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path))


def test_the_model_as_placement_sees_it(path: Path) -> None:
    model = model_facts(path, "tiny")
    assert (len(model.layers), model.kinds, model.row_bytes) == (8, ("attention",), 512)
    assert model.embed_bytes > 0
    assert model.head_bytes > 0
    # 2 KV heads of 32 values, keys and values of 2 bytes
    assert model.layers[0].kv_row_bytes == 2 * 2 * 32 * 2


def test_only_the_layers_that_are_timed_are_loaded(path: Path) -> None:
    model = model_facts(path)
    found = calibrate("here", path, model, 1 << 33, SETTINGS)
    assert max(end for _, end in found.ranges) <= 4
    held = sum(model.layers[layer].weights_bytes for first, end in found.ranges for layer in range(first, end))
    assert found.weights_bytes == held + model.embed_bytes + model.head_bytes
    node = found.node
    assert (node.name, node.engine, node.backend, node.spare_layers) == ("here", "llamacpp", "cpu", 1)
    assert node.layers["attention"].decode.ms(1, 16) > 0
    assert node.layers["attention"].prompt.ms(32, 16) > node.layers["attention"].decode.ms(1, 16)
    assert node.head.ms(1) > 0
    assert node.rested >= 1.0
    assert node.limit_bytes == limit_of(1 << 33)
    assert found.cycles >= 2


def test_beside_other_stages_the_caches_are_cleared_and_count_for_nothing_else(path: Path) -> None:
    model = model_facts(path)
    found = calibrate("here", path, model, 1 << 33, replace(SETTINGS, shared=True))
    assert found.node.overhead_bytes < CLEARED_BYTES // 2
    assert found.node.layers["attention"].decode.ms(1, 16) > 0


def test_settings_that_cannot_be_are_named() -> None:
    with pytest.raises(ValueError, match="deep: 64 is not at least 320"):
        Settings("llamacpp", deep=64)
    with pytest.raises(ValueError, match="streams: 0"):
        Settings("llamacpp", streams=0)


def _calibration(spread: float = 0.0, others: float | None = 0.0) -> Calibration:
    node = Node("here", 5, {"a": Costs(Cost(1.0))}, spread=spread)
    return Calibration(node, 1.0, 3, others, ((0, 1),), 10)


def test_a_busy_machine_shows() -> None:
    assert _calibration().doubts == ""
    assert "times differ by 40%" in _calibration(spread=0.4).doubts
    assert "other processes had 50% of the machine" in _calibration(others=0.5).doubts
    assert _calibration(spread=2 * CALM, others=None).doubts == ""


def _burn(stop: object) -> None:
    while not stop.is_set():  # type: ignore[attr-defined]
        sum(range(1000))


def test_other_processes_are_seen() -> None:
    context = multiprocessing.get_context("spawn")
    stop, others = context.Event(), None
    burner = context.Process(target=_burn, args=(stop,))
    burner.start()
    try:
        # Until the other process has really run: it takes its time to start.
        for _ in range(200):
            with watch_others() as busy:
                sum(range(3_000_000))
            others = busy.others
            if others is None or others > 0.1:
                break
    finally:
        stop.set()
        burner.join()
    assert others is None or others > 0.1


def test_a_calibration_is_measured_once_and_again_when_something_changed() -> None:
    made: list[int] = []

    def measure() -> Calibration:
        made.append(1)
        return _calibration()

    first = kept("here", "abc", MACHINE, SETTINGS, measure, again=False)
    assert (first.fresh, len(made)) == (True, 1)
    second = kept("there", "abc", MACHINE, SETTINGS, measure, again=False)
    assert (second.fresh, second.calibration.node.name, len(made)) == (False, "there", 1)
    assert replace(second.calibration, node=replace(second.calibration.node, name="here")) == first.calibration
    kept("here", "abc", MACHINE, SETTINGS, measure, again=True)
    assert len(made) == 2
    first.path.write_text("{")
    assert kept("here", "abc", MACHINE, SETTINGS, measure, again=False).fresh


def test_the_key_changes_with_all_that_matters() -> None:
    keys = {
        key("abc", MACHINE, SETTINGS),
        key("abd", MACHINE, SETTINGS),
        key("abc", replace(MACHINE, processor="another"), SETTINGS),
        key("abc", MACHINE, replace(SETTINGS, threads=2)),
        key("abc", MACHINE, replace(SETTINGS, engine="torch")),
        key("abc", MACHINE, replace(SETTINGS, shared=True)),
    }
    assert len(keys) == 6
    assert key("abc", MACHINE, replace(SETTINGS, limit_s=9)) in keys


def test_the_machine_leaves_the_system_its_floor() -> None:
    found = machine_facts(bandwidth=False)
    assert 0 < found.limit_bytes < found.memory_bytes
    assert limit_of(1 << 30) == 0
    assert limit_of(100 * 10**9) == 90 * 10**9

"""The commands of the README, on the real demo model and on tiny ones."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from end_to_end.commands import ropeway, ropeway_json
from ropeway import __version__
from ropeway.checkpoints.demo import resolve_model
from tiny_gguf import TinyModel, write_tiny

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", TinyModel(layers=5)))


@pytest.mark.model
@pytest.mark.parametrize("flags", [["--stages", "2"], ["--cuts", "4,26"], ["--sampler", "last"], ["--stages", "1"]])
def test_demo_says_hello_and_keeps_its_bits(flags: list[str]) -> None:
    value = ropeway_json("demo", "--max-tokens", "12", *flags)
    assert value["exact"] is True
    assert len(value["token_ids"]) == 12
    assert value["text"].strip()
    stages = value["stages"]
    assert [stage["rank"] for stage in stages] == list(range(len(stages)))
    assert stages[0]["first"] == 0
    assert stages[-1]["end"] == 30
    assert value["tokens_per_s"] == pytest.approx(1000 / value["ms_per_token"])
    assert (value["wire_ms_per_token"] is None) == (len(stages) == 1)


@pytest.mark.model
def test_every_placement_says_the_same() -> None:
    texts = {
        ropeway_json("demo", "--max-tokens", "8", *flags)["text"] for flags in (["--stages", "3"], ["--cuts", "1"])
    }
    assert len(texts) == 1


@pytest.mark.model
def test_two_stages_hold_the_model_and_the_heads_copy() -> None:
    """30 layers of 2,216,448 bytes; the tied matrix of 30,081,024 bytes once as the embeddings, once as the head."""
    stages = ropeway_json("demo", "--max-tokens", "1")["stages"]
    whole = resolve_model("demo").stat().st_size
    held = sum(stage["weights_bytes"] for stage in stages)
    matrix = 49_152 * 576 // 32 * 34
    assert 0 <= held - matrix - (whole - 2_000_000) < 2_000_000
    assert stages[1]["weights_bytes"] * 30 == pytest.approx(15 * (held - 2 * matrix), rel=0.001)


@pytest.mark.model
def test_the_picture_and_the_figures_for_people() -> None:
    out = ropeway("demo", "--max-tokens", "6", COLUMNS="100").stdout
    assert "rank 1" in out
    assert "layers 15..30" in out
    assert "held against one process: every token and every logit, the same bits" in out


@pytest.mark.model
def test_check_on_the_demo_model() -> None:
    value = ropeway_json("check", "demo", "--cuts", "15", "--steps", "8", "--prompt-tokens", "300", "--part", "128")
    assert (value["steps"], value["equal_steps"], value["max_abs_diff"]) == (8, 8, 0.0)
    assert (value["kl_mean"], value["kl_max"], value["top1"]) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize("flags", [["--stages", "4"], ["--cuts", "1,4"], ["--stages", "3", "--streams", "3"]])
def test_check_on_a_tiny_model(tiny: str, flags: list[str]) -> None:
    value = ropeway_json("check", tiny, *flags, "--steps", "6", "--prompt-tokens", "70", "--part", "32")
    assert value["equal_steps"] == value["steps"] == 6 * (3 if "--streams" in flags else 1)


def test_check_of_a_chain_compares_tokens(tiny: str) -> None:
    value = ropeway_json("check", tiny, "--sampler", "last", "--steps", "6", "--streams", "2")
    assert (value["equal_steps"], value["max_abs_diff"], value["top1"]) == (12, None, 1.0)


def test_the_same_seed_gives_the_same_reply(tiny: str) -> None:
    def ids(seed: str) -> list[int]:
        found = ropeway_json("run", tiny, "hello", "--temperature", "1", "--seed", seed, "--max-tokens", "30")
        return list(found["token_ids"])

    assert ids("7") == ids("7") != ids("8")


def test_a_trace_shows_every_stage_and_every_round(tiny: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    flags = ["--raw", "--stages", "3", "--part", "32", "--max-tokens", "4", "--context", "256"]
    value = ropeway_json("run", tiny, "hello " * 40, *flags, "--trace", str(path))
    events = json.loads(path.read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    layers = ["layers 0..2, llamacpp on cpu", "layers 2..4, llamacpp on cpu", "layers 4..5, llamacpp on cpu"]
    assert names == [f"rank {rank}: {what}" for rank, what in enumerate(layers)]
    forwards = [event for event in events if event["ph"] == "X" and event["cat"] == "forward"]
    rounds = [{event["args"]["round"] for event in forwards if event["tid"] == rank} for rank in range(3)]
    assert rounds[0] == rounds[1] == rounds[2]
    rows = {event["args"]["round"]: event["args"]["rows"] for event in forwards}
    assert sum(rows.values()) == value["prompt_tokens"] + len(value["token_ids"]) - 1
    assert any(event["args"]["parts"] == 2 for event in forwards), "a prompt goes through in parts"
    for rank in range(3):
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == rank)
        assert all(one[1] <= other[0] + 0.002 for one, other in pairwise(spans)), "a stage does one thing at a time"


def test_version() -> None:
    assert ropeway("--version").stdout.strip() == f"ropeway {__version__}"


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (["run", "/nowhere/model.gguf", "hi"], 1, "/nowhere/model.gguf"),
        (["run", "{tiny}", "hi", "--cuts", "5"], 2, "cuts: 5"),
        (["run", "{tiny}", "hi", "--cuts", "3,2"], 2, "cuts: 3,2"),
        (["run", "{tiny}", "hi", "--cuts", "two"], 2, "cuts: 'two'"),
        (["run", "{tiny}", "hi", "--stages", "6"], 2, "stages: 6"),
        (["run", "{tiny}", "hi", "--temperature", "-1"], 2, "temperature: -1"),
        (["run", "{tiny}", "hi", "--temperature", "1", "--sampler", "last"], 2, "--sampler last"),
        (["run", "{tiny}", "hi", "--ring", "a:1,b:2"], 2, "--key FILE"),
        (["run", "{tiny}", "hi", "--key", "x"], 2, "--ring"),
        (["run", "{tiny}", "x" * 400, "--raw", "--context", "64"], 2, "prompt: "),
        (["run", "{tiny}", "", "--raw"], 2, "prompt: "),
        (["run", "{tiny}", "hi", "--trace", "/nowhere/trace.json"], 2, "trace: /nowhere/trace.json"),
        (["check", "{tiny}", "--steps", "300", "--context", "256"], 2, "context: 256"),
        (["stage", "{tiny}", "--rank", "2", "--ring", "a:1,b:2", "--key", "{key}"], 2, "rank: 2"),
        (["stage", "{tiny}", "--rank", "1", "--ring", "a:1,b:2", "--key", "{key}", "--cuts", "1,2"], 2, "cuts: "),
        (["stage", "{tiny}", "--rank", "1", "--ring", "a:1,0.0.0.0:2", "--key", "{key}"], 2, "0.0.0.0"),
        (["stage", "{tiny}", "--rank", "1", "--ring", "a:1,b:2", "--key", "/nowhere/key"], 2, "/nowhere/key"),
        (["key", "new", "{key}"], 2, "exists already"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(tiny: str, tmp_path: Path, args: list[str], status: int, said: str) -> None:
    key = tmp_path / "ring.key"
    ropeway("key", "new", str(key))
    done = ropeway(*[arg.format(tiny=tiny, key=key) for arg in args], expect=status)
    assert said in done.stderr
    assert "Traceback" not in done.stderr

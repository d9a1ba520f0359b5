"""`ropeway place`, `facts`, `calibrate` and `probe` as a person types them, on tiny models."""

from __future__ import annotations

import json
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ropeway.cli.app import app
from tiny_gguf import TinyModel, write_tiny

NODES = """
[[node]]
name = "fast"
limit_gb = 8
decode_ms = 1
prompt_row_ms = 0.5
address = "10.0.0.1:9000"

[[node]]
name = "slow"
limit_gb = 8
decode_ms = 4
prompt_row_ms = 0.5
address = "10.0.0.2:9000"

[[node]]
name = "spare"
limit_gb = 8
decode_ms = 0.1
prompt_row_ms = 0.5
spare = true

[links]
round_trip_ms = 0.2
gbit = 10
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("m") / "tiny.gguf", TinyModel(layers=6)))


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "nodes.toml").write_text(NODES)
    return str(tmp_path / "nodes.toml")


def told(*args: str, expect: int = 0) -> str:
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == expect, result.output
    return result.output


def told_json(*args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(CliRunner().invoke(app, [*args, "--json"]).stdout)
    return found


def test_the_picture_and_what_is_predicted(model: str, nodes: str) -> None:
    said = told("place", model, "--nodes", nodes)
    assert "tiny.gguf for decode: layers 0..6" in said
    assert "6.00 ms a token of one stream" in said
    assert "slow would not make it faster: left out" in said


def test_prompts_are_shared_out_and_say_how_to_run(model: str, nodes: str, tmp_path: Path) -> None:
    said = told("place", model, "--nodes", nodes, "--goal", "prompt", "--prompt", "2048", "--part", "256", "--explain",
                "--svg", str(tmp_path / "p.svg"))  # fmt: skip
    assert "layers 0..3, 3..6" in said
    assert "--ring 10.0.0.1:9000,10.0.0.2:9000 --cuts 3" in said
    assert "cut at 4 instead of 3" in said
    assert "fast alone" in said
    tree = ElementTree.fromstring((tmp_path / "p.svg").read_text())
    texts = [element.text or "" for element in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert "rank 0: fast" in texts
    assert any("0.5" not in text and "predicted: first token" in text for text in texts)


def test_names_of_any_kind_leave_the_figures_whole(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = NODES.replace('"fast"', '"[/]-a-machine-with-a-long-name-1"').replace('"slow"', '"<b>&2"')
    (tmp_path / "odd.toml").write_text(text)
    wish = ("--goal", "prompt", "--prompt", "2048", "--part", "256", "--explain", "--svg", str(tmp_path / "p.svg"))
    for columns in (120, 80, 60):
        monkeypatch.setenv("COLUMNS", str(columns))
        said = told("place", model, "--nodes", str(tmp_path / "odd.toml"), *wish)
        table = said.partition("predicted:")[0].splitlines()[2:-1]
        assert max(map(len, table)) <= columns
        assert [line.split()[2] for line in table[1:3]] == ["0..3", "3..6"]
        assert "[/]" in table[1]
    texts = [element.text or "" for element in ElementTree.parse(tmp_path / "p.svg").iter()]
    assert any("<b>&2" in text for text in texts)


def test_a_file_that_cannot_be_written_or_read_is_named(model: str, nodes: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "no" / "p.svg")
    assert "No such file" in told("place", model, "--nodes", nodes, "--svg", missing, expect=2)
    (tmp_path / "odd.toml").write_bytes(b"\xff\xfe")
    assert "no UTF-8 text" in told("place", model, "--nodes", str(tmp_path / "odd.toml"), expect=2)


def test_json_has_the_same(model: str, nodes: str) -> None:
    value = told_json("place", model, "--nodes", nodes, "--explain", "--pin", "slow=0..2")
    assert [(s["node"], s["first"], s["end"]) for s in value["stages"]] == [("slow", 0, 2), ("fast", 2, 6)]
    # 2 x 4 + 4 x 1, and two hops of 0.1 ms and 256 bytes
    assert value["decode_ms"] == pytest.approx(12.2, abs=0.01)
    assert value["cuts"] == [2]
    value = told_json("place", model, "--nodes", nodes, "--explain", "--first", "slow")
    assert [(s["node"], s["first"], s["end"]) for s in value["stages"]] == [("slow", 0, 1), ("fast", 1, 6)]
    assert value["others"]
    assert all(other["cost"] >= value["cost"] for other in value["others"])


def test_what_if_adds_a_spare_node_or_drops_one(model: str, nodes: str) -> None:
    value = told_json("place", model, "--nodes", nodes, "--what-if", "spare")
    assert [s["node"] for s in value["stages"]] == ["spare"]
    assert value["before"]["decode_ms"] == pytest.approx(6.0)
    dropped = told_json("place", model, "--nodes", nodes, "--what-if", "fast")
    assert [s["node"] for s in dropped["stages"]] == ["slow"]


@pytest.mark.parametrize(
    ("args", "status", "why"),
    [
        (["--goal", "speed"], 2, "goal: 'speed' is not decode, prompt or throughput"),
        (["--goal", "decode=x"], 2, "goal: 'x' is not a number"),
        (["--pin", "fast"], 2, "pin: 'fast' is not NODE=A..B"),
        (["--pin", "fast=0..9"], 2, "cannot have layers 0..9"),
        (["--first", "nobody"], 2, "'nobody' is none of fast, slow, spare"),
        (["--what-if", "nobody"], 2, "'nobody' is none of"),
        (["--kv", "q1"], 2, "kv: 'q1' is none of"),
        (["--context", "1000000000"], 1, "the model does not fit: "),
        (["--nodes", "missing.toml"], 2, "missing.toml: No such file"),
        (["--from", "ftp://x"], 2, "is not a URL"),
        (["--from", "http://127.0.0.1:1"], 2, "from: http://127.0.0.1:1/v1/ring"),
    ],
)
def test_what_is_wrong_is_said(model: str, nodes: str, args: list[str], status: int, why: str) -> None:
    said = " ".join(told("place", model, "--nodes", nodes, *args, expect=status).split())
    assert why in said
    assert "Traceback" not in said


def test_a_calibration_of_another_model_is_refused(model: str, nodes: str, tmp_path: Path) -> None:
    other = Path(nodes).with_name("other.toml")
    other.write_text(NODES.replace('name = "fast"', f'name = "fast"\nmodel = "{"ab" * 32}"'))
    assert "node fast: it was calibrated for another model" in told("place", model, "--nodes", str(other), expect=2)


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, Any]]]:
    """A server whose GET /v1/ring gives the dictionary."""
    state: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(state).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}", state
        finally:
            http.shutdown()
            thread.join()


def test_a_running_ring_is_told_a_better_cut(model: str, nodes: str, server: tuple[str, dict[str, Any]]) -> None:
    url, state = server
    stages = [{"address": "10.0.0.1:9000", "first": 0, "end": 3}, {"address": "10.0.0.2:9000", "first": 3, "end": 6}]
    times = [{"decode_ms": 30.0}, {"decode_ms": 3.0}]  # fast takes 10 ms a layer now, slow 1 ms
    state |= {"stages": stages, "prediction": {"rows": 1, "depth": 64, "stages": times}}
    value = told_json("place", model, "--nodes", nodes, "--from", url)
    assert [(s["node"], s["first"], s["end"]) for s in value["best"]["stages"]] == [("slow", 0, 6)]
    assert value["running"]["decode_ms"] == pytest.approx(33.2, abs=0.01)
    assert value["gain"] == pytest.approx(1 - 6 / 33.2, abs=0.001)
    assert "would be gained with --cuts none on slow" in told("place", model, "--nodes", nodes, "--from", url)
    state["prediction"]["stages"] = [{"decode_ms": 3.0}, {"decode_ms": 12.0}]
    assert "82" not in told("place", model, "--nodes", nodes, "--pin", "fast=0..3", "--pin", "slow=3..6", "--from", url)
    state["prediction"]["rows"] = "many"
    assert "rows of http" in told("place", model, "--nodes", nodes, "--from", url, expect=2)
    state["stages"] = [7, 8]
    assert "is not up" in told("place", model, "--nodes", nodes, "--from", url, expect=2)
    state |= {"stages": stages, "prediction": {}}
    assert "has not decoded enough" in told("place", model, "--nodes", nodes, "--from", url, expect=2)


def test_a_drafter_is_charged_to_rank_0_and_its_guesses_fit_into_the_wait(model: str, nodes: str) -> None:
    halves = ("--pin", "fast=0..3", "--pin", "slow=3..6")
    draft = ("--draft", f"model:{model}")
    plain = told_json("place", model, "--nodes", nodes, *halves)
    drafted = told_json("place", model, "--nodes", nodes, *halves, *draft)
    more = [b["memory_bytes"] - a["memory_bytes"] for a, b in zip(plain["stages"], drafted["stages"], strict=True)]
    # weights of all six layers with both ends, and keys and values of 4,096 positions
    assert more[0] > 0
    assert more[1] == 0
    assert (drafted["drafter_ms"], drafted["guesses"]) == (0.0, 0)
    Path(nodes).write_text(NODES.replace('name = "fast"', 'name = "fast"\ndrafter_ms = 2.5'))
    # Rank 0 waits for three layers of 4 ms and two hops of 0.1 ms: four guesses of 2.5 ms and no fifth.
    again = told_json("place", model, "--nodes", nodes, *halves, *draft)
    assert (again["drafter_ms"], again["guesses"]) == (2.5, 4)
    assert "4 fit in" in told("place", model, "--nodes", nodes, *halves, *draft)
    assert told_json("place", model, "--nodes", nodes, "--draft", "ngram")["guesses"] == 0
    assert "not none, ngram" in told("place", model, "--nodes", nodes, "--draft", "little", expect=2)


def test_a_drafter_that_does_not_fit_beside_rank_0(model: str, nodes: str) -> None:
    stages = told_json("place", model, "--nodes", nodes, "--first", "fast", "--pin", "fast=0..6")["stages"]
    tight = (stages[0]["memory_bytes"] + 1000) / 1e9
    Path(nodes).write_text(NODES.replace("limit_gb = 8", f"limit_gb = {tight:.9f}", 1))
    assert told_json("place", model, "--nodes", nodes)["stages"][0]["node"] == "fast"
    drafted = told_json("place", model, "--nodes", nodes, "--draft", f"model:{model}")
    assert drafted["stages"][0]["node"] == "slow"


def test_facts(nodes: str) -> None:
    value = told_json("facts", "--quick")
    assert 0 < value["limit_bytes"] < value["memory_bytes"]
    assert value["cores"] >= 1
    assert value["backend"] == "cpu"
    assert "llamacpp" in value["engines"]
    assert "a model may use" in told("facts", "--quick")


def test_a_calibration_is_kept_and_can_be_placed_with(model: str, nodes: str, tmp_path: Path) -> None:
    args = ["calibrate", model, "--name", "here", "--threads", "1", "--deep", "128", "--limit-s", "1"]
    out = tmp_path / "here.json"
    first = told_json(*args, "--out", str(out))
    assert first["fresh"]
    assert first["layers"]["attention"]["decode"][0] + first["layers"]["attention"]["decode"][1] > 0
    assert first["hop_ms"] > 0
    again = told_json(*args)
    assert not again["fresh"]
    assert again["layers"] == first["layers"]
    assert told_json(*args, "--streams", "2")["fresh"]
    assert "a layer (attention)" in told(*args)
    drafted = ("--draft", f"model:{model}")
    assert first["drafter_ms"] == 0
    assert told_json(*args, *drafted)["drafter_ms"] > 0
    assert "ms a guess" in told(*args, *drafted)
    (tmp_path / "one.toml").write_text('[[node]]\nfile = "here.json"\n')
    value = told_json("place", model, "--nodes", str(tmp_path / "one.toml"), "--context", "256")
    assert value["decode_ms"] > 0
    assert value["fits"]


def test_probe_asks_for_a_key_and_names(nodes: str, tmp_path: Path) -> None:
    ring = "127.0.0.1:1,127.0.0.1:2"
    assert "needs --key FILE" in told("probe", "--ring", ring, "--rank", "0", expect=2)
    key = str(tmp_path / "key")
    told("key", "new", key)
    said = told("probe", "--ring", ring, "--rank", "0", "--key", key, "--names", "a", expect=2)
    assert "1 names for 2 addresses" in said

"""`check`, `run` and `serve` with a checkpoint directory, and with a GGUF on two engines, as a user types them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch (extra torch) is not installed")
pytest.importorskip("transformers", reason="transformers (extra torch) is not installed")

import torch

from end_to_end.by_hand import HandRing, free_addresses
from end_to_end.commands import ropeway, ropeway_json
from end_to_end.processes import Yard
from end_to_end.serving_process import QUESTION, Server
from engines.torch.tiny_models import write_model
from ropeway.cli.flags import EXIT_RING
from tiny_gguf import TinyModel, write_tiny
from tiny_tokenizer import write_tokenizer

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "small"
    return str(write_tokenizer(write_model(folder, "qwen3_5", torch.bfloat16)))


def test_check(model: str) -> None:
    value = ropeway_json(
        "check", model, "--stages", "2", "--steps", "6", "--prompt-tokens", "100", "--streams", "2", "--context", "256"
    )
    assert (value["steps"], value["equal_steps"], value["max_abs_diff"]) == (12, 12, 0.0)
    assert {stage["engine"] for stage in value["stages"]} == {"torch"}


def test_run_says_the_same_on_two_stages_and_on_three(model: str) -> None:
    replies = {
        ropeway_json("run", model, "hello", "--cuts", cuts, "--max-tokens", "8", "--context", "256")["text"]
        for cuts in ("2", "1,3")
    }
    assert len(replies) == 1


def test_a_gguf_on_two_engines(tmp_path: Path) -> None:
    path = str(write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=5)))
    value = ropeway_json(
        "run", path, "hello", "--engines", "llamacpp,torch", "--max-tokens", "6", "--context", "256", "--dtype", "f32"
    )
    assert [stage["engine"] for stage in value["stages"]] == ["llamacpp", "torch"]
    assert len(value["token_ids"]) <= 6


def test_serve_keeps_prompts_and_says_the_same_again(yard: Yard, model: str) -> None:
    """Of a prompt of more than 64 tokens the recurrent states are resumed, the second time, where they were kept."""
    server = Server(yard, model)
    server.become_ready()
    question = {**QUESTION, "prompt": "the hello and " * 20, "max_tokens": 8}
    answers = [server.ask("POST", "/v1/completions", question) for _ in range(3)]
    assert [answer.status for answer in answers] == [200] * 3
    assert len({answer.body["choices"][0]["text"] for answer in answers}) == 1
    cached = [answer.body["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert cached[0] == 0
    assert cached[1] == cached[2] > 0
    assert cached[1] % 64 == 0
    chat = {"model": "small", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    assert server.ask("POST", "/v1/chat/completions", chat).status == 200


def test_a_fine_tune_of_the_model_is_refused(yard: Yard, model: str, tmp_path: Path) -> None:
    """Directories with the same files, names and shapes, but other weights."""
    tuned = write_tokenizer(write_model(tmp_path / "tuned", "qwen3_5", torch.bfloat16, seed=1))
    with free_addresses(2) as addresses:
        ring = HandRing(yard, model, addresses)
        rank0 = ring.run("--max-tokens", "4", "--context", "256")
        stage = ring.stage(1, "--context", "256", model=str(tuned))
        assert stage.status() == EXIT_RING, stage.said()
        assert f"wrong_fingerprint: rank 0 ({addresses[0]}) refused rank 1" in stage.err
        assert "A fine-tune or another quantization of a model is another checkpoint." in stage.err
        rank0.until(lambda rank0: "wrong_fingerprint" in rank0.err)
        right = ring.stage(1, "--context", "256")
        assert (rank0.status(), right.status()) == (0, 0), ring.said()


def test_engines_that_do_not_fit(model: str) -> None:
    refused = ropeway("run", model, "hello", "--engines", "torch,llamacpp", expect=2).stderr
    assert "rank 1's engine llamacpp reads GGUF" in refused

"""`--draft` as a user types it: the same text, what it did, what it refuses, and a loss with drafts under way."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from end_to_end.commands import ropeway, ropeway_json
from end_to_end.processes import Yard, kill
from end_to_end.serving_process import Server
from end_to_end.test_faults import KILLED_S
from end_to_end.test_local_faults import stream
from end_to_end.test_serve_faults import check_cut_off
from tiny_gguf import TinyModel, write_tiny

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("sampled", [[], ["--temperature", "0.8", "--seed", "5"]], ids=["greedy", "sampled"])
def test_drafts_give_the_same_text(small: str, sampled: list[str]) -> None:
    command = ["run", small, "hello the hello the hello", "--stages", "2", "--max-tokens", "80", *sampled]
    plain = ropeway_json(*command)
    assert plain["drafting"] is None
    for draft in ("ngram", f"model:{small}"):
        drafted = ropeway_json(*command, "--draft", draft)
        assert drafted["token_ids"] == plain["token_ids"]
        figures = drafted["drafting"]
        assert 0 <= figures["right"] <= figures["guesses"]
        # A turn gives one token more than guesses were right; but not the last, where the end itself was guessed.
        at_the_end = figures["turns"] - (len(drafted["token_ids"]) - 1 - figures["right"])
        assert at_the_end == 0 or (at_the_end == 1 and drafted["finish"] == "stop")


def test_what_cannot_draft_is_refused(small: str, tmp_path: Path) -> None:
    refused = ropeway("run", small, "hello", "--draft", "something", expect=2).stderr
    assert "draft: 'something' is not none, ngram, mtp or model:PATH" in refused
    other = write_tiny(tmp_path / "other.gguf", TinyModel(layers=1))
    data = other.read_bytes()
    other.write_bytes(data.replace(b"hello", b"jello", 1))
    for command in (["run", small, "hello"], ["serve", small, "--port", "0"]):
        refused = ropeway(*command, "--draft", f"model:{other}", expect=2).stderr
        assert "draft: other.gguf has another vocabulary than" in refused
    refused = ropeway("run", small, "hello", "--draft", "ngram", "--sampler", "last", expect=2).stderr
    assert "use --sampler first" in refused


def test_a_killed_child_ends_a_drafted_reply(yard: Yard, small: str) -> None:
    ring = stream(yard, small, "--draft", "ngram")
    ring.hit(1, signal.SIGKILL)
    ring.check_lost(1, KILLED_S, "was killed by SIGKILL")


def test_a_server_that_drafts_says_the_same_and_comes_back_from_a_loss(yard: Yard, small: str) -> None:
    plain, drafting = Server(yard, small, "--groups", "1"), Server(yard, small, "--draft", "ngram", "--groups", "2")
    for server in (plain, drafting):
        server.become_ready()
    expected = plain.complete(120).body["choices"]
    assert drafting.complete(120).body["choices"] == expected
    assert plain.ask("GET", "/v1/ring").body["drafting"] == {}
    figures = drafting.ask("GET", "/v1/ring").body["drafting"]
    assert 0 <= figures["right"] <= figures["guesses"]
    assert figures["turns"] + figures["right"] == 119
    streams = drafting.streams(3)
    began = time.monotonic()
    kill(drafting.family()[0], signal.SIGKILL)
    check_cut_off(streams, 1, began, KILLED_S)
    drafting.become_ready()
    assert drafting.complete(120).body["choices"] == expected

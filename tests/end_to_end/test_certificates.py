"""Certificates as a user makes them: by one process, held by another, told with every reply, refused when not true."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from end_to_end.commands import ropeway, ropeway_json
from end_to_end.processes import Yard
from end_to_end.serving_process import Server
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.cli.flags import EXIT_FAILED

WORK = ("--steps", "4", "--prompt-tokens", "20", "--part", "64", "--threads", "1", "--every-row")


@dataclass(frozen=True, slots=True)
class Made:
    """A certificate on disk, its key, and what was said when it was made."""

    file: Path
    key: str
    id: str


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def made(small: str, tmp_path: Path) -> Made:
    key, file = str(tmp_path / "key"), tmp_path / "certificate.json"
    ropeway("key", "new", key)
    told = ropeway_json(
        "check", small, *WORK, "--context", "8192", "--runs", "2", "--certificate", str(file), "--certificate-key", key
    )
    assert (told["broken"], told["same_bits"], told["equal_steps"]) == ([], True, told["steps"])
    return Made(file, key, told["certificate"])


def test_another_process_holds_it(small: str, made: Made) -> None:
    held = ropeway("check", small, "--verify", str(made.file), "--certificate-key", made.key).stdout
    assert held == "the certificate holds: the same model, placement, tokens, logits and figures\n"


def test_any_changed_byte_of_the_model_is_found(small: str, made: Made, tmp_path: Path) -> None:
    """In the metadata, in padding, in the first and the last matrix: before anything is computed."""
    data = Path(small).read_bytes()
    tensors = GgufFile.open(Path(small)).tensors
    first = min(info.offset for info in tensors.values())
    for at in (data.index(b"general.name") + 30, first, first - 1, len(data) - 1):
        other = tmp_path / "other.gguf"
        other.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        flags = ("--verify", str(made.file), "--certificate-key", made.key)
        found = ropeway_json("check", str(other), *flags, expect=EXIT_FAILED)
        assert found["failed"] == ["another model: its bytes are not those of the certificate"], at


def test_any_changed_value_is_found(small: str, made: Made, tmp_path: Path) -> None:
    text = made.file.read_text()
    changed = tmp_path / "changed.json"
    for old, new in (
        ('"engine": "llamacpp"', '"engine": "torch"'),
        ('"first": 3', '"first": 2'),
        ('"row_dtype": "f32"', '"row_dtype": "f16"'),
        ('"kl_mean": 0.0', '"kl_mean": 0.1'),
        ('"top1": 1.0', '"top1": 0.9'),
    ):
        assert old in text
        changed.write_text(text.replace(old, new, 1))
        said = ropeway("check", small, "--verify", str(changed), "--certificate-key", made.key, expect=2).stderr
        assert "its signature does not hold: it was changed after it was signed" in said


def test_another_key_does_not_hold_it(small: str, made: Made, tmp_path: Path) -> None:
    ropeway("key", "new", str(tmp_path / "other"))
    flags = ("--verify", str(made.file), "--certificate-key", str(tmp_path / "other"))
    assert "it was signed with another key" in ropeway("check", small, *flags, expect=2).stderr


def test_replies_bear_its_id(small: str, made: Made, yard: Yard) -> None:
    server = Server(yard, small, "--certificate", str(made.file), "--certificate-key", made.key)
    server.become_ready()
    answer = server.complete()
    placement = json.loads(made.file.read_text())["body"]["placement"]["id"]
    assert answer.headers["x-ropeway-certificate"] == made.id
    assert answer.headers["x-ropeway-placement"] == answer.body["system_fingerprint"] == placement
    assert server.ask("GET", "/v1/ring").body["placement"] == placement


def test_a_server_of_another_placement_refuses_it(small: str, made: Made) -> None:
    flags = ("--certificate", str(made.file), "--certificate-key", made.key, "--port", "0")
    for other in (("--cuts", "2"), ("--stages", "3"), ("--dtype", "bf16")):
        said = ropeway("serve", small, *flags, *other, expect=2).stderr
        assert "is for another placement" in said

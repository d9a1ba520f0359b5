"""Repositories as Hugging Face serves them: a listing at a commit, redirects to another host, digests in headers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints.fetch import tiny_directory
from checkpoints.fetch.sources import no_wait, same_slices
from checkpoints.fetch.web_server import Answer, Asked, Site, serving
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.hub import endpoint, hub_secret
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.offer import open_offer
from ropeway.checkpoints.fetch.provide import Fetch, Fetched
from tiny_gguf import TinyModel, write_tiny

COMMIT = "c" * 40


@pytest.fixture
def cdn() -> Iterator[Site]:
    with serving(Site()) as site:
        yield site


@pytest.fixture
def hub(cdn: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    """The hub, which sends everything large on to another host."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serving(Site()) as site:
        monkeypatch.setenv("HF_ENDPOINT", site.url + "/")
        yield site


def publish(hub: Site, cdn: Site, files: dict[str, bytes], revision: str = "main") -> None:
    listing = {"sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
    hub.files[f"/api/models/org/name/revision/{revision}"] = json.dumps(listing).encode()
    for name, raw in files.items():
        small = name.endswith(".json")
        (hub if small else cdn).files[f"/org/name/resolve/{COMMIT}/{name}"] = raw

    def send_on(asked: Asked) -> Answer | None:
        name = asked.path.removeprefix(f"/org/name/resolve/{COMMIT}/")
        if name not in files:
            return None
        if name.endswith(".json"):
            blob = hashlib.sha1(f"blob {len(files[name])}\0".encode() + files[name]).hexdigest()
            return Answer(headers={"ETag": f'"{blob}"', "X-Repo-Commit": COMMIT})
        sha = hashlib.sha256(files[name]).hexdigest()
        return Answer(302, {"Location": cdn.url + asked.path, "X-Linked-Etag": f'"{sha}"', "X-Repo-Commit": COMMIT})

    hub.faults.append(send_on)


def fetch(name: str, cache: Path, need: Need | None) -> Fetched:
    with open_offer(name, no_wait()) as offer:
        return Fetch(offer, cache, no_wait(), None).provide(need)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny-Q8_0.gguf", TinyModel(layers=4, width=128))


def test_a_gguf_of_a_repository(tmp_path: Path, hub: Site, cdn: Site, gguf: Path) -> None:
    publish(hub, cdn, {"README.md": b"", "sub/tiny-Q8_0.gguf": gguf.read_bytes()})
    for name in ("hf:org/name", "hf:org/name:sub/tiny-Q8_0.gguf", "hf:org/name:q8_0"):
        fetched = fetch(name, tmp_path / "cache", Need(1, 3))
        assert same_slices(fetched.files, gguf, tmp_path / "cut") == 1
    assert fetch("hf:org/name", tmp_path / "cache", None).path.read_bytes() == gguf.read_bytes()
    assert "the digests of whole files" in fetch("hf:org/name", tmp_path / "new", None).checked[-1]
    assert "no digest of the weights" in fetch("hf:org/name", tmp_path / "newer", Need(1, 3)).checked[-1]


def test_a_safetensors_repository(tmp_path: Path, hub: Site, cdn: Site) -> None:
    files = tiny_directory.sharded(tiny_directory.tensors())
    publish(hub, cdn, {**files, "pytorch_model.bin": b"x", "README.md": b"x"}, "v1")
    fetched = fetch("hf:org/name@v1", tmp_path, None)
    for name, raw in files.items():
        assert (fetched.path / name).read_bytes() == raw
    assert not (fetched.path / "pytorch_model.bin").exists()
    assert {asked.path for asked in hub.asked if "resolve" in asked.path} == {
        f"/org/name/resolve/{COMMIT}/{name}" for name in files
    }


def test_the_token_stays_with_the_hub(
    tmp_path: Path, hub: Site, cdn: Site, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(hub, cdn, {"tiny.gguf": gguf.read_bytes()})
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    fetch("hf:org/name", tmp_path, Need(0, 1))
    assert {asked.headers.get("authorization") for asked in hub.asked} == {"Bearer hf_secret"}
    assert {asked.headers.get("authorization") for asked in cdn.asked} == {None}
    for note in tmp_path.rglob("*.json"):
        assert "hf_secret" not in note.read_text()


def test_where_the_token_is_kept(hub: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub_secret() is None
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text("hf_kept\n")
    secret = hub_secret()
    assert secret is not None
    assert secret.token == "hf_kept"
    assert secret.site == ("http", "127.0.0.1", int(hub.url.rpartition(":")[2]))
    monkeypatch.setenv("HF_TOKEN", "two words\r\nX-Evil: 1")
    assert hub_secret() is None
    monkeypatch.delenv("HF_ENDPOINT")
    assert endpoint() == "https://huggingface.co"


def test_a_whole_file_with_another_digest_is_not_kept(tmp_path: Path, hub: Site, cdn: Site, gguf: Path) -> None:
    publish(hub, cdn, {"tiny.gguf": gguf.read_bytes()})
    path = f"/org/name/resolve/{COMMIT}/tiny.gguf"
    cdn.files[path] = cdn.files[path][:-1] + b"\xff"
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"tiny\.gguf: what was fetched has another digest than the source"):
            fetch("hf:org/name", tmp_path / "cache", None)
    assert not list(tmp_path.glob("cache/fetched/*/whole/*.gguf"))
    cdn.files[path] = gguf.read_bytes()
    assert fetch("hf:org/name", tmp_path / "cache", None).path.read_bytes() == gguf.read_bytes()


@pytest.mark.parametrize(
    ("files", "name", "match"),
    [
        (["a-Q4.gguf", "b-Q8.gguf"], "hf:org/name", r"name one of its 2 GGUF files behind a colon: a-Q4\.gguf, b-Q8"),
        (
            ["Q4/a-00001-of-00002.gguf", "b.gguf"],
            "hf:org/name",
            r"one of its 2 GGUF files .*: Q4/a-00001-of-00002\.gguf",
        ),
        (
            ["Q4/a-00001-of-00002.gguf", "Q4/a-00002-of-00002.gguf"],
            "hf:org/name",
            "a-00001-of-00002.gguf: this is not a",
        ),
        (["a-Q4.gguf"], "hf:org/name:q8", "there is no file like 'q8'"),
        (["weights.bin"], "hf:org/name", "there is no model in GGUF or safetensors form"),
        (["model.safetensors"], "hf:org/name", r"there is no config\.json"),
        (["a.safetensors", "config.json"], "hf:org/other", "404 Not Found"),
        (["../../evil.gguf", "/etc/x.gguf", "a\\b.gguf"], "hf:org/name", "there is no model"),
        (["-evil.gguf"], "hf:org/name", "is not a name that a file of a checkpoint may have"),
    ],
)
def test_repositories_without_a_choice(
    tmp_path: Path, hub: Site, cdn: Site, files: list[str], name: str, match: str
) -> None:
    publish(hub, cdn, dict.fromkeys(files, b"content"))
    with pytest.raises(CheckpointError, match=match):
        fetch(name, tmp_path, Need(0, 1))


@pytest.mark.parametrize(
    "listing", [b"", b"[]", b"{}", b'{"sha": "main", "siblings": []}', b'{"sha": 5, "siblings": [{}]}', b"[" * 100_000]
)
def test_listings_that_make_no_sense(tmp_path: Path, hub: Site, listing: bytes) -> None:
    hub.files["/api/models/org/name/revision/main"] = listing
    with pytest.raises(CheckpointError, match=r"hf:org/name: .* gave no listing of a repository"):
        fetch("hf:org/name", tmp_path, None)


def test_a_repository_that_needs_a_token(tmp_path: Path, hub: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.faults.append(lambda _: Answer(401))
    with pytest.raises(CheckpointError, match=r"hf:org/name: .*401 Unauthorized: it may need a token \(HF_TOKEN\)"):
        fetch("hf:org/name", tmp_path, None)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with pytest.raises(CheckpointError, match="the token does not open it") as caught:
        fetch("hf:org/name", tmp_path, None)
    assert "hf_secret" not in str(caught.value)

"""A list of digests: what is fetched in parts is held against it, and what is here already."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoints.fetch import tiny_directory
from checkpoints.fetch.sources import no_wait, same_slices
from checkpoints.fetch.web_server import Site, serving
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.digests import Digests, make_digests
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.offer import local_offer, open_offer
from ropeway.checkpoints.fetch.provide import Fetch, Fetched
from ropeway.checkpoints.gguf_file import GgufFile
from tiny_gguf import TinyModel, write_tiny


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=6))


@pytest.fixture
def site(model: Path) -> Iterator[Site]:
    with serving(Site({"/tiny.gguf": model.read_bytes()}, etags=False)) as site:
        yield site


def fetch(site: Site, cache: Path, digests: Digests, need: Need | None) -> Fetched:
    with open_offer(f"{site.url}/tiny.gguf", no_wait()) as offer:
        return Fetch(offer, cache, no_wait(), None, vouch=digests.for_offer(offer)).provide(need)


def damage(data: bytes, at: int) -> bytes:
    raw = bytearray(data)
    raw[at] ^= 1
    return bytes(raw)


def test_the_list_of_a_gguf(model: Path, tmp_path: Path) -> None:
    digests = make_digests(local_offer(model))
    gguf, data = GgufFile.open(model), model.read_bytes()
    samples = gguf.samples()
    partial = sum(sample.nbytes < gguf.tensors[sample.name].nbytes for sample in samples)
    (file,) = digests.files.values()
    assert len(file.pieces) == len(gguf.tensors) + 2 + partial
    assert file.digest(0, len(data)) == hashlib.sha256(data).hexdigest()
    assert file.digest(0, gguf.header_bytes) == hashlib.sha256(data[: gguf.header_bytes]).hexdigest()
    info = gguf.tensors["blk.3.ffn_up.weight"]
    assert file.digest(info.offset, info.nbytes) == hashlib.sha256(gguf.tensor_bytes(info.name)).hexdigest()
    at = gguf.tensors[samples[0].name].offset + samples[0].start
    assert file.digest(at, samples[0].nbytes) == hashlib.sha256(gguf.sample_bytes(samples[0])).hexdigest()
    (tmp_path / "list").write_text(digests.encode())
    assert Digests.read(tmp_path / "list") == digests


def test_parts_and_the_whole_are_held_against_it(model: Path, site: Site, tmp_path: Path) -> None:
    digests = make_digests(local_offer(model))
    fetched = fetch(site, tmp_path / "cache", digests, Need(1, 4, head=True))
    assert same_slices(fetched.files, model, tmp_path / "cut") == 2
    assert fetched.checked == ("every file's size and header", "the SHA-256 of every header and tensor")
    assert fetch(site, tmp_path / "cache", digests, None).path.read_bytes() == model.read_bytes()


@pytest.mark.parametrize("where", ["header", "tensor"])
def test_a_server_whose_bytes_differ(model: Path, site: Site, tmp_path: Path, where: str) -> None:
    digests = make_digests(local_offer(model))
    gguf = GgufFile.open(model)
    name = "blk.2.attn_k.weight"
    at = gguf.tensors[name].offset + 9 if where == "tensor" else model.read_bytes().index(b"tiny llama") + 1
    site.files["/tiny.gguf"] = damage(model.read_bytes(), at)
    said = rf"127\.0\.0\.1:\d+ gave {name} with a wrong SHA-256" if where == "tensor" else "header has a wrong SHA-256"
    with pytest.raises(CheckpointError, match=said):
        fetch(site, tmp_path / "cache", digests, Need(1, 4))
    assert not list((tmp_path / "cache" / "slices").glob("*.gguf"))
    site.files["/tiny.gguf"] = model.read_bytes()
    fetched = fetch(site, tmp_path / "cache", digests, Need(1, 4))
    assert same_slices(fetched.files, model, tmp_path / "cut") == 1


def test_what_is_here_is_held_against_it_too(model: Path, site: Site, tmp_path: Path) -> None:
    digests = make_digests(local_offer(model))
    cache = tmp_path / "cache"
    (path,) = (p for p in fetch(site, cache, digests, Need(1, 4)).files if p.parent.name == "slices")
    path.write_bytes(damage(path.read_bytes(), path.stat().st_size - 20_000))
    fetched = fetch(site, cache, digests, Need(1, 4))
    assert same_slices(fetched.files, model, tmp_path / "cut") == 1


def test_the_list_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for name, raw in tiny_directory.sharded(tiny_directory.tensors()).items():
        (tmp_path / "m" / name).write_bytes(raw)
    offer = local_offer(tmp_path / "m")
    digests = make_digests(offer)
    assert set(digests.files) == set(offer.files)
    Fetch(offer, tmp_path / "cache", no_wait(), None, vouch=digests.for_offer(offer)).provide(Need(2, 4))
    shard = tmp_path / "m" / "model-00002-of-00003.safetensors"
    shard.write_bytes(damage(shard.read_bytes(), 100_000))
    offer = local_offer(tmp_path / "m")
    with pytest.raises(CheckpointError, match="with a wrong SHA-256"):
        Fetch(offer, tmp_path / "other", no_wait(), None, vouch=digests.for_offer(offer)).provide(Need(2, 4))


def test_a_list_of_another_checkpoint(model: Path, tmp_path: Path) -> None:
    digests = make_digests(local_offer(model))
    other = write_tiny(tmp_path / "other.gguf", TinyModel(layers=6))
    with pytest.raises(CheckpointError, match=r"the list of digests does not have other\.gguf"):
        digests.for_offer(local_offer(other))
    write_tiny(model, TinyModel(layers=7))
    with pytest.raises(CheckpointError, match=r"tiny\.gguf has \d+ bytes, the list of digests says \d+"):
        digests.for_offer(local_offer(model))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
        {"files": []},
        {"files": {"a": {"bytes": 5}}},
        {"files": {"a": {"bytes": 5, "pieces": [[0, 6, "0" * 64]]}}},
        {"files": {"a": {"bytes": 5, "pieces": [[0, 0, "0" * 64]]}}},
        {"files": {"a": {"bytes": 5, "pieces": [[0, True, "0" * 64]]}}},
        {"files": {"a": {"bytes": 5, "pieces": [[0, 5, "0" * 63]]}}},
        {"files": {"a": {"bytes": 5, "pieces": [[0, 5]]}}},
    ],
)
def test_lists_that_are_none(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "list"
    path.write_text(json.dumps({"format": 2, "files": {}} | change))
    with pytest.raises(CheckpointError, match="is not a list of digests"):
        Digests.read(path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        Digests.read(tmp_path / "nothing")

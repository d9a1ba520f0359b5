"""A safetensors checkpoint's layers by byte ranges, with an index and without."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints.fetch import tiny_directory
from checkpoints.fetch.sources import no_wait
from checkpoints.fetch.web_server import Answer, Asked, Site, serving
from ropeway.checkpoints.budget import kept_files, make_room
from ropeway.checkpoints.directory import DirectoryCheckpoint
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.offer import local_offer, open_offer
from ropeway.checkpoints.fetch.provide import Fetch, Fetched
from ropeway.checkpoints.fetch.safetensors_parts import Place, layer_of, place_of

INDEX = "model.safetensors.index.json"


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site()) as site:
        yield site


def publish(site: Site, files: dict[str, bytes]) -> str:
    site.files = {f"/m/{name}": raw for name, raw in files.items()}
    return f"{site.url}/m/{INDEX if INDEX in files else 'model.safetensors'}"


def fetch(url: str, cache: Path, need: Need | None) -> Fetched:
    with open_offer(url, no_wait()) as offer:
        return Fetch(offer, cache, no_wait(), None).provide(need)


def held_names(path: Path, tensors: dict[str, bytes]) -> set[str]:
    """The tensors that are here; each has its bytes, and the others are refused by name."""
    checkpoint = DirectoryCheckpoint(path)
    found = set()
    for name in checkpoint.tensors:
        try:
            raw = checkpoint.tensor_bytes(name)
        except CheckpointError:
            continue
        assert raw == tensors[name]
        found.add(name)
    return found


def expected(need: Need, tensors: dict[str, bytes], *, tied: bool) -> set[str]:
    names = {f"model.layers.{layer}.{part}.weight" for layer in range(need.first, need.end) for part in ("attn", "mlp")}
    if need.embed or (need.head and tied):
        names.add("model.embed_tokens.weight")
    if need.head:
        names |= {"model.norm.weight", "mtp.layers.0.mlp.weight"} | ({"lm_head.weight"} & set(tensors))
    return names


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("need", [Need(0, 2, embed=True), Need(2, 4), Need(4, 6, head=True)], ids=lambda n: n.label)
def test_a_range_of_layers(tmp_path: Path, site: Site, need: Need, shards: int, tied: bool) -> None:
    tensors = tiny_directory.tensors(tied=tied)
    files = tiny_directory.single(tensors) if shards == 1 else tiny_directory.sharded(tensors, shards)
    fetched = fetch(publish(site, files), tmp_path, need)
    wanted = expected(need, tensors, tied=tied)
    assert held_names(fetched.path, tensors) == wanted
    small = sum(len(raw) for name, raw in files.items() if name.endswith(".json"))
    assert site.sent <= 1.01 * sum(len(tensors[name]) for name in wanted) + small + shards * (16384 + 4096)
    whole = tmp_path / "whole"
    whole.mkdir()
    for name, raw in files.items():
        (whole / name).write_bytes(raw)
    assert DirectoryCheckpoint(fetched.path).identity() == DirectoryCheckpoint(whole).identity()
    assert (fetched.path / "tokenizer.json").read_bytes() == tiny_directory.TOKENIZER


def test_bytes_of_a_large_model(tmp_path: Path, site: Site) -> None:
    """Where tensors are large beside headers, as real ones are, what is read is what is wanted."""
    tensors = tiny_directory.tensors(tensor_bytes=600_000)
    url = publish(site, tiny_directory.sharded(tensors))
    fetch(url, tmp_path, Need(1, 5))
    wanted = sum(len(tensors[name]) for name in expected(Need(1, 5), tensors, tied=False))
    assert wanted <= site.sent <= 1.01 * wanted + 3 * 16384


def test_the_whole_and_what_is_here_already(tmp_path: Path, site: Site) -> None:
    tensors = tiny_directory.tensors()
    files = tiny_directory.sharded(tensors)
    url = publish(site, files)
    fetch(url, tmp_path, Need(0, 3, embed=True))
    fetch(url, tmp_path, Need(2, 6, head=True))
    before = site.sent
    fetched = fetch(url, tmp_path, None)
    assert site.sent - before <= 40_000 + 6 * 16384  # what no stage needed: the part that sees
    for name, raw in files.items():
        assert (fetched.path / name).read_bytes() == raw


@pytest.mark.parametrize("tenth", range(1, 10))
def test_a_fetch_that_is_cut_off_goes_on(tmp_path: Path, site: Site, tenth: int) -> None:
    tensors = tiny_directory.tensors()
    url = publish(site, tiny_directory.sharded(tensors))
    need = Need(1, 5)
    total = sum(len(tensors[name]) for name in expected(need, tensors, tied=False))
    left = [total * tenth // 10]

    def cut(asked: Asked) -> Answer | None:
        if not asked.path.endswith(".safetensors"):
            return None
        first, last = (int(n) for n in asked.headers["range"].removeprefix("bytes=").split("-"))
        left[0] -= last - first + 1
        return Answer(cut_after=max(0, last - first + 1 + left[0])) if left[0] < 0 else None

    site.faults.append(cut)
    with pytest.raises(CheckpointError, match="the connection was cut"):
        fetch(url, tmp_path, need)
    site.faults.clear()
    before = site.sent
    assert held_names(fetch(url, tmp_path, need).path, tensors) == expected(need, tensors, tied=False)
    assert site.sent - before <= total * (10 - tenth) // 10 + 8 * 16384


def test_a_copy_that_is_open_stays(tmp_path: Path, site: Site) -> None:
    url = publish(site, tiny_directory.single(tiny_directory.tensors()))
    first = fetch(url, tmp_path, Need(0, 2)).path
    checkpoint = DirectoryCheckpoint(first)
    size = sum(kept.nbytes for kept in kept_files(tmp_path))
    with pytest.raises(CheckpointError, match="kept or in use"):
        make_room(tmp_path, size // 2, size)
    assert make_room(tmp_path, 4096, size) == [first.parent / "sampled-header" / "model.safetensors"]
    assert checkpoint.tensor_bytes("model.layers.0.attn.weight")
    del checkpoint
    gc.collect()
    assert make_room(tmp_path, size, size) == [first / "model.safetensors"]


def test_from_a_directory_of_this_machine(tmp_path: Path) -> None:
    tensors = tiny_directory.tensors()
    (tmp_path / "m").mkdir()
    for name, raw in tiny_directory.sharded(tensors).items():
        (tmp_path / "m" / name).write_bytes(raw)
    fetched = Fetch(local_offer(tmp_path / "m"), tmp_path / "cache", no_wait(), None).provide(Need(2, 3))
    assert held_names(fetched.path, tensors) == expected(Need(2, 3), tensors, tied=False)
    assert fetched.network_bytes == 0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"config.json": None}, r"there is no config\.json"),
        ({INDEX: b"{}"}, "no weight_map"),
        ({INDEX: json.dumps({"weight_map": {"a": "../../x.safetensors"}}).encode()}, "not a name that a file"),
        ({INDEX: json.dumps({"weight_map": {"a": "model.bin"}}).encode()}, "something else than safetensors"),
        ({"model-00001-of-00003.safetensors": None}, "404 Not Found"),
        ({"model-00001-of-00003.safetensors": b"\xff" * 90}, "its header's length makes no sense"),
        ({"config.json": b"[]"}, "is not a model's configuration"),
    ],
)
def test_checkpoints_that_are_none(tmp_path: Path, site: Site, change: dict[str, bytes | None], match: str) -> None:
    files = tiny_directory.sharded(tiny_directory.tensors())
    for name, raw in change.items():
        if raw is None:
            del files[name]
        else:
            files[name] = raw
    with pytest.raises(CheckpointError, match=match):
        fetch(publish(site, files), tmp_path, Need(0, 1))


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("model.layers.0.mlp.down_proj.weight", 0),
        ("model.language_model.layers.31.linear_attn.A_log", 31),
        ("language_model.model.layers.7.x", 7),
        ("layers.2.x", 2),
        ("transformer.h.11.ln_1.weight", 11),
        ("mtp.layers.0.mlp.weight", None),
        ("model.visual.blocks.0.attn.weight", None),
        ("model.vision_tower.encoder.layers.3.x", None),
        ("model.embed_tokens.weight", None),
        ("model.layers.x.y", None),
    ],
)
def test_layers_by_name(name: str, layer: int | None) -> None:
    assert layer_of(name) == layer


def test_places_by_name() -> None:
    assert place_of("model.embed_tokens.scales") is Place.EMBED
    assert {place_of(n) for n in ("lm_head.weight", "model.norm.weight", "mtp.fc.weight")} == {Place.HEAD}
    assert place_of("model.vision_tower.encoder.layers.3.x") is Place.SIGHT
    assert place_of("model.ngram_embeddings.0.weight") is Place.EVERYWHERE

"""Samples of the weights in what is fetched: every part of a checkpoint has the identity of the whole."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from checkpoints.fetch import tiny_directory
from checkpoints.fetch.sources import no_wait, same_slices
from checkpoints.fetch.web_server import Site, serving
from ropeway.checkpoints.checkpoint import open_checkpoint
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.digests import make_digests
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.offer import local_offer, open_offer
from ropeway.checkpoints.fetch.provide import SAMPLED, Fetch
from ropeway.checkpoints.fetch.remote import fetch_header
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.origin import NOTE, origin_of
from ropeway.checkpoints.safetensors_file import SafetensorsFile
from ropeway.checkpoints.samples import MOST
from tiny_gguf import TinyModel, write_tiny

LAYERS = 6
GGUF_NEEDS = [Need(0, 2, embed=True), Need(0, 2, embed=True, head=True), Need(2, 4), Need(4, 6, head=True)]
MODELS = ["llama", "tied", "qwen2", "experts", "sharded", "single"]


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """GGUFs whose tensors are large beside a sample, and directories of several files and of one."""
    tiny = TinyModel(layers=LAYERS, width=128, feed_forward=512)
    match request.param:
        case "sharded" | "single":
            tensors = tiny_directory.tensors()
            files = tiny_directory.sharded(tensors) if request.param == "sharded" else tiny_directory.single(tensors)
            (tmp_path / "m").mkdir()
            for name, raw in files.items():
                (tmp_path / "m" / name).write_bytes(raw)
            return tmp_path / "m"
        case "tied":
            tiny = replace(tiny, tied=True)
        case "qwen2":
            tiny = replace(tiny, architecture="qwen2")
        case "experts":
            tiny = replace(tiny, experts=4)
    return write_tiny(tmp_path / "m.gguf", tiny)


@pytest.fixture
def site(model: Path) -> Iterator[Site]:
    files = [model] if model.is_file() else list(model.iterdir())
    with serving(Site({f"/{path.name}": path.read_bytes() for path in files})) as site:
        yield site


def url(site: Site) -> str:
    names = [path for path in site.files if path.endswith((".gguf", ".index.json"))]
    return site.url + (names[0] if names else "/model.safetensors")


@pytest.mark.parametrize("slices", [True, False], ids=["slices", "copies"])
@pytest.mark.parametrize("need", GGUF_NEEDS, ids=lambda need: need.label)
def test_every_part_has_the_identity_of_the_whole(
    model: Path, site: Site, tmp_path: Path, need: Need, slices: bool
) -> None:
    whole = open_checkpoint(model).identity()
    with open_offer(url(site), no_wait()) as offer:
        fetch = Fetch(offer, tmp_path / "cache", no_wait(), None)
        assert open_checkpoint(fetch.header()).identity() == whole
        path = fetch.provide(need, slices=slices).path
    assert origin_of(path) is not None
    assert open_checkpoint(path).identity() == whole
    with pytest.raises(CheckpointError, match="is not on this machine"):
        open_checkpoint(path).identity(verify_weights=True)
    again = Fetch(local_offer(model), tmp_path / "other", no_wait(), None).provide(need, slices=slices).path
    assert open_checkpoint(again).identity() == whole


def test_what_the_samples_cost(model: Path, site: Site, tmp_path: Path) -> None:
    """A request each at most, the first time; none after it, and none for the layers that lie around them."""
    with open_offer(url(site), no_wait()) as offer:
        opened = len(site.asked)
        Fetch(offer, tmp_path / "cache", no_wait(), None).header()
        first = len(site.asked) - opened
    files = 1 if model.is_file() else len(list(model.glob("*.safetensors")))
    assert first <= MOST + files  # where a header goes on behind the first 16 KiB
    before = len(site.asked)
    fetch_header(url(site), tmp_path / "cache")
    assert len(site.asked) - before == opened
    before = len(site.asked)
    with open_offer(url(site), no_wait()) as offer:
        Fetch(offer, tmp_path / "cache", no_wait(), None).provide(Need(1, 3))
    assert len(site.asked) - before - opened <= 2 * files + 1


def test_with_a_list_of_digests_samples_are_held_against_it(model: Path, site: Site, tmp_path: Path) -> None:
    """A damaged sample of a tensor that the rank does not need otherwise."""
    digests = make_digests(local_offer(model))
    with open_offer(url(site), no_wait()) as offer:
        Fetch(offer, tmp_path / "good", no_wait(), None, vouch=digests.for_offer(offer)).provide(Need(2, 4))
    last = {"blk.5.attn_q.weight", "model.layers.5.mlp.weight"}
    for path in [model] if model.is_file() else model.glob("*.safetensors"):
        tensors = (GgufFile.open(path) if model.is_file() else SafetensorsFile.open(path)).tensors
        for name in last & tensors.keys():
            raw = bytearray(path.read_bytes())
            raw[tensors[name].offset + tensors[name].nbytes // 2] ^= 1
            site.files[f"/{path.name}"] = bytes(raw)
    with (
        open_offer(url(site), no_wait()) as offer,
        pytest.raises(CheckpointError, match=r"sample of \S+ with a wrong SHA-256"),
    ):
        Fetch(offer, tmp_path / "bad", no_wait(), None, vouch=digests.for_offer(offer)).provide(Need(2, 4))


def age(cache: Path, rng: random.Random) -> None:
    """Make of a cache what an earlier release left: no samples, and zeros where they were."""
    for note in list(cache.glob(f"fetched/*/{SAMPLED}*/{NOTE}")):
        origin = origin_of(note.parent)
        assert origin is not None
        files = {}
        for name, file in origin.files.items():
            kept = tuple(r for r in file.held if r[1] - r[0] > 256 or r[0] == 0)
            files[name] = replace(file, held=kept)
            raw = bytearray(rng.randbytes(file.nbytes))
            here = (note.parent / name).read_bytes()
            for start, end in kept:
                raw[start:end] = here[start:end]
            (note.parent / name).write_bytes(raw)
        note.write_bytes(replace(origin, files=files).encode())
        note.parent.rename(note.parent.with_name(note.parent.name.removeprefix(SAMPLED)))


@pytest.mark.parametrize("slices", [True, False], ids=["slices", "copies"])
def test_what_an_earlier_release_fetched(model: Path, site: Site, tmp_path: Path, slices: bool) -> None:
    """By itself it is refused; a fetch reads the layers from it, and only the samples from the source."""
    cache, need = tmp_path / "cache", Need(2, 4)
    with open_offer(url(site), no_wait()) as offer:
        path = Fetch(offer, cache, no_wait(), None).provide(need, slices=slices).path
    age(cache, random.Random(0))
    old = Path(str(path).replace(SAMPLED, ""))
    with pytest.raises(CheckpointError, match=r"the sample of tensor \S+ is not on this machine: .* fetch it again"):
        open_checkpoint(old).identity()
    with open_offer(url(site), no_wait()) as offer:
        before = site.sent
        fetched = Fetch(offer, cache, no_wait(), None).provide(need, slices=slices)
        assert site.sent - before <= MOST * 256
    assert fetched.path == path
    assert open_checkpoint(path).identity() == open_checkpoint(model).identity()
    if slices and model.is_file():
        assert same_slices(fetched.files, model, tmp_path / "cut") == 1

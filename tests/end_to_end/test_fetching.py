"""Rings whose ranks have no model yet: each fetches what it holds from a web server, and the reply is the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints.fetch.web_server import Site, serving
from end_to_end.by_hand import HandRing, free_addresses
from end_to_end.commands import ropeway
from end_to_end.processes import Yard
from ropeway.checkpoints.gguf_file import GgufFile
from tiny_gguf import TinyModel, write_tiny

SHORT = ("--max-tokens", "12")
LAYERS = 6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = TinyModel(layers=LAYERS, width=128, feed_forward=512)
    return write_tiny(tmp_path_factory.mktemp("far") / "far.gguf", tiny)


@pytest.fixture
def site(model: Path) -> Iterator[Site]:
    with serving(Site({"/far.gguf": model.read_bytes()})) as site:
        yield site


def layer_bytes(model: Path, first: int, end: int) -> int:
    gguf = GgufFile.open(model)
    names = {f"blk.{layer}." for layer in range(first, end)}
    return sum(info.nbytes for name, info in gguf.tensors.items() if name[:6] in names)


@pytest.mark.parametrize("sampler", ["first", "last"])
def test_a_ring_over_machines(yard: Yard, model: Path, site: Site, tmp_path: Path, sampler: str) -> None:
    expected = ropeway("run", str(model), "hello", *SHORT, "--cuts", "4", "--threads", "1", "--sampler", sampler).stdout
    before = site.sent
    with free_addresses(2) as addresses:
        ring = HandRing(yard, f"{site.url}/far.gguf", addresses)
        flags = ("--cuts", "4", "--sampler", sampler)
        stage = ring.stage(1, *flags, ROPEWAY_CACHE=str(tmp_path / "1"))
        stage.until(lambda stage: "waiting for the ring" in stage.err)
        by_stage = site.sent - before
        rank0 = ring.run(*SHORT, *flags, ROPEWAY_CACHE=str(tmp_path / "0"))
        assert rank0.status() == 0, rank0.said()
        assert stage.status() == 0, stage.said()
    assert rank0.out == expected
    gguf = GgufFile.open(model)
    head = gguf.tensors["output.weight"].nbytes + gguf.tensors["output_norm.weight"].nbytes
    wanted = gguf.header_bytes + layer_bytes(model, 4, 6) + (head if sampler == "last" else 0)
    assert wanted <= by_stage <= 1.02 * wanted + 16384
    assert not list((tmp_path / "1").rglob("whole"))


def test_a_ring_on_one_machine(site: Site, model: Path, tmp_path: Path) -> None:
    """The whole model is fetched, once for all ranks."""
    expected = ropeway("run", str(model), "hello", *SHORT).stdout
    cache = str(tmp_path / "cache")
    for _ in range(2):
        assert ropeway("run", f"{site.url}/far.gguf", "hello", *SHORT, ROPEWAY_CACHE=cache).stdout == expected
    assert site.sent <= model.stat().st_size + 2 * 16384


def test_a_model_that_is_nowhere(site: Site, tmp_path: Path) -> None:
    done = ropeway("run", f"{site.url}/none.gguf", "hello", expect=1, ROPEWAY_CACHE=str(tmp_path))
    assert f"ropeway: {site.url}/none.gguf: 404 Not Found" in done.stderr
    done = ropeway("check", f"{site.url}/far.gguf", "--ring", "127.0.0.1:1,127.0.0.1:2", expect=2)
    assert "key" in done.stderr

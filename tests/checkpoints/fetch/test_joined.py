"""A GGUF in several files: fetched as the one file that it was before it was split."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints.fetch.sources import Memory, no_wait, same_slices
from checkpoints.fetch.web_server import Site, serving
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.joined import JoinedFile, joined_name, part_names
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.offer import open_offer
from ropeway.checkpoints.fetch.provide import Fetch
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.gguf_values import Field, ValueType, scalar_field
from ropeway.checkpoints.gguf_write import OutTensor, encode_header, write_gguf
from ropeway.checkpoints.identity import checkpoint_identity
from tiny_gguf import TinyModel, write_tiny


def split(whole: Path, count: int, *, empty_first: bool = False, stem: str = "big") -> list[Path]:
    """The parts that llama-gguf-split makes of a file; with `empty_first` as by its --no-tensor-first-split."""
    gguf = GgufFile.open(whole)
    infos = list(gguf.tensors.values())
    shares = count - empty_first
    paths = []
    for number in range(count):
        share = number - empty_first
        mine = infos[share * len(infos) // shares : (share + 1) * len(infos) // shares] if share >= 0 else []
        fields: dict[str, Field] = dict(gguf.metadata.fields) if number == 0 else {}
        fields |= {
            "split.no": scalar_field(ValueType.UINT16, number),
            "split.count": scalar_field(ValueType.UINT16, count),
            "split.tensors.count": scalar_field(ValueType.INT32, len(infos)),
        }
        tensors = [OutTensor(info.name, info.type, info.shape, gguf.tensor_bytes(info.name)) for info in mine]
        path = whole.with_name(f"{stem}-{number + 1:05d}-of-{count:05d}.gguf")
        with path.open("wb") as file:
            write_gguf(file, encode_header(fields, tensors), tensors)
        paths.append(path)
    return paths


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "whole.gguf", TinyModel(layers=6, width=128))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving(Site()) as site:
        yield site


@pytest.mark.parametrize("empty_first", [False, True])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_parts_are_one_file(whole: Path, count: int, empty_first: bool) -> None:
    parts = [
        Memory(path.read_bytes(), str(path), step=10_000, tag=path.name)
        for path in split(whole, count, empty_first=empty_first)
    ]
    joined = JoinedFile(parts)
    found = bytearray()
    joined.read(0, joined.facts.nbytes, found.extend)
    path = whole.with_name("joined.gguf")
    path.write_bytes(found)
    one, other = GgufFile.open(path), GgufFile.open(whole)
    assert checkpoint_identity(one, verify_weights=True) == checkpoint_identity(other, verify_weights=True)
    assert found[one.header_bytes :] == whole.read_bytes()[other.header_bytes :]
    for start, end in ((0, 1), (5, 20_000), (one.header_bytes - 3, one.header_bytes + 3), (40_001, 250_017)):
        piece = bytearray()
        joined.read(start, end - start, piece.extend)
        assert piece == found[start:end]


def test_a_rank_reads_its_layers_of_the_parts(tmp_path: Path, whole: Path, site: Site) -> None:
    for path in split(whole, 3):
        site.files[f"/m/{path.name}"] = path.read_bytes()
    with open_offer(f"{site.url}/m/big-00001-of-00003.gguf", no_wait()) as offer:
        assert offer.gguf == "big.gguf"
        fetched = Fetch(offer, tmp_path / "cache", no_wait(), None).provide(Need(2, 5))
    assert same_slices(fetched.files, whole, tmp_path / "cut") == 1
    gguf = GgufFile.open(whole)
    layers = [info.nbytes for name, info in gguf.tensors.items() if name[:6] in ("blk.2.", "blk.3.", "blk.4.")]
    assert site.sent <= 1.01 * sum(layers) + gguf.header_bytes + 3 * 16384


def test_parts_of_this_machine_are_joined(tmp_path: Path, whole: Path) -> None:
    first = split(whole, 3)[0]
    with open_offer(str(first)) as offer:
        path = Fetch(offer, tmp_path / "cache", no_wait(), None).provide(None).path
    assert path.name == "big.gguf"
    assert path.read_bytes() == whole.read_bytes()


def test_a_server_without_ranges_and_several_parts(tmp_path: Path, whole: Path, site: Site) -> None:
    """The body of one part is given up for the next one's, and asked for again."""
    site.ranges = False
    for path in split(whole, 2):
        site.files[f"/m/{path.name}"] = path.read_bytes()
    with open_offer(f"{site.url}/m/big-00001-of-00002.gguf", no_wait()) as offer:
        fetched = Fetch(offer, tmp_path / "cache", no_wait(), None).provide(None)
    assert fetched.path.read_bytes() == whole.read_bytes()


def test_names_of_parts() -> None:
    assert part_names("model.gguf") is None
    assert part_names("model-00001-of-00001.gguf") is None
    assert part_names("a/b-00001-of-00002.gguf") == ("a/b-00001-of-00002.gguf", "a/b-00002-of-00002.gguf")
    assert joined_name("b-00001-of-00002.gguf") == "b.gguf"
    for name in ("b-00002-of-00003.gguf", "b-00001-of-99999.gguf", "b-00000-of-00002.gguf"):
        with pytest.raises(CheckpointError, match="name the first of its parts"):
            part_names(name)


def test_parts_that_do_not_belong_together(whole: Path) -> None:
    paths = split(whole, 3)
    parts = [Memory(path.read_bytes(), tag=path.name) for path in paths]
    with pytest.raises(CheckpointError, match="it says that it is part 3 of 3, its name says 2 of 3"):
        JoinedFile([parts[0], parts[2], parts[1]])
    with pytest.raises(CheckpointError, match="it says that it is part 1 of 3, its name says 1 of 2"):
        JoinedFile(parts[:2])
    with pytest.raises(CheckpointError, match=r"split\.count"):
        JoinedFile([Memory(whole.read_bytes()), parts[1]])


def test_a_part_that_is_not_there(tmp_path: Path, whole: Path, site: Site) -> None:
    site.files["/m/big-00001-of-00003.gguf"] = split(whole, 3)[0].read_bytes()
    with (
        pytest.raises(CheckpointError, match=r"big-00002-of-00003\.gguf: 404 Not Found"),
        open_offer(f"{site.url}/m/big-00001-of-00003.gguf", no_wait()),
    ):
        pass

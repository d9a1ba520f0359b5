"""A GGUF's layers by byte ranges: the slices that a whole local file gives, and hardly a byte more than they hold."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import pytest

from checkpoints.fetch.sources import no_wait, same_slices
from checkpoints.fetch.web_server import Answer, Asked, Site, serving
from ropeway.checkpoints.budget import Lease, kept_files
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.offer import local_offer, open_offer
from ropeway.checkpoints.fetch.provide import Fetch, Fetched
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.slicing import slice_stage
from tiny_gguf import TinyModel, write_tiny

LAYERS = 8
NEEDS = [
    Need(0, 3, embed=True),
    Need(3, 6),
    Need(6, 8),
    Need(6, 8, head=True),
    Need(0, 3, embed=True, head=True),
    Need(8, 8, head=True),
]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose layers are large beside its header, as real ones' are."""
    return write_tiny(
        tmp_path_factory.mktemp("wide") / "wide.gguf", TinyModel(layers=LAYERS, width=256, feed_forward=1024)
    )


@pytest.fixture
def site(wide: Path) -> Iterator[Site]:
    with serving(Site({"/m/wide.gguf": wide.read_bytes()})) as site:
        yield site


def fetch(site: Site, cache: Path, need: Need | None, *, slices: bool = True, reached: bool = True) -> Fetched:
    with open_offer(f"{site.url}/m/wide.gguf", no_wait(6), cache) as offer:
        assert reached or offer.network_bytes == 0
        return Fetch(offer, cache, no_wait(), None).provide(need, slices=slices)


def layer_bytes(path: Path, need: Need) -> int:
    """Bytes of the tensors that a stage holds, each once."""
    gguf = GgufFile.open(path)
    names = {
        name for name in gguf.tensors if name.startswith("blk.") and need.first <= int(name.split(".")[1]) < need.end
    }
    names |= {"token_embd.weight"} if need.embed else set()
    names |= {"output.weight", "output_norm.weight"} if need.head else set()
    return sum(gguf.tensors[name].nbytes for name in names)


@pytest.mark.parametrize("need", NEEDS, ids=lambda need: need.label)
def test_slices_are_those_of_the_whole_file(tmp_path: Path, wide: Path, site: Site, need: Need) -> None:
    fetched = fetch(site, tmp_path / "cache", need)
    expected = 1 if not need.head or (need.end == LAYERS and need.first < need.end) else 2
    assert same_slices(fetched.files, wide, tmp_path / "cut") == min(expected, 2 if need.first < need.end else 1)
    header = GgufFile.open(wide).header_bytes
    wanted = header + layer_bytes(wide, need)
    assert wanted <= site.sent == fetched.network_bytes
    assert site.sent <= 1.01 * wanted or need.first == need.end
    held = GgufFile.open(fetched.path)
    assert held.metadata.fields.keys() == GgufFile.open(wide).metadata.fields.keys()
    if need.embed:
        assert held.tensor_bytes("token_embd.weight") == GgufFile.open(wide).tensor_bytes("token_embd.weight")


def test_an_engine_finds_the_slices_that_were_fetched(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path))
    fetched = fetch(site, tmp_path, Need(3, 6))
    assert slice_stage(fetched.path, 3, 6, False) in fetched.files
    with pytest.raises(CheckpointError, match=r"tensor blk\.6\.\S+ is not on this machine: only a part"):
        slice_stage(fetched.path, 6, 7, False)
    assert not list((tmp_path / "slices").glob("*.part"))


def test_a_copy_for_other_engines(tmp_path: Path, wide: Path, site: Site) -> None:
    need = Need(2, 4, head=True)
    path = fetch(site, tmp_path, need, slices=False).path
    copy, whole = GgufFile.open(path), GgufFile.open(wide)
    there = {name for name in whole.tensors if name.startswith(("blk.2.", "blk.3.", "output"))}
    for name in whole.tensors:
        if name in there:
            assert copy.tensor_bytes(name) == whole.tensor_bytes(name)
        else:
            with pytest.raises(CheckpointError, match="is not on this machine"):
                copy.tensor_bytes(name)
    assert path.stat().st_size == wide.stat().st_size
    assert path.stat().st_blocks * 512 < wide.stat().st_size / 2
    assert site.sent <= 1.01 * (whole.header_bytes + layer_bytes(wide, need))


@pytest.mark.parametrize("need", [None, Need(0, LAYERS, True, True)])
def test_the_whole_file(tmp_path: Path, wide: Path, site: Site, need: Need | None) -> None:
    fetched = fetch(site, tmp_path / "cache", need)
    assert fetched.path.read_bytes() == wide.read_bytes()
    assert site.sent <= 1.01 * wide.stat().st_size
    assert slice_stage(fetched.path, 1, 3, False, tmp_path / "cache").read_bytes() == (
        slice_stage(wide, 1, 3, False, tmp_path / "cut").read_bytes()
    )


def test_what_is_here_is_not_fetched_again(tmp_path: Path, wide: Path, site: Site) -> None:
    """As when a placement moves a cut: a node keeps what it has, and reads the layers that are new to it."""
    fetch(site, tmp_path / "cache", Need(0, 4, embed=True))
    before, requests = site.sent, len(site.asked)
    fetch(site, tmp_path / "cache", Need(0, 4, embed=True))
    assert (site.sent - before, len(site.asked) - requests) == (16384, 1)  # to see that the file is the same
    fetched = fetch(site, tmp_path / "cache", Need(2, 5, head=True))
    assert site.sent - before <= 2 * 16384 + 1.01 * layer_bytes(wide, Need(4, 5, head=True))
    assert same_slices(fetched.files, wide, tmp_path / "cut") == 2
    before = site.sent
    assert fetch(site, tmp_path / "cache", None).path.read_bytes() == wide.read_bytes()
    assert site.sent - before <= 16384 + 1.01 * layer_bytes(wide, Need(5, 8))


@pytest.mark.parametrize("tenth", range(1, 10))
def test_a_fetch_that_is_cut_off_goes_on(tmp_path: Path, wide: Path, site: Site, tenth: int) -> None:
    need = Need(3, 6, head=True)
    total = GgufFile.open(wide).header_bytes + layer_bytes(wide, need)
    left = [total * tenth // 10]

    def cut(asked: Asked) -> Answer | None:
        """Give so many bytes in all, and then nothing but cut connections."""
        first, last = (int(n) for n in asked.headers["range"].removeprefix("bytes=").split("-"))
        left[0] -= last - first + 1
        return Answer(cut_after=max(0, last - first + 1 + left[0])) if left[0] < 0 else None

    site.faults.append(cut)
    with pytest.raises(CheckpointError, match=r"127\.0\.0\.1.*the connection was cut after \d+ of \d+ bytes"):
        fetch(site, tmp_path / "cache", need)
    assert site.sent == total * tenth // 10
    site.faults.clear()
    fetched = fetch(site, tmp_path / "cache", need)
    assert same_slices(fetched.files, wide, tmp_path / "cut") == 2
    assert site.sent <= 1.01 * total + 2 * 16384  # the first request of a fetch, made twice


def test_faults_on_the_way(tmp_path: Path, wide: Path, site: Site) -> None:
    """Errors that pass, cut connections, a redirect with every request, and a server that forgets ranges once."""
    site.faults.append(
        lambda asked: None if asked.path != "/m/wide.gguf" else Answer(302, {"Location": "/cdn/wide.gguf"})
    )
    site.files["/cdn/wide.gguf"] = wide.read_bytes()
    for count, answer in ((2, Answer(503)), (1, Answer(cut_after=5000)), (1, Answer(429, {"Retry-After": "1"}))):
        site.times(count, answer, "/cdn/wide.gguf")
    fetched = fetch(site, tmp_path / "cache", Need(3, 8))
    assert same_slices(fetched.files, wide, tmp_path / "cut") == 1
    assert site.sent <= 1.01 * (GgufFile.open(wide).header_bytes + layer_bytes(wide, Need(3, 8))) + 16384


def test_a_server_without_ranges(tmp_path: Path, wide: Path, site: Site) -> None:
    site.ranges = False
    fetched = fetch(site, tmp_path / "cache", Need(3, 8))
    assert same_slices(fetched.files, wide, tmp_path / "cut") == 1


def test_from_a_path_of_this_machine(tmp_path: Path, wide: Path) -> None:
    fetched = Fetch(local_offer(wide), tmp_path / "cache").provide(Need(2, 5))
    assert same_slices(fetched.files, wide, tmp_path / "cut") == 1
    assert fetched.network_bytes == 0


def test_what_is_no_gguf(tmp_path: Path, site: Site) -> None:
    site.files["/m/wide.gguf"] = b"<html>sign in first</html>" * 5000
    with pytest.raises(CheckpointError, match=r"wide\.gguf: this is not a GGUF file"):
        fetch(site, tmp_path, Need(0, 1))
    whole = b"GGUF" + b"\3\0\0\0" + (1 << 40).to_bytes(8, "little") * 2
    site.files["/m/wide.gguf"] = whole.ljust(100_000, b"\0")
    with pytest.raises(CheckpointError, match="more than the file can hold"):
        fetch(site, tmp_path, Need(0, 1))
    assert not list(tmp_path.rglob("*.gguf"))


def test_a_file_that_changes_between_two_tries_is_another_file(tmp_path: Path, wide: Path, site: Site) -> None:
    fetch(site, tmp_path / "cache", Need(3, 6))
    other = write_tiny(tmp_path / "wide.gguf", TinyModel(layers=LAYERS, width=256, feed_forward=1024, seed=1))
    site.files["/m/wide.gguf"] = other.read_bytes()
    fetched = fetch(site, tmp_path / "cache", Need(3, 6))
    assert same_slices(fetched.files, other, tmp_path / "cut") == 1


def test_without_its_source_what_is_here_will_do(tmp_path: Path, wide: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = tmp_path / "cache"
    with serving(Site({"/m/wide.gguf": wide.read_bytes()})) as site:
        first = fetch(site, cache, Need(0, 3, embed=True))
    assert fetch(site, cache, Need(0, 3, embed=True), reached=False).files == first.files
    assert "Connection refused; going on with what is here of it" in caplog.text
    with pytest.raises(CheckpointError, match="no source has byte"):
        fetch(site, cache, Need(3, 6), reached=False)
    with pytest.raises(CheckpointError, match="Connection refused"):
        fetch(site, tmp_path / "empty", Need(0, 3), reached=False)


def test_layers_beyond_the_model(tmp_path: Path, site: Site) -> None:
    with pytest.raises(ValueError, match="layers: 6:9 is not within the model's 8 layers"):
        fetch(site, tmp_path, Need(6, 9))


def small_disk(room: int) -> type[FileIO]:
    """Files on a disk that has room for so many bytes more; like a real one it takes of a write what still fits."""
    left = [room]
    write = FileIO.write

    def until_full(file: FileIO, data: memoryview) -> int:
        fits = min(len(data), left[0])
        if not fits:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= fits
        return write(file, data[:fits])

    class SmallDisk(FileIO):
        write = until_full  # type: ignore[assignment]

    return SmallDisk


def test_a_disk_that_is_full_in_the_middle_of_a_header(
    tmp_path: Path, wide: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("ropeway.checkpoints.cache.FileIO", small_disk(1000))
        with pytest.raises(CheckpointError, match="the disk is full"):
            fetch(site, tmp_path / "cache", Need(1, 4))
    assert not list((tmp_path / "cache").rglob("*.gguf"))
    fetched = fetch(site, tmp_path / "cache", Need(1, 4))
    assert same_slices(fetched.files, wide, tmp_path / "cut") == 1


def test_a_disk_that_is_too_full(tmp_path: Path, wide: Path, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is seen before a byte of the layers is fetched; where it was not to be seen, what came is kept."""
    fetch(site, tmp_path / "cache", Need(0, 1))
    before = site.sent
    with monkeypatch.context() as patch:
        usage = shutil.disk_usage(tmp_path)
        patch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**6))
        with pytest.raises(CheckpointError, match=r"the disk is too full: 3\.1 MB are to be fetched, 1\.0 MB are free"):
            fetch(site, tmp_path / "cache", Need(1, 4))
    assert site.sent - before == 16384

    with monkeypatch.context() as patch:
        patch.setattr("ropeway.checkpoints.cache.FileIO", small_disk(10**6))
        with pytest.raises(CheckpointError, match=r"the disk is full: \S+\.gguf needs 3\.\d MB, .* make room or set"):
            fetch(site, tmp_path / "cache", Need(1, 4))
    fetched = fetch(site, tmp_path / "cache", Need(1, 4))
    assert same_slices(fetched.files, wide, tmp_path / "cut") == 1
    assert fetched.network_bytes <= layer_bytes(wide, Need(1, 4)) - 990_000 + 16384


def test_the_cache_keeps_within_its_limit(tmp_path: Path, site: Site) -> None:
    """The slice that was not used for longest goes; one that a process uses stays, though it is older."""
    cache = tmp_path / "cache"
    fetched = [fetch(site, cache, Need(layer, layer + 2)) for layer in (0, 2, 4)]
    slices = [one.files[-1] for one in fetched]
    limit = sum(kept.nbytes for kept in kept_files(cache)) + 500_000
    lease = Lease(slices[0])
    with open_offer(f"{site.url}/m/wide.gguf", no_wait()) as offer:
        Fetch(offer, cache, no_wait(), limit).provide(Need(6, 8))
    assert [path.exists() for path in slices] == [True, False, True]
    lease.close()
    with (
        open_offer(f"{site.url}/m/wide.gguf", no_wait()) as offer,
        pytest.raises(CheckpointError, match=r"the cache may take 1\.0 MB; 2\.1 MB more do not fit"),
    ):
        Fetch(offer, cache, no_wait(), 10**6).provide(Need(1, 3))


def test_two_that_fetch_the_same_at_once(tmp_path: Path, wide: Path, site: Site) -> None:
    """The second waits for the first and finds its files: no byte of a layer is read twice."""
    need = Need(2, 6)
    with ThreadPoolExecutor(3) as pool:
        fetched = list(pool.map(lambda _: fetch(site, tmp_path / "cache", need), range(3)))
    assert len({one.files for one in fetched}) == 1
    assert same_slices(fetched[0].files, wide, tmp_path / "cut") == 1
    assert site.sent <= 1.01 * layer_bytes(wide, need) + 3 * 2 * 16384
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.name.endswith((".lock", ".part"))]

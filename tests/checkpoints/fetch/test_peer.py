"""Nodes that give each other bytes: over sockets, with what each holds, and with what can go wrong."""

from __future__ import annotations

import hashlib
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpoints.fetch import tiny_directory
from checkpoints.fetch.sources import Memory, no_wait, same_slices
from ropeway.checkpoints.directory import DirectoryCheckpoint
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.exchange import PREFACE, READ_BYTES
from ropeway.checkpoints.fetch.local import whole_file
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.offer import Offer, join_offers, local_offer, peer_offer
from ropeway.checkpoints.fetch.peer import Holder, PeerSource, Shelf, serve
from ropeway.checkpoints.fetch.provide import Fetch
from ropeway.checkpoints.fetch.source import FileFacts, Missing, Source, SourceError
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.samples import MOST
from tiny_gguf import TinyModel, write_tiny

DATA = random.Random(4).randbytes(3_000_000)
KEY = FileFacts("file", len(DATA), "tag").key


class One:
    """Holds one file."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def find(self, key: str) -> Source | None:
        """As `Holder`."""
        return self.source if key == self.source.facts.key else None


class Node:
    """A node that gives: its threads, and how often somebody connected."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.connections = 0
        self.threads: list[threading.Thread] = []
        self.ours: list[socket.socket] = []

    def connect(self) -> socket.socket:
        """A connection to it."""
        self.connections += 1
        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=serve, args=(theirs, self.holder))
        thread.start()
        self.threads.append(thread)
        self.ours.append(ours)
        return ours

    def end(self) -> None:
        """Everybody has left."""
        for ours in self.ours:
            ours.close()
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()


Begin = Callable[[Holder], Node]


@pytest.fixture
def begin() -> Iterator[Begin]:
    nodes: list[Node] = []

    def one(holder: Holder) -> Node:
        nodes.append(Node(holder))
        return nodes[-1]

    yield one
    for node in nodes:
        node.end()


def read(source: Source, start: int, nbytes: int) -> bytes:
    found = bytearray()
    source.read(start, nbytes, found.extend)
    return bytes(found)


def test_bytes_of_another_node(begin: Begin) -> None:
    node = begin(One(Memory(DATA, held=((100, 2_500_000),), step=1_300_000)))
    source = PeerSource(node.connect, KEY, "node b")
    assert source.facts == FileFacts("file", len(DATA), "tag")
    assert source.held == ((100, 2_500_000),)
    assert read(source, 100, 2_000_000) == DATA[100:2_000_100]
    assert read(source, 2_400_000, 1000) == DATA[2_400_000:2_401_000]
    assert source.digest(200, 300) == hashlib.sha256(DATA[200:500]).hexdigest()
    assert source.digest(0, 300) is None  # not all of it is there
    assert source.digest(100, READ_BYTES + 1) is None
    assert node.connections == 2  # digests have their own
    assert 2_001_000 < source.bytes_read < 2_002_000


def test_a_file_that_a_node_does_not_have(begin: Begin) -> None:
    node = begin(One(Memory(DATA)))
    with pytest.raises(Missing, match="node b: this node does not have that file"):
        PeerSource(node.connect, "00" * 32, "node b")


def test_bytes_that_a_node_has_no_more(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    local = whole_file(path)
    node = begin(One(local))
    source = PeerSource(node.connect, local.facts.key, "node b")
    path.unlink()
    with pytest.raises(SourceError, match="node b: this node cannot read those bytes any more") as caught:
        read(source, 0, 10)
    assert str(tmp_path) not in str(caught.value)
    with pytest.raises(SourceError, match="node b: this node does not hold those bytes"):
        read(source, len(DATA), 10)


def test_a_node_that_leaves_and_comes_back(begin: Begin) -> None:
    node = begin(One(Memory(DATA)))
    source = PeerSource(node.connect, KEY, "node b")
    node.ours[0].shutdown(socket.SHUT_RDWR)
    with pytest.raises(SourceError, match="node b: ") as caught:
        read(source, 0, 10)
    assert not caught.value.lasting
    assert read(source, 0, 10) == DATA[:10]
    assert node.connections == 2


def test_a_node_that_says_nothing() -> None:
    ours, theirs = socket.socketpair()
    with theirs, pytest.raises(SourceError, match="node b: nothing came in time"):
        PeerSource(lambda: ours, KEY, "node b", timeout_s=0.05)
    assert ours.fileno() == -1


def test_a_node_that_cannot_be_reached() -> None:
    def refused() -> socket.socket:
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(SourceError, match="node b: Connection refused"):
        PeerSource(refused, KEY, "node b")


@pytest.mark.parametrize("raw", [b"HTTP/1.1 400 Bad Request\r\n", PREFACE + b"\0\0\0\0\x63", PREFACE + b"\xff" * 5])
def test_a_node_that_breaks_the_rules(raw: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(raw)
        with pytest.raises(SourceError, match="node b: ") as caught:
            PeerSource(lambda: ours, KEY, "node b")
    assert caught.value.lasting


@pytest.mark.parametrize("raw", [b"GET / HTTP/1.1\r\n\r\n", PREFACE + b"\xff" * 40, b""])
def test_an_asker_that_breaks_the_rules_is_let_go(begin: Begin, raw: bytes) -> None:
    node = begin(One(Memory(DATA)))
    with node.connect() as ours:
        ours.sendall(raw)
        ours.shutdown(socket.SHUT_WR)
        said = b""
        while data := ours.recv(100):
            said += data
    assert said == PREFACE


def test_a_node_fetches_from_one_that_has_the_file(begin: Begin, tmp_path: Path) -> None:
    """And a third from the second, which holds only a slice; what it lacks comes from the first."""
    whole = write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=8, width=128))
    first, second = Shelf(tmp_path / "1"), Shelf(tmp_path / "2")
    key = first.add(whole_file(whole))
    a, b = begin(first), begin(second)

    offer = peer_offer("tiny", {"tiny.gguf": key}, [("node a", a.connect)])
    fetch = Fetch(offer, tmp_path / "2", no_wait(), None)
    fetched = fetch.provide(Need(2, 6))
    assert same_slices(fetched.files, whole, tmp_path / "cut") == 1
    gguf = GgufFile.open(whole)
    size = sum(t.nbytes for name, t in gguf.tensors.items() if name[:6] in ("blk.2.", "blk.3.", "blk.4.", "blk.5."))
    assert fetched.network_bytes <= 1.01 * size + gguf.header_bytes + 65536

    offer = peer_offer("tiny", {"tiny.gguf": key}, [("node b", b.connect), ("node a", a.connect)])
    fetch = Fetch(offer, tmp_path / "3", no_wait(), None)
    fetched = fetch.provide(Need(4, 8, head=True))
    assert same_slices(fetched.files, whole, tmp_path / "cut") == 1
    # Layers 4 and 5, and the header, from b; the rest, and what b took for a gap between two tensors, from a.
    layer = size // 4
    assert fetch.taken.by_source["node b"] == pytest.approx(2 * layer + gguf.header_bytes, rel=0.1)
    assert fetch.taken.by_source["node a"] == pytest.approx(2 * layer + gguf.tensors["output.weight"].nbytes, rel=0.1)
    offer.close()


def test_a_node_that_gives_damaged_bytes(begin: Begin, tmp_path: Path) -> None:
    """Its own digests agree with what it sends, so another source is asked what they should be."""
    whole = write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=4))
    good = whole_file(whole)
    raw = bytearray(whole.read_bytes())
    at = GgufFile.open(whole).tensors["blk.2.ffn_up.weight"].offset
    raw[at + 5] ^= 1
    damaged = Memory(bytes(raw), step=4096, tag=good.facts.tag)
    a, b = begin(One(good)), begin(One(damaged))
    offer = peer_offer("tiny", {"tiny.gguf": good.facts.key}, [("node b", b.connect), ("node a", a.connect)])
    vouch = {"tiny.gguf": offer.files["tiny.gguf"][1]}
    fetched = Fetch(offer, tmp_path / "cache", no_wait(), None, vouch=vouch).provide(Need(1, 3))
    assert same_slices(fetched.files, whole, tmp_path / "cut") == 1
    assert "the SHA-256 of every header and tensor" in fetched.checked
    offer.close()


def test_a_directory_from_another_node(begin: Begin, tmp_path: Path) -> None:
    tensors = tiny_directory.tensors()
    (tmp_path / "m").mkdir()
    for name, raw in tiny_directory.sharded(tensors).items():
        (tmp_path / "m" / name).write_bytes(raw)
    here = local_offer(tmp_path / "m")
    shelf = Shelf(tmp_path / "1")
    for sources in here.files.values():
        shelf.add(sources[0])
    node = begin(shelf)
    offer = peer_offer("m", here.keys, [("node a", node.connect)])
    assert offer.key == here.key
    fetched = Fetch(offer, tmp_path / "2", no_wait(), None).provide(Need(2, 4))
    checkpoint = DirectoryCheckpoint(fetched.path)
    assert checkpoint.identity() == DirectoryCheckpoint(tmp_path / "m").identity()
    assert checkpoint.tensor_bytes("model.layers.3.mlp.weight") == tensors["model.layers.3.mlp.weight"]
    offer.close()


def test_offers_are_joined_where_they_are_the_same(tmp_path: Path) -> None:
    one = Offer("one", {"f": [Memory(b"abc")], "g": [Memory(b"abc")]})
    two = Offer("two", {"f": [Memory(b"abc")], "g": [Memory(b"abc", tag="other")], "h": [Memory(b"x")]})
    joined = join_offers(one, two)
    assert {name: len(sources) for name, sources in joined.files.items()} == {"f": 2, "g": 1}
    with pytest.raises(CheckpointError, match="tiny: no node gives f: there is none"):
        peer_offer("tiny", {"f": KEY}, [])


@pytest.mark.parametrize("tenth", range(1, 10))
def test_a_fetch_from_a_node_that_is_cut_off_goes_on(begin: Begin, tmp_path: Path, tenth: int) -> None:
    whole = write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=8, width=128))
    data, tag = whole.read_bytes(), whole_file(whole).facts.tag
    gguf, need = GgufFile.open(whole), Need(2, 6)
    layers = [
        info.nbytes for name, info in gguf.tensors.items() if name[:6] in ("blk.2.", "blk.3.", "blk.4.", "blk.5.")
    ]
    left = [gguf.header_bytes + MOST * 1000 + sum(layers) * tenth // 10]

    def fail(_: int) -> SourceError | None:
        left[0] -= 1000
        return SourceError("the disk of node a has failed", lasting=True) if left[0] < 0 else None

    failing, good = Memory(data, fail=fail, step=1000, tag=tag), Memory(data, step=1000, tag=tag)
    a, b = begin(One(failing)), begin(One(good))
    for node, failure in ((a, True), (b, False)):
        offer = peer_offer("tiny", {"tiny.gguf": good.facts.key}, [("node", node.connect)])
        fetch = Fetch(offer, tmp_path / "cache", no_wait(), None)
        if failure:
            with pytest.raises(CheckpointError, match="node: this node cannot read those bytes any more"):
                fetch.provide(need)
        else:
            assert same_slices(fetch.provide(need).files, whole, tmp_path / "cut") == 1
        offer.close()
    given = failing.bytes_read + good.bytes_read
    assert given <= 1.01 * (gguf.header_bytes + sum(layers)) + 16384 + 65536
    assert failing.bytes_read >= sum(layers) * tenth // 10 - 1000

"""A file out of pieces: the same bytes wherever it was cut off, and no piece that differs from its digest."""

from __future__ import annotations

import random
from io import FileIO
from pathlib import Path

import pytest

from checkpoints.fetch.sources import Memory, no_wait
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.assemble import GAP_BYTES, Copy, Literal, Recipe, assemble
from ropeway.checkpoints.fetch.reader import Reader
from ropeway.checkpoints.fetch.source import SourceError

DATA = random.Random(1).randbytes(3 * GAP_BYTES + 1000)
FAR = 2 * GAP_BYTES + 500

RECIPE = Recipe(
    1600,
    (
        Literal(0, b"header!!"),
        Copy(8, 100, 200, "a"),
        Copy(240, 310, 150, "b"),  # 10 bytes further on in the source, 32 here
        Copy(400, FAR, 300, "c"),
        Copy(700, 20, 60, "d"),  # backwards
        Literal(1000, b"ones" * 50),
        Copy(1300, FAR + 300, 100, "e"),
    ),
)


def expected(data: bytes = DATA) -> bytes:
    whole = bytearray(RECIPE.nbytes)
    for part in RECIPE.parts:
        raw = part.data if isinstance(part, Literal) else data[part.start : part.start + part.nbytes]
        whole[part.at : part.end] = raw
    return bytes(whole)


def put(path: Path, reader: Reader, vouch: Memory | None = None) -> int:
    """Assemble as far as it goes; bytes that were said to have moved, less those taken back."""
    moved = [0]

    def count(nbytes: int) -> None:
        moved[0] += nbytes

    path.touch()
    with FileIO(path, "r+") as file:
        assemble(file, RECIPE, reader, count, vouch)
    return moved[0]


def test_a_file_is_put_together(tmp_path: Path) -> None:
    source = Memory(DATA)
    assert put(tmp_path / "file", Reader([source], no_wait())) == RECIPE.read_bytes == 810
    assert (tmp_path / "file").read_bytes() == expected()
    assert source.asked == [(100, 360), (FAR, 300), (20, 60), (FAR + 300, 100)]
    assert RECIPE.copied() == ((20, 80), (100, 300), (310, 460), (FAR, FAR + 400))


def test_it_goes_on_at_any_byte(tmp_path: Path) -> None:
    whole = expected()
    for have in range(0, len(whole) + 1, 3):
        path = tmp_path / "file"
        path.write_bytes(whole[:have])
        source = Memory(DATA, step=50)
        assert put(path, Reader([source], no_wait())) == RECIPE.read_bytes
        assert path.read_bytes() == whole, have
        missing = sum(min(max(copy.end - have, 0), copy.nbytes) for copy in RECIPE.copies)
        assert missing <= source.bytes_read <= missing + 10, have


def test_it_is_cut_off_at_any_byte_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "file"
    budget = [0]

    def fail(_: int) -> SourceError | None:
        budget[0] -= 1
        return SourceError("cut", lasting=True) if budget[0] < 0 else None

    calls = 0
    source = Memory(DATA, fail=fail, step=50)
    while True:
        budget[0] = 2  # pieces that a call gets
        calls += 1
        try:
            put(path, Reader([source], no_wait()))
            break
        except CheckpointError:
            assert path.read_bytes() == expected()[: path.stat().st_size]
    assert calls > 5
    assert path.read_bytes() == expected()
    assert source.bytes_read <= RECIPE.read_bytes + 10  # the gap between a and b


def test_a_file_that_is_too_long_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5000)
    put(path, Reader([Memory(DATA)], no_wait()))
    assert path.read_bytes() == expected()


def damaged(at: int) -> bytes:
    data = bytearray(DATA)
    data[at] ^= 1
    return bytes(data)


def test_a_damaged_piece_is_read_again_and_then_elsewhere(tmp_path: Path) -> None:
    bad, good = Memory(damaged(FAR + 7), "bad"), Memory(DATA, "good")
    path = tmp_path / "file"
    assert put(path, Reader([bad, good], no_wait()), vouch=good) == RECIPE.read_bytes
    assert path.read_bytes() == expected()
    assert bad.closed
    assert bad.asked == [(100, 360), (FAR, 300), (FAR, 300)]


def test_a_damaged_piece_of_which_part_was_fetched_earlier(tmp_path: Path) -> None:
    path, good = tmp_path / "file", Memory(DATA, "good")
    path.write_bytes(expected(damaged(110))[:50])
    put(path, Reader([good], no_wait()), vouch=good)
    assert path.read_bytes() == expected()
    assert good.asked[:2] == [(142, 318), (100, 360)]
    assert not good.closed


def test_a_piece_that_nobody_has_undamaged(tmp_path: Path) -> None:
    bad, good = Memory(damaged(FAR + 7), "bad"), Memory(DATA, "good")
    path = tmp_path / "file"
    with pytest.raises(CheckpointError, match="bad gave c with a wrong SHA-256"):
        put(path, Reader([bad], no_wait()), vouch=good)
    assert path.read_bytes() == expected()[:400]


def test_a_piece_that_cannot_be_checked(tmp_path: Path) -> None:
    class Silent(Memory):
        def digest(self, start: int, nbytes: int) -> str | None:
            raise SourceError("the voucher has gone")

    with pytest.raises(CheckpointError, match="a cannot be checked: the voucher has gone"):
        put(tmp_path / "file", Reader([Memory(DATA)], no_wait()), vouch=Silent(DATA))

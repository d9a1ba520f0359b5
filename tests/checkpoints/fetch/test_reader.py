"""Several sources of one file: each byte once, patience, and on to the next."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checkpoints.fetch.sources import Memory, no_wait
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.reader import SKIPPED_BYTES, Patience, Reader
from ropeway.checkpoints.fetch.source import SourceError

DATA = bytes(range(200))


def read(reader: Reader, start: int = 0, nbytes: int = len(DATA)) -> bytes:
    found = bytearray()
    reader.read(start, nbytes, found.extend)
    return bytes(found)


def failing(times: int, **error: float) -> Callable[[int], SourceError | None]:
    """Fail at byte 70 so often."""
    left = [times]

    def fail(at: int) -> SourceError | None:
        if at < 70 or left[0] == 0:
            return None
        left[0] -= 1
        return SourceError("it broke", retry_after_s=error.get("retry_after_s", 0.0))

    return fail


def test_the_first_source_that_has_a_byte_is_asked() -> None:
    data = DATA * 50
    near = Memory(data, "near", held=((10, 30), (600, 600 + SKIPPED_BYTES), (8000, 8000 + SKIPPED_BYTES - 1)))
    far = Memory(data, "far")
    reader = Reader([near, far], no_wait())
    assert read(reader, 10, 9000) == data[10:9010]
    assert near.asked == [(10, 20), (600, SKIPPED_BYTES)]
    assert far.asked == [(30, 570), (600 + SKIPPED_BYTES, 8410 - SKIPPED_BYTES)]  # and not around the short run ahead
    assert reader.taken.by_source == {"near": 20 + SKIPPED_BYTES, "far": 8980 - SKIPPED_BYTES}


def test_a_short_run_that_only_the_nearer_source_has_is_read_there() -> None:
    near, far = Memory(DATA, "near", held=((60, 80),)), Memory(DATA, "far", held=((0, 60), (80, 200)))
    assert read(Reader([near, far], no_wait())) == DATA
    assert near.asked == [(60, 20)]


def test_a_source_that_breaks_is_gone_on_from_where_it_stopped() -> None:
    source = Memory(DATA, fail=failing(2))
    reader = Reader([source], no_wait())
    assert read(reader) == DATA
    assert source.asked == [(0, 200), (70, 130), (70, 130)]
    assert source.bytes_read == len(DATA)
    assert reader.taken.retries == 2


def test_a_source_that_keeps_breaking_is_left_for_the_next() -> None:
    first, second = Memory(DATA, "first", fail=failing(99)), Memory(DATA, "second")
    reader = Reader([first, second], no_wait(tries=3))
    assert read(reader) == DATA
    assert len(first.asked) == 3  # the first of them gave bytes
    assert first.closed
    assert second.asked == [(70, 130)]


def test_a_lasting_error_is_not_asked_about_again() -> None:
    gone = Memory(DATA, fail=lambda _: SourceError("gone for good", lasting=True))
    with pytest.raises(CheckpointError, match="gone for good"):
        read(Reader([gone], no_wait()))
    assert len(gone.asked) == 1


def down(label: str) -> Callable[[int], SourceError | None]:
    """Never give a byte."""
    return lambda _: SourceError(f"{label} is down")


def test_every_sources_reason_is_told() -> None:
    sources = [Memory(DATA, label, fail=down(label)) for label in ("one", "two")]
    with pytest.raises(CheckpointError, match="one is down; two is down"):
        read(Reader(sources, no_wait()))


def test_a_byte_that_nobody_has() -> None:
    with pytest.raises(CheckpointError, match="no source has byte 50 of file"):
        read(Reader([Memory(DATA, held=((0, 50),))], no_wait()))
    with pytest.raises(CheckpointError, match="there is no source"):
        Reader([])


def test_sources_of_different_content_are_not_mixed() -> None:
    with pytest.raises(CheckpointError, match="two has another file than one"):
        Reader([Memory(DATA, "one"), Memory(DATA, "two", tag="other")])


def test_pauses_double_up_to_a_limit_and_heed_what_was_asked() -> None:
    pauses: list[float] = []
    patience = Patience(tries=6, first_s=1.0, longest_s=5.0, sleep=pauses.append)
    source = Memory(DATA, fail=lambda _: SourceError("down"))
    with pytest.raises(CheckpointError):
        read(Reader([source], patience))
    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0]
    pauses.clear()
    assert read(Reader([Memory(DATA, fail=failing(1, retry_after_s=30.0))], patience)) == DATA
    assert pauses == [30.0]


def test_asking_again_for_an_answer() -> None:
    pauses: list[float] = []
    patience = Patience(tries=3, first_s=1.0, sleep=pauses.append)
    answers: list[SourceError | str] = [SourceError("busy"), SourceError("busy"), "here"]

    def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, SourceError):
            raise answer
        return answer

    assert patience.keep_on(ask) == "here"
    assert pauses == [1.0, 2.0]
    answers[:] = [SourceError("busy")] * 3
    with pytest.raises(SourceError, match="busy"):
        patience.keep_on(ask)
    assert answers == []
    answers[:] = [SourceError("no", lasting=True), "never"]
    with pytest.raises(SourceError, match="no"):
        patience.keep_on(ask)


def test_what_the_taker_raises_passes_through() -> None:
    def full(_: memoryview) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        Reader([Memory(DATA)], no_wait()).read(0, 10, full)

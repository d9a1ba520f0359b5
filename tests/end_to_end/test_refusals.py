"""Ranks that do not belong together, or cannot do their part: who says what, and that nobody waits for a deadline."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from end_to_end.by_hand import LONG, HandRing, free_addresses
from end_to_end.processes import Process, Yard
from ropeway.launch.keys import write_key
from tiny_gguf import TinyModel, write_tiny

pytestmark = pytest.mark.timeout(240)

SHORT = ("--max-tokens", "16")
CONTEXT = ("--context", "32000")

OTHER_RELEASE = "import ropeway.stage.describe as describe; describe.RELEASE = 'ropeway 9.9.9'"


def check_lost(process: Process, *said: str) -> None:
    """It has ended because of the ring, and says these things."""
    assert process.status() == 70, process.said()
    for words in said:
        assert words in process.err, process.said()
    assert "Traceback" not in process.err


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("other") / "other.gguf", TinyModel(layers=6, feed_forward=128)))


def test_a_ring_forms_and_runs_beside_ranks_that_do_not_belong_to_it(
    yard: Yard, small: str, other_model: str, tmp_path: Path
) -> None:
    """The wrong ones come first, all at once, from addresses of their own; the right stage comes when they are gone."""
    other_key = tmp_path / "other.key"
    write_key(other_key)
    with free_addresses(8) as addresses:
        ring = HandRing(yard, small, addresses[:2])
        apart = [("--listen", address) for address in addresses[2:]]
        rank0 = ring.run(*LONG)

        def wrong(*more: str, ring: HandRing = ring, model: str = "", key: Path | None = None) -> Process:
            return ring.stage(1, *CONTEXT, *apart.pop(), *more, model=model, key=key)

        larger = HandRing(yard, small, (*addresses[:2], addresses[2]))
        strangers = {
            "wrong_key": wrong(key=other_key),
            "wrong_fingerprint": wrong(model=other_model),
            "wrong_fingerprint: ": wrong("--cuts", "2"),
            "wrong_world": wrong(ring=larger, key=ring.key),
        }
        for name, stranger in strangers.items():
            check_lost(stranger, name, f"rank 0 ({addresses[0]}) refused rank 1")
        rank0.until(lambda rank0: all(rank0.err.count(name) for name in strangers))
        assert rank0.err.count("wrong_fingerprint") == 2
        assert not rank0.out

        right = ring.stage(1, *CONTEXT)
        rank0.until(lambda rank0: bool(rank0.out))
        check_lost(wrong(), "duplicate_rank", f"rank 0 ({addresses[0]}) refused rank 1")
        rank0.until(lambda rank0: "duplicate_rank" in rank0.err)
        alone = yard.ropeway("run", small, "hello", "--max-tokens", "100", *CONTEXT, "--stages", "1")
        assert alone.status() == 0
        text = alone.out.rstrip("\n")
        rank0.until(lambda rank0: len(rank0.out) > len(text))
        assert rank0.out.startswith(text)
        check_stopped(rank0, right)


def test_a_fine_tune_of_the_model_is_refused(yard: Yard, small: str, tmp_path: Path) -> None:
    """The same header but for the name, and other weights; the stage with the right ones is taken after it."""
    tuned = write_tiny(tmp_path / "tuned.gguf", TinyModel(layers=6, seed=1))
    assert tuned.stat().st_size == Path(small).stat().st_size
    with free_addresses(2) as addresses:
        ring = HandRing(yard, small, addresses)
        rank0 = ring.run(*SHORT)
        stage = ring.stage(1, model=str(tuned))
        check_lost(
            stage,
            f"wrong_fingerprint: rank 0 ({addresses[0]}) refused rank 1",
            "another checkpoint, another cut or another sampler",
            "A fine-tune or another quantization of a model is another checkpoint.",
        )
        rank0.until(lambda rank0: "wrong_fingerprint" in rank0.err)
        assert not rank0.out
        right = ring.stage(1)
        assert (rank0.status(), right.status()) == (0, 0), ring.said()
        assert rank0.out


def check_stopped(rank0: Process, *stages: Process) -> None:
    """Interrupt rank 0: that stops its ring in good order, and nobody has complained."""
    rank0.signal(signal.SIGINT)
    assert rank0.status() == 130, rank0.said()
    for stage in stages:
        assert stage.status() == 0, stage.said()
        assert "Traceback" not in stage.err


def test_a_second_process_at_the_same_address_is_told_so(yard: Yard, small: str) -> None:
    with free_addresses(2) as addresses:
        ring = HandRing(yard, small, addresses)
        ring.stream()
        second = ring.yard.ropeway("stage", small, "--rank", "1", *ring.flags())
        assert second.status() == 1
        assert f"cannot listen at {addresses[1]}: Address already in use" in second.err
        check_stopped(*ring.ranks.values())


def test_another_key_at_a_ranks_own_address_is_named_by_both(yard: Yard, small: str, tmp_path: Path) -> None:
    """Whichever dials the other first: the stage ends, and rank 0 waits on for one with the right key."""
    other_key = tmp_path / "other.key"
    write_key(other_key)
    with free_addresses(2) as addresses:
        ring = HandRing(yard, small, addresses)
        rank0 = ring.run(*LONG)
        check_lost(ring.stage(1, *CONTEXT, key=other_key), "wrong_key: ", f"rank 0 ({addresses[0]}) refused rank 1")
        rank0.until(lambda rank0: "wrong_key: " in rank0.err)
        right = ring.stage(1, *CONTEXT)
        rank0.until(lambda rank0: bool(rank0.out))
        check_stopped(rank0, right)


def test_a_wildcard_is_refused(yard: Yard, small: str) -> None:
    with free_addresses(2) as addresses:
        rank0 = HandRing(yard, small, addresses).run("--listen", "[::]:0")
        assert rank0.status() == 2
        assert rank0.err.startswith("ropeway: listen: '[::]:0' is a wildcard")


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory, small: str) -> Iterator[dict[str, HandRing]]:
    """Rings whose rank 1 differs from rank 0 in one flag, or in its release, side by side."""
    yard = Yard(tmp_path_factory.mktemp("refused"))
    with ExitStack() as stack:
        stack.callback(yard.end)
        rings = {}
        for name, mine, theirs, prelude in (
            ("parallel", ("--parallel", "4"), ("--parallel", "3"), ""),
            ("max_rows", ("--context", "4096"), ("--context", "2048"), ""),
            ("chunk", ("--part", "1024"), (), ""),
            ("release", (), (), OTHER_RELEASE),
        ):
            ring = HandRing(yard, small, stack.enter_context(free_addresses(2)), f"{name}-")
            ring.run(*SHORT, *mine)
            ring.stage(1, *theirs, prelude=prelude)
            rings[name] = ring
        yield rings


@pytest.mark.parametrize(
    ("name", "said", "advice"),
    [
        ("parallel", "rank 1 describes parallel 3, expected at least 4", "--parallel"),
        ("max_rows", "rank 1 describes max_rows 2048, expected at least 4096", "--context"),
        ("chunk", "rank 1 describes chunk 512, expected at least 1024", "--part"),
        ("release", "rank 1 describes release ropeway 9.9.9, expected ropeway", "the same release"),
    ],
)
def test_a_description_is_refused_by_name_on_both_sides(
    refused: dict[str, HandRing], name: str, said: str, advice: str
) -> None:
    for process in refused[name].ranks.values():
        check_lost(process, f"{name}: ", said, advice)


@pytest.mark.parametrize("why", ["missing", "truncated"])
def test_a_stage_without_its_model_says_so_at_once(yard: Yard, small: str, tmp_path: Path, why: str) -> None:
    model = tmp_path / "broken.gguf"
    if why == "truncated":
        model.write_bytes(Path(small).read_bytes()[:-1000])
    with free_addresses(2) as addresses:
        stage = HandRing(yard, str(model), addresses).stage(1)
        assert stage.status() == 1
        assert stage.err.startswith(f"ropeway: {model}")
        assert "Traceback" not in stage.err


@pytest.fixture
def tight_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for next to nothing."""
    place = tmp_path / "tight"
    place.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if mount is None or umount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small tmpfs cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run([umount, "-l", str(place)], check=True)


def test_a_stage_whose_disk_is_full_tells_rank_0(yard: Yard, small: str, tight_disk: Path) -> None:
    with free_addresses(2) as addresses:
        ring = HandRing(yard, small, addresses)
        ring.run(*SHORT)
        ring.stage(1, ROPEWAY_CACHE=str(tight_disk))
        for process in ring.ranks.values():
            check_lost(process, "the disk is full", str(tight_disk))
        assert f"engine_failed: rank 1 ({addresses[1]}): " in ring.ranks[0].err
        yard.end()

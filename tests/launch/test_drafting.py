"""The flag --draft: what it says, and what it refuses by name."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ropeway.checkpoints.errors import CheckpointError
from ropeway.engines.base import EngineError
from ropeway.engines.llamacpp.whole import WholeModel
from ropeway.launch.drafting import DraftKind, DraftOptions, check_draft, open_drafting
from ropeway.launch.placement import Options, Placement, place
from ropeway.types import SamplerAt
from tiny_gguf import TinyModel, write_tiny


@pytest.fixture
def placement(tmp_path: Path) -> Placement:
    """A tiny model in two stages."""
    return place(Options(str(write_tiny(tmp_path / "large.gguf")), 2, context=64, chunk=16, threads=1))


def model(path: Path) -> DraftOptions:
    return DraftOptions(DraftKind.MODEL, str(path))


def changed(path: Path, old: bytes, new: bytes) -> Path:
    """A copy of the tiny model with some bytes of its header replaced."""
    data = write_tiny(path).read_bytes()
    assert len(old) == len(new)
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))
    return path


def text(value: str) -> bytes:
    """A string as GGUF has it."""
    return struct.pack("<Q", len(value)) + value.encode()


def test_what_the_flag_says() -> None:
    assert DraftOptions.parse("none") == DraftOptions()
    assert DraftOptions.parse("ngram") == DraftOptions(DraftKind.NGRAM)
    assert DraftOptions.parse("model:C:/small.gguf") == DraftOptions(DraftKind.MODEL, "C:/small.gguf")
    assert DraftOptions.parse("ngram", batch=True) == DraftOptions(DraftKind.NGRAM, batch=True)
    for wrong in ("", "model", "model:", "ngram:3", "none:", "N-gram"):
        with pytest.raises(ValueError, match=r"draft: .* is not none, ngram, mtp or model:PATH"):
            DraftOptions.parse(wrong)


def test_no_drafter_and_ngrams_suit_every_model(placement: Placement) -> None:
    with open_drafting(DraftOptions(), placement) as drafting:
        assert drafting is None
    with open_drafting(DraftOptions(DraftKind.NGRAM), placement) as drafting:
        assert drafting is not None


def test_the_last_rank_verifies_no_drafts(placement: Placement) -> None:
    flags = Options(str(placement.path), 2, sampler=SamplerAt.LAST)
    with pytest.raises(ValueError, match="draft: --sampler last returns one token a stream"):
        check_draft(DraftOptions(DraftKind.NGRAM), place(flags))
    check_draft(DraftOptions(), place(flags))


def test_a_model_of_the_same_vocabulary_may_draft(placement: Placement, tmp_path: Path) -> None:
    small = write_tiny(tmp_path / "small.gguf", TinyModel("qwen3", 1, width=32, seed=4))
    with open_drafting(model(small), placement) as drafting:
        assert drafting is not None


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (text("hello"), text("jello"), "token 271 is 'jello', not 'hello'"),
        (text("gpt2"), text("bert"), "its tokenizer is 'bert', not 'gpt2'"),
    ],
    ids=["token", "tokenizer"],
)
def test_another_vocabulary_is_refused(placement: Placement, tmp_path: Path, old: bytes, new: bytes, why: str) -> None:
    other = changed(tmp_path / "other.gguf", old, new)
    with pytest.raises(ValueError, match=f"draft: other.gguf has another vocabulary than large.gguf: {why}"):
        check_draft(model(other), placement)


def test_what_pads_a_vocabulary_may_differ(placement: Placement, tmp_path: Path) -> None:
    check_draft(model(changed(tmp_path / "other.gguf", text("<|unused40|>"), text("[PAD_319_40]"))), placement)


def test_files_that_are_none_are_refused(placement: Placement, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"missing\.gguf"):
        check_draft(model(tmp_path / "missing.gguf"), placement)


def test_a_model_that_cannot_forget_a_row_is_refused(
    placement: Placement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(self: WholeModel, slot: int, length: int) -> None:
        raise EngineError("this model's state cannot be rolled back")

    monkeypatch.setattr(WholeModel, "keep", keep)
    with (
        pytest.raises(EngineError, match=r"draft: small\.gguf cannot draft: this model's state cannot"),
        open_drafting(model(write_tiny(tmp_path / "small.gguf")), placement),
    ):
        pass

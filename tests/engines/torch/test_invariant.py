"""With --invariant the bits of a stream do not depend on its company, on drafts, on the size of parts or on threads.

The loop that serves, with every row of logits that chose a token recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch (extra torch) is not installed")
pytest.importorskip("transformers", reason="transformers (extra torch) is not installed")

import torch

from engines.torch.stages import prompt
from engines.torch.tiny_models import write_model
from ropeway.engines.base import Logits
from ropeway.launch.placement import Options, place
from ropeway.launch.rank0 import Rank0, open_alone
from ropeway.serving.rounds import Wanted
from ropeway.serving.sequence import Sequence

STEPS = 9
FAMILIES = ["llama", "mistral", "qwen3_moe", "qwen3_5", "qwen4_exp", "gemma3"]


class Chooser:
    """Greedy; keeps the logits of each token's row, and verifies drafts position by position."""

    def __init__(self) -> None:
        self.rows: dict[int, list[bytes]] = {}

    def choose(self, wanted: Wanted, logits: Logits) -> Items[int]:
        chosen: list[int] = []
        for index, row in enumerate(logits):
            self.rows.setdefault(wanted.sequence.id, []).append(row.tobytes())
            chosen.append(int(row.argmax()))
            if index < len(wanted.drafts) and chosen[-1] != wanted.drafts[index]:
                break
        return chosen

    def prompt_rows(self, wanted: Wanted, offset: int, logits: Logits) -> None:
        raise AssertionError("nobody asked for the prompt's rows")


@contextmanager
def opened(path: Path, *, threads: int = 1, invariant: bool = True) -> Iterator[Rank0]:
    options = Options(
        str(path), stages=1, context=512, parallel=8, threads=threads, engines=("torch",), device="cpu",
        invariant=invariant,
    )  # fmt: skip
    with open_alone(place(options)) as rank0:
        yield rank0


def replies(
    rank0: Rank0, lengths: Items[int], *, part: int = 0, groups: int = 1, drafts: Items[int] | None = None
) -> list[list[bytes]]:
    """Every sequence's rows of logits, all sequences at once. With `drafts` these are its guesses, right or wrong."""
    chooser = Chooser()
    loop = rank0.loop(chooser, part=part, groups=groups)
    if drafts is not None:
        given = list(drafts)
        loop.scheduler._propose = lambda sequence, limit: given[len(sequence.produced) :][: min(3, limit)]
    for number, length in enumerate(lengths):
        loop.scheduler.add(Sequence(number, tuple(prompt(number, length)), STEPS))
    while not loop.scheduler.idle:
        loop.step()
    return [chooser.rows[number] for number in range(len(lengths))]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", FAMILIES)
def test_company_drafts_and_threads_change_no_bit(tmp_path: Path, family: str) -> None:
    path = write_model(tmp_path, family, torch.bfloat16)
    with opened(path) as rank0:
        alone = replies(rank0, [90])[0]
        long = replies(rank0, [300])[0]
        for part in (64, 128, 512):
            assert replies(rank0, [300], part=part)[0] == long, part
        others = [90, 200, 70, 130, 5, 33, 64, 128]
        assert replies(rank0, others, part=64)[0] == alone
        assert replies(rank0, others, part=64, groups=3)[0] == alone
        tokens = [int(np.frombuffer(row, np.float32).argmax()) for row in alone]
        assert replies(rank0, [90], drafts=tokens)[0] == alone
        spoiled = [token if index % 3 else token + 1 for index, token in enumerate(tokens)]
        assert replies(rank0, [90], drafts=spoiled)[0] == alone
        assert rank0.rows_stand_alone
    with opened(path, threads=2) as rank0:
        assert replies(rank0, [90])[0] == alone
    torch.set_num_threads(1)


def test_otherwise_company_does_change_bits(tmp_path: Path) -> None:
    """The test above can fail."""
    with opened(write_model(tmp_path, "qwen3_5", torch.float32), invariant=False) as rank0:
        alone = replies(rank0, [90])[0]
        tokens = [int(np.frombuffer(row, np.float32).argmax()) for row in alone]
        assert replies(rank0, [90], drafts=tokens)[0] != alone
        assert not rank0.rows_stand_alone

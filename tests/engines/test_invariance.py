"""With quantized matrices the bits of a stream do not depend on the size of parts, on what shares its rounds, on rounds
under way, or on drafts: the loop that serves, on llama.cpp alone, with every row of logits that chose a token recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Items
from pathlib import Path

import numpy as np
import pytest

from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.engines.base import Logits
from ropeway.launch.placement import Options, place
from ropeway.launch.rank0 import Rank0, open_alone
from ropeway.serving.rounds import Wanted
from ropeway.serving.scheduler import Scheduler
from ropeway.serving.sequence import Sequence
from tiny_gguf import VOCABULARY, TinyModel, write_tiny

STEPS = 9


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


def prompt(number: int, tokens: int) -> tuple[int, ...]:
    return tuple(int(t) for t in np.random.default_rng(number).integers(3, VOCABULARY, tokens))


def replies(
    rank0: Rank0,
    lengths: Items[int],
    *,
    part: int = 0,
    groups: int = 1,
    drafts: Items[int] | None = None,
    monkeypatch: pytest.MonkeyPatch | None = None,
) -> list[list[bytes]]:
    """Every sequence's rows of logits, all sequences at once. With `drafts` these are its guesses, right or wrong."""
    chooser = Chooser()
    loop = rank0.loop(chooser, part=part, groups=groups)
    if drafts is not None:
        assert monkeypatch is not None

        def propose(sequence: Sequence, limit: int) -> Items[int]:
            at = len(sequence.produced)
            return drafts[at : at + min(3, limit)]

        monkeypatch.setattr(loop.scheduler, "_propose", propose)
    for number, length in enumerate(lengths):
        loop.scheduler.add(Sequence(number, prompt(number, length), STEPS))
    while not loop.scheduler.idle:
        loop.step()
    return [chooser.rows[number] for number in range(len(lengths))]


@pytest.fixture(params=[("llama", GgmlType.Q8_0), ("qwen3", GgmlType.Q4_0)], ids=lambda p: f"{p[0]}-{p[1].name}")
def rank0(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rank0]:
    architecture, kind = request.param
    path = write_tiny(tmp_path / "tiny.gguf", TinyModel(architecture=architecture, layers=3, type=kind))
    with open_alone(place(Options(str(path), stages=1, context=512, parallel=4, threads=1))) as opened:
        yield opened


@pytest.mark.parametrize("length", [5, 64, 100, 128, 300])
def test_the_size_of_parts(rank0: Rank0, length: int) -> None:
    expected = replies(rank0, [length])
    for part in (64, 128, 256, 512):
        assert replies(rank0, [length], part=part) == expected


def test_what_shares_the_rounds(rank0: Rank0) -> None:
    alone = replies(rank0, [90])[0]
    assert replies(rank0, [90, 200, 70, 130], part=64)[0] == alone
    assert replies(rank0, [90, 200, 70, 130], part=64, groups=3)[0] == alone


def test_drafts_right_and_wrong(rank0: Rank0, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = replies(rank0, [70])[0]
    tokens = [int(np.frombuffer(row, np.float32).argmax()) for row in expected]
    assert replies(rank0, [70], drafts=tokens, monkeypatch=monkeypatch)[0] == expected
    spoiled = [token if index % 3 else token + 1 for index, token in enumerate(tokens)]
    assert replies(rank0, [70], drafts=spoiled, monkeypatch=monkeypatch)[0] == expected


def test_cuts_elsewhere_do_give_other_bits(rank0: Rank0) -> None:
    """The tests above can fail: a scheduler that cuts a prompt anywhere gives other bits."""
    expected = replies(rank0, [300])
    rank0.grain = 1
    assert replies(rank0, [300], part=96) != expected


def test_the_scheduler_is_told(rank0: Rank0) -> None:
    scheduler = rank0.loop(Chooser()).scheduler
    assert isinstance(scheduler, Scheduler)
    assert scheduler.piece % 64 == 0

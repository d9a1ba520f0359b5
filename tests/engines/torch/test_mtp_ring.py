"""A model's own next-token head, and n-grams, on real rings: the same bits as without, states right after rollbacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch (extra torch) is not installed")
pytest.importorskip("transformers", reason="transformers (extra torch) is not installed")

import torch
from safetensors.torch import load_file
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm
from transformers.models.qwen4_exp.modeling_qwen4_exp import (
    Qwen4ExpTextDecoderLayer,
    Qwen4ExpTextGatedResidual,
    Qwen4ExpTextRMSNorm,
)

from engines.torch.stages import prompt
from engines.torch.test_invariant import Chooser
from engines.torch.tiny_models import FAMILIES, load_model, write_model, write_next_token_head
from ropeway.engines.base import Span
from ropeway.engines.rows import side_by_side
from ropeway.engines.torch.engine import TorchEngine
from ropeway.launch.drafting import DraftKind, DraftOptions, check_draft, open_drafting
from ropeway.launch.placement import Options, place
from ropeway.launch.rank0 import Rank0, open_local
from ropeway.serving.drafting.drafter import Guess
from ropeway.serving.drafting.drafting import Drafting
from ropeway.serving.sequence import Sequence
from ropeway.verify.repeat import check
from serving.drafting.eager import free

STEPS = 24
PROMPTS = [tuple(prompt(1, 70)), tuple(prompt(2, 9)) * 6, (5, 6, 7)]


def write(path: Path, family: str) -> Path:
    write_model(path, family, torch.bfloat16)
    write_next_token_head(path, family, torch.bfloat16)
    return path


@pytest.fixture(
    scope="module", params=[("qwen3_5", 2), ("qwen3_5", 3), ("qwen4_exp", 3)], ids=lambda p: f"{p[0]}-{p[1]}"
)
def rank0(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rank0]:
    family, stages = request.param
    path = write(tmp_path_factory.mktemp("mtp") / "tiny", family)
    options = Options(
        str(path), stages=stages, context=256, parallel=3, chunk=64, threads=1, device="cpu", invariant=True
    )
    with open_local(place(options)) as opened:
        yield opened


def rows(rank0: Rank0, drafting: Drafting | None, number: int) -> list[list[bytes]]:
    """Every sequence's rows of logits that chose a token."""
    chooser = Chooser()
    loop = rank0.loop(chooser, drafting=drafting)
    for index, tokens in enumerate(PROMPTS):
        loop.scheduler.add(Sequence(number + index, tokens, STEPS))
    while not loop.scheduler.idle:
        loop.step()
    return [chooser.rows[number + index][:STEPS] for index in range(len(PROMPTS))]


class Known:
    """Guesses the reply as it was without drafts, wrong at every third token."""

    priors = (0.99,)

    def __init__(self, replies: list[list[int]], first_id: int) -> None:
        self._replies, self._first = replies, first_id

    def behind(self, _sequence: Sequence) -> int:
        return 0

    def observe(self, sequence: Sequence) -> None: ...

    def propose(self, sequence: Sequence) -> Iterator[Guess]:
        reply = self._replies[sequence.id - self._first]
        for at in range(len(sequence.produced), len(reply)):
            yield Guess(reply[at] if at % 3 else (reply[at] + 1) % 320, 0)

    def ahead(self, _sequence: Sequence) -> bool:
        return False

    def forget(self, sequence_id: int) -> None: ...

    def close(self) -> None: ...


@pytest.mark.timeout(240)
def test_the_same_bits_as_without(rank0: Rank0) -> None:
    expected = rows(rank0, None, 0)
    replies = [[int(np.frombuffer(row, np.float32).argmax()) for row in reply] for reply in expected]
    known = free(Drafting(Known(replies, 500), stages=rank0.placement.layout.world))
    assert rows(rank0, known, 500) == expected
    assert known.figures.guesses > known.figures.right > 0
    for number, kind in enumerate((DraftKind.NGRAM, DraftKind.MTP), 6):
        with open_drafting(DraftOptions(kind), rank0.placement, rank0.stage.engine) as opened:
            assert opened is not None
            drafting = free(opened)
            assert rows(rank0, drafting, 100 * number) == expected, kind
            assert drafting.figures.guesses or kind is DraftKind.NGRAM


class Rows:
    """A whole model's rows of a text, and what transformers' own model says of it."""

    def __init__(self, path: Path, family: str) -> None:
        self.engine = TorchEngine(place(Options(str(path), 1, threads=1, device="cpu")).whole_config(), pack=False)
        self.engine.load()
        self.tokens = prompt(3, 12)
        boundary, count = self.engine.boundary, len(self.tokens)
        rows = bytearray(boundary.row_bytes() * count)
        self.engine.embed(self.tokens, memoryview(rows))
        self.engine.take_tokens(self.tokens)
        out = memoryview(bytearray(len(rows)))
        self.engine.forward([Span(0, 0, count)], memoryview(rows), out)
        self.taken = bytes(side_by_side(out, count, boundary.planes)[: boundary.row_bytes() * 11])
        self.whole, self.weights = load_model(path, family), load_file(path / "model-mtp.safetensors")
        self.embedded = self.whole.model.embed_tokens(torch.tensor([self.tokens]))[:, 1:]

    def filled(self, module: torch.nn.Module, name: str) -> torch.nn.Module:
        """A module of transformers with the head's own weights."""
        prefix = f"mtp.{name}."
        names = {key.removeprefix(prefix): value for key, value in self.weights.items() if key.startswith(prefix)}
        module.to(torch.bfloat16).load_state_dict(names)
        return module

    def product(self, rows: torch.Tensor, name: str) -> torch.Tensor:
        return torch.nn.functional.linear(rows, self.weights[f"mtp.{name}.weight"])

    def agree(self, last: torch.Tensor) -> None:
        """The engine's head says the same of the text, with about the same probability."""
        token, share = self.engine.next_token_head().take(0, self.taken, self.tokens[1:])
        shares = self.whole.lm_head(last).float().softmax(-1)[0]
        assert token == int(shares.argmax())
        assert share == pytest.approx(float(shares.max()), rel=1e-3)
        self.engine.close()


def own_config(family: str) -> Any:
    config = FAMILIES[family]()
    config.layer_types, config._attn_implementation = ["full_attention"], "sdpa"
    return config


def test_the_head_s_guess_is_that_of_transformers_modules(tmp_path: Path) -> None:
    """Qwen3.5's, worked out by hand from the same weights."""
    rows, config = Rows(write(tmp_path, "qwen3_5"), "qwen3_5"), own_config("qwen3_5")

    def norm(name: str, values: torch.Tensor) -> torch.Tensor:
        return rows.filled(Qwen3_5RMSNorm(config.hidden_size, eps=config.rms_norm_eps), name)(values)

    with torch.inference_mode():
        normed = rows.whole.model(torch.tensor([rows.tokens])).last_hidden_state[:, :11]
        both = [norm("pre_fc_norm_embedding", rows.embedded), norm("pre_fc_norm_hidden", normed)]
        given = rows.product(torch.cat(both, dim=-1), "fc")
        positions = torch.arange(1, 12)[None]
        cosines = rows.whole.model.rotary_emb(given, positions)
        layer = rows.filled(Qwen3_5DecoderLayer(config, 0), "layers.0")
        output = layer(given, position_embeddings=cosines, attention_mask=None, position_ids=positions)
        rows.agree(norm("norm", output)[:, -1])


def test_the_head_s_guess_over_several_streams(tmp_path: Path) -> None:
    """Flash-Next's, likewise: rows are the streams before the model's own mixer."""
    rows, config = Rows(write(tmp_path, "qwen4_exp"), "qwen4_exp"), own_config("qwen4_exp")
    config.ple_layer_ids = []
    width, planes, eps = config.hidden_size, config.hc_count, config.rms_norm_eps
    with torch.inference_mode():
        streams = torch.frombuffer(bytearray(rows.taken), dtype=torch.bfloat16).view(1, 11, planes * width)
        mixed = rows.whole.model.hyper_connection_mixer(streams)
        assert torch.equal(mixed, rows.whole.model(torch.tensor([rows.tokens])).last_hidden_state[:, :11])
        token = rows.filled(Qwen4ExpTextRMSNorm(width, eps=eps), "pre_fc_norm_embedding")(rows.embedded)
        normed = rows.filled(Qwen4ExpTextRMSNorm(planes * width, eps=eps), "pre_fc_norm_hidden")(streams)
        row = rows.product(normed.view(1, 11, planes, width), "fc_hidden")
        given = (rows.product(token, "fc_embedding")[:, :, None] + row).view(1, 11, -1)
        cosines = rows.whole.model.rotary_emb(given, torch.arange(11)[None])
        layer = rows.filled(Qwen4ExpTextDecoderLayer(config, 0), "layers.0")
        mask = torch.ones(11, 11, dtype=torch.bool).tril()[None, None]
        output = layer(given, position_embeddings=cosines, attention_mask=mask)
        mixer = rows.filled(Qwen4ExpTextGatedResidual(config, use_combine=False), "hyper_connection_mixer")
        rows.agree(mixer(output)[:, -1])


@pytest.mark.timeout(240)
def test_check_repeats_drafted_rounds_on_the_whole_model(rank0: Rank0) -> None:
    with open_drafting(DraftOptions(DraftKind.MTP), rank0.placement, rank0.stage.engine) as drafting:
        assert drafting is not None
        comparison = check(rank0, PROMPTS, 8, drafting=free(drafting))
    assert comparison.steps == comparison.equal_steps == 8 * len(PROMPTS)
    assert np.isfinite(comparison.max_abs_diff)


def test_refused(tmp_path: Path) -> None:
    plain = write_model(tmp_path, "llama", torch.bfloat16)
    with pytest.raises(ValueError, match="mtp reads the rows that come back to rank 0; it needs two stages or more"):
        check_draft(DraftOptions(DraftKind.MTP), place(Options(str(plain), 1)))
    engine = TorchEngine(place(Options(str(plain), 1, threads=1, device="cpu")).whole_config())
    engine.load()
    with pytest.raises(Exception, match="models of the family llama have no next-token head"):
        engine.next_token_head()

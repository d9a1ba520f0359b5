"""A model's own next-token head, and n-grams, on real rings: the same bits as without, states right after rollbacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch (extra torch) is not installed")
pytest.importorskip("transformers", reason="transformers (extra torch) is not installed")

import torch
from safetensors.torch import load_file
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm

from engines.torch.stages import prompt
from engines.torch.test_invariant import Chooser
from engines.torch.tiny_models import FAMILIES, load_model, write_model, write_next_token_head
from ropeway.engines.base import Span
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


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_model(tmp_path_factory.mktemp("mtp") / "tiny", "qwen3_5", torch.bfloat16)
    write_next_token_head(path, "qwen3_5", torch.bfloat16)
    return path


@pytest.fixture(scope="module", params=[2, 3])
def rank0(request: pytest.FixtureRequest, model: Path) -> Iterator[Rank0]:
    options = Options(
        str(model), stages=request.param, context=256, parallel=3, chunk=64, threads=1, device="cpu", invariant=True
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


def test_the_head_s_guesses_are_those_of_the_model_s_own_rows(model: Path) -> None:
    """Its first guess, worked out by hand from the same weights with transformers' own modules."""
    config = place(Options(str(model), 1, threads=1, device="cpu")).whole_config()
    engine = TorchEngine(config, pack=False)
    engine.load()
    head = engine.next_token_head()
    whole, weights = load_model(model, "qwen3_5"), load_file(model / "model-mtp.safetensors")
    tokens = prompt(3, 12)
    with torch.inference_mode():
        # hidden_states has the embeddings, then the layers' outputs, the last of them behind the final norm.
        inside = whole.model.embed_tokens(torch.tensor([tokens]))
        size = engine.boundary.row_bytes()
        rows = bytearray(size * len(tokens))
        engine.embed(tokens, memoryview(rows))
        out = memoryview(bytearray(len(rows)))
        engine.forward([Span(0, 0, len(tokens))], memoryview(rows), out)
        token, share = head.take(0, bytes(out[: size * 11]), tokens[1:])
        normed = whole.model(torch.tensor([tokens])).last_hidden_state[:, :11]
        own = FAMILIES["qwen3_5"]()
        own.layer_types, own._attn_implementation = ["full_attention"], "sdpa"
        layer = Qwen3_5DecoderLayer(own, 0).to(torch.bfloat16)
        names = {name.removeprefix("mtp.layers.0."): value for name, value in weights.items() if ".layers.0." in name}
        layer.load_state_dict(names)

        def norm(name: str, values: torch.Tensor) -> torch.Tensor:
            module = Qwen3_5RMSNorm(own.hidden_size, eps=own.rms_norm_eps).to(torch.bfloat16)
            module.load_state_dict({"weight": weights[f"mtp.{name}.weight"]})
            return module(values)

        both = torch.cat([norm("pre_fc_norm_embedding", inside[:, 1:]), norm("pre_fc_norm_hidden", normed)], dim=-1)
        given = torch.nn.functional.linear(both, weights["mtp.fc.weight"])
        positions = torch.arange(1, 12)[None]
        cosines = whole.model.rotary_emb(given, positions)
        output = norm("norm", layer(given, position_embeddings=cosines, attention_mask=None, position_ids=positions))
        shares = whole.lm_head(output[:, -1]).float().softmax(-1)[0]
    assert token == int(shares.argmax())
    assert share == pytest.approx(float(shares.max()), rel=1e-3)
    engine.close()


@pytest.mark.timeout(240)
def test_check_repeats_drafted_rounds_on_the_whole_model(rank0: Rank0) -> None:
    with open_drafting(DraftOptions(DraftKind.MTP), rank0.placement, rank0.stage.engine) as drafting:
        assert drafting is not None
        comparison = check(rank0, PROMPTS, 8, drafting=free(drafting))
    assert comparison.steps == comparison.equal_steps == 8 * len(PROMPTS)
    assert np.isfinite(comparison.max_abs_diff)


def test_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mtp reads the rows that come back to rank 0; it needs two stages or more"):
        check_draft(DraftOptions(DraftKind.MTP), place(Options(str(model), 1)))
    plain = write_model(tmp_path, "llama", torch.bfloat16)
    engine = TorchEngine(place(Options(str(plain), 1, threads=1, device="cpu")).whole_config())
    engine.load()
    with pytest.raises(Exception, match="models of the family llama have no next-token head"):
        engine.next_token_head()

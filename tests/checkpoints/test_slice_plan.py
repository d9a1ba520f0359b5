"""The recipe of a slice: what is held, renamed, replaced by zeros and left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_file import GgufFile, TensorInfo
from ropeway.checkpoints.gguf_values import GgufScalar, Metadata, ValueType, array_field
from ropeway.checkpoints.slice_plan import Fill, PlannedTensor, SliceKind, SlicePlan, plan_slice
from tiny_gguf import VOCABULARY, TinyModel, write_tiny

LAYERS = 5


def open_tiny(directory: Path, model: TinyModel) -> GgufFile:
    return GgufFile.open(write_tiny(directory / "tiny.gguf", model))


def by_name(plan: SlicePlan) -> dict[str, PlannedTensor]:
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    assert len(tensors) == len(plan.tensors)
    return tensors


def layer_numbers(plan: SlicePlan) -> set[int]:
    return {int(name.split(".")[1]) for name in by_name(plan) if name.startswith("blk.")}


MODELS = [
    TinyModel("llama", LAYERS, rope_factors=True),
    TinyModel("llama", LAYERS, experts=4),
    TinyModel("qwen2", LAYERS, tied=True),
    TinyModel("qwen3", LAYERS),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_stages_cover_every_layer_once(tmp_path: Path, model: TinyModel) -> None:
    gguf = open_tiny(tmp_path, model)
    for cut in range(1, LAYERS):
        held = []
        for first, end in ((0, cut), (cut, LAYERS)):
            plan = plan_slice(gguf, first, end, head=False)
            last = end == LAYERS
            assert plan.kind is (SliceKind.LAST if last else SliceKind.STAGE)
            assert layer_numbers(plan) == set(range(end - first + (not last)))
            assert plan.fields[f"{model.architecture}.block_count"].decode() == end - first + (not last)
            held += [tensor.source for tensor in plan.tensors if tensor.source.startswith("blk.")]
            for tensor in plan.tensors:
                if tensor.source.startswith("blk."):
                    layer, rest = tensor.source.split(".", 2)[1:]
                    assert tensor.name == f"blk.{int(layer) - first}.{rest}"
                    assert (tensor.type, tensor.shape) == (
                        gguf.tensors[tensor.source].type,
                        gguf.tensors[tensor.source].shape,
                    )
        assert sorted(held) == sorted(name for name in gguf.tensors if name.startswith("blk."))


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_the_extra_layer_has_zeros_and_norms_of_one(tmp_path: Path, model: TinyModel) -> None:
    gguf = open_tiny(tmp_path, model)
    plan = plan_slice(gguf, 1, 3, head=False)
    extra = {name: tensor for name, tensor in by_name(plan).items() if name.startswith("blk.2.")}
    assert len(extra) == sum(name.startswith("blk.0.") for name in gguf.tensors)
    for name, tensor in extra.items():
        assert tensor.shape == gguf.tensors[name].shape
        assert tensor.fill is (Fill.ONES if name.endswith("norm.weight") else Fill.ZEROS)
        assert tensor.type is (GgmlType.F32 if len(tensor.shape) == 1 else GgmlType.Q4_0)


def test_a_wide_feed_forward_that_never_runs_takes_the_smallest_type(tmp_path: Path) -> None:
    gguf = open_tiny(tmp_path, TinyModel(layers=2, width=256, feed_forward=512))
    extra = by_name(plan_slice(gguf, 0, 1, head=False))
    assert extra["blk.1.ffn_up.weight"].type is GgmlType.IQ1_S
    assert extra["blk.1.attn_q.weight"].type is GgmlType.Q4_0


def test_a_stage_has_no_vocabulary(tmp_path: Path) -> None:
    gguf = open_tiny(tmp_path, TinyModel("qwen3", LAYERS))
    plan = plan_slice(gguf, 2, 4, head=False)
    values = {key: field.decode() for key, field in plan.fields.items()}
    assert values["qwen3.block_count"] == 3
    assert values["qwen3.vocab_size"] == 32
    assert values["tokenizer.ggml.model"] == "none"
    assert not {key for key in values if key.startswith("tokenizer.")} - {"tokenizer.ggml.model"}
    kept = {key for key in gguf.metadata if key.startswith("qwen3.")} - {"qwen3.block_count", "qwen3.vocab_size"}
    assert {key: values[key] for key in kept} == {key: gguf.metadata[key] for key in kept}
    tensors = by_name(plan)
    assert tensors["token_embd.weight"] == PlannedTensor("token_embd.weight", GgmlType.Q4_0, (64, 32), Fill.ZEROS)
    assert tensors["output_norm.weight"].fill is Fill.ONES
    assert "output.weight" not in tensors


@pytest.mark.parametrize("tied", [False, True])
def test_the_tail_and_the_head_hold_the_output_matrix_once(tmp_path: Path, tied: bool) -> None:
    gguf = open_tiny(tmp_path, TinyModel("qwen2", LAYERS, tied=tied))
    for first, kind in ((3, SliceKind.TAIL), (LAYERS, SliceKind.HEAD)):
        plan = plan_slice(gguf, first, LAYERS, head=True)
        tensors = by_name(plan)
        assert plan.kind is kind
        assert tensors["token_embd.weight"].source == ("token_embd.weight" if tied else "output.weight")
        assert tensors["output_norm.weight"].source == "output_norm.weight"
        assert "output.weight" not in tensors
        assert layer_numbers(plan) == (set(range(2)) if kind is SliceKind.TAIL else {0})
        architecture = plan.fields["general.architecture"].decode()
        assert plan.fields[f"{architecture}.vocab_size"].decode() == VOCABULARY


def test_the_head_alone_is_a_narrow_llama(tmp_path: Path) -> None:
    gguf = open_tiny(tmp_path, TinyModel("qwen3", LAYERS))
    plan = plan_slice(gguf, LAYERS, LAYERS, head=True)
    values = {key: field.decode() for key, field in plan.fields.items()}
    assert values["general.architecture"] == "llama"
    assert values["llama.block_count"] == values["llama.attention.head_count"] == 1
    assert values["llama.attention.layer_norm_rms_epsilon"] == gguf.metadata["qwen3.attention.layer_norm_rms_epsilon"]
    assert by_name(plan)["blk.0.ffn_down.weight"].shape == (32, 64)


def test_shared_tensors_go_to_every_stage(tmp_path: Path) -> None:
    gguf = open_tiny(tmp_path, TinyModel(rope_factors=True))
    assert by_name(plan_slice(gguf, 0, 2, head=False))["rope_freqs.weight"].source == "rope_freqs.weight"
    assert "rope_freqs.weight" in by_name(plan_slice(gguf, 2, LAYERS, head=True))
    assert "rope_freqs.weight" not in by_name(plan_slice(gguf, LAYERS, LAYERS, head=True))


def with_array(gguf: GgufFile, key: str, values: list[GgufScalar]) -> GgufFile:
    fields = gguf.metadata.fields | {key: array_field(ValueType.UINT32, values)}
    return replace(gguf, metadata=Metadata("tiny.gguf", fields))


def test_arrays_with_an_item_a_layer_are_cut(tmp_path: Path) -> None:
    gguf = with_array(open_tiny(tmp_path, TinyModel()), "llama.attention.head_count_kv", [1, 2, 4, 2, 1])
    stage = plan_slice(gguf, 1, 3, head=False).fields["llama.attention.head_count_kv"]
    assert stage.decode() == [2, 4, 4]
    for head in (False, True):
        last = plan_slice(gguf, 3, LAYERS, head).fields["llama.attention.head_count_kv"]
        assert last.decode() == [2, 1]


@pytest.mark.parametrize(
    ("key", "values"), [("llama.attention.head_count_kv", [2] * 4), ("llama.rope.dimension_sections", [8] * 5)]
)
def test_arrays_that_we_cannot_cut_are_refused(tmp_path: Path, key: str, values: list[GgufScalar]) -> None:
    gguf = with_array(open_tiny(tmp_path, TinyModel()), key, values)
    with pytest.raises(CheckpointError, match=f"the array {key} cannot be cut by layers yet"):
        plan_slice(gguf, 0, 2, head=False)


@pytest.mark.parametrize(("first", "end", "head"), [(-1, 2, False), (0, 6, False), (3, 2, False), (2, 2, False)])
def test_ranges_outside_the_model_are_refused(tmp_path: Path, first: int, end: int, head: bool) -> None:
    with pytest.raises(CheckpointError, match=f"layers {first}..{end} are not a range of the model's 5 layers"):
        plan_slice(open_tiny(tmp_path, TinyModel()), first, end, head)


@pytest.mark.parametrize("end", [2, 3])
def test_the_head_stands_behind_the_last_layer(tmp_path: Path, end: int) -> None:
    with pytest.raises(CheckpointError, match=f"the head stands behind layer 5, not behind layer {end}"):
        plan_slice(open_tiny(tmp_path, TinyModel()), 2, end, head=True)


@pytest.mark.parametrize("name", ["blk.5.attn_q.weight", "blk.01.attn_q.weight", "blk.x.attn_q.weight", "blk.1"])
def test_tensors_of_no_layer_are_refused(tmp_path: Path, name: str) -> None:
    gguf = open_tiny(tmp_path, TinyModel())
    odd = TensorInfo(name, GgmlType.F32, (64,), 0, 256)
    with pytest.raises(CheckpointError, match=f"tensor {name} belongs to no layer"):
        plan_slice(replace(gguf, tensors=gguf.tensors | {name: odd}), 0, 2, head=False)


def test_a_layer_that_lacks_a_tensor_is_refused(tmp_path: Path) -> None:
    gguf = open_tiny(tmp_path, TinyModel())
    rest = {name: info for name, info in gguf.tensors.items() if name != "blk.3.ffn_up.weight"}
    with pytest.raises(CheckpointError, match="layer 3 does not have the same tensors as layer 0"):
        plan_slice(replace(gguf, tensors=rest), 0, 2, head=False)

"""Which tensors are sampled, and where: by the header alone, every kind, few of them, and the same for everybody."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ropeway.checkpoints.samples import ALIGNMENT, MOST, SAMPLE_BYTES, Sample, choose_samples, kind_of

parts = st.sampled_from(["blk", "attn", "ffn", "weight", "experts", "0", "1", "10", "007", "9" * 12])
names = st.lists(parts, min_size=1, max_size=4).map(".".join)
sizes = st.dictionaries(names, st.integers(0, 2000), max_size=80)


@given(sizes, st.randoms(use_true_random=False))
def test_samples(sizes: dict[str, int], rng: random.Random) -> None:
    found = choose_samples(sizes.items())
    shuffled = list(sizes.items())
    rng.shuffle(shuffled)
    assert choose_samples(shuffled) == found
    assert len({sample.name for sample in found}) == len(found) <= MOST
    for sample in found:
        size = sizes[sample.name]
        assert sample.start % ALIGNMENT == 0
        assert 0 < sample.nbytes <= SAMPLE_BYTES
        assert sample.start + sample.nbytes <= size
        assert sample.nbytes == SAMPLE_BYTES or sample.start + sample.nbytes == size
    kinds = {kind_of(name) for name, size in sizes.items() if size}
    sampled = {kind_of(sample.name) for sample in found}
    assert sampled == kinds or len(found) == MOST


def test_the_middle_the_last_and_the_first_layer_of_each_kind() -> None:
    """Layers in the order of their numbers, not of their letters; tensors without a number once."""
    sizes = {f"blk.{layer}.{name}.weight": 1000 for layer in range(12) for name in ("attn_q", "ffn_up")}
    found = [sample.name for sample in choose_samples([*sizes.items(), ("token_embd.weight", 90_000)])]
    # ffn_up and attn_q have 12,000 bytes each: after the embeddings, by name.
    assert found == [
        "token_embd.weight",
        *("blk.6.attn_q.weight", "blk.6.ffn_up.weight"),
        *("blk.11.attn_q.weight", "blk.11.ffn_up.weight"),
        *("blk.0.attn_q.weight", "blk.0.ffn_up.weight"),
    ]


def test_experts_are_one_kind() -> None:
    sizes = [(f"model.layers.{n}.mlp.experts.{e}.up_proj.weight", 640) for n in range(4) for e in range(3)]
    assert [sample.name for sample in choose_samples(sizes)] == [
        "model.layers.2.mlp.experts.0.up_proj.weight",
        "model.layers.3.mlp.experts.2.up_proj.weight",
        "model.layers.0.mlp.experts.0.up_proj.weight",
    ]


def test_of_more_kinds_than_are_sampled_the_largest() -> None:
    found = choose_samples((f"kind{n}.{layer}", 100 + n) for n in range(40) for layer in range(2))
    assert [sample.name for sample in found] == [f"kind{n}.1" for n in range(39, 7, -1)]


def test_where_a_sample_lies() -> None:
    # 1000 // 2 = 500, down to a multiple of 64: 448. 300 // 2 = 150, 128, and the tensor ends 172 bytes on.
    sizes = {"a": 1000, "b": 300, "c": 257, "d": 256, "e": 1, "f": 0}
    assert choose_samples(sizes.items()) == [
        Sample("a", 448, 256),
        Sample("b", 128, 172),
        Sample("c", 128, 129),
        Sample("d", 0, 256),
        Sample("e", 0, 1),
    ]


def test_what_is_a_number() -> None:
    assert kind_of("blk.12.attn_q.weight") == "blk.*.attn_q.weight"
    assert kind_of("h.3.experts.17.w1") == "h.*.experts.*.w1"
    assert kind_of("conv1d.0x1.1234567890.\u0663.") == "conv1d.0x1.1234567890.\u0663."

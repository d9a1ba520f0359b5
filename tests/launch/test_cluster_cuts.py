"""Who holds what in a cluster: by memory, by cores, those who were there before first, and what is missing."""

from __future__ import annotations

import pytest

from ropeway.checkpoints.checkpoint import Checkpoint, open_checkpoint
from ropeway.launch.cluster_cuts import Candidate, DoesNotFit, choose
from ropeway.launch.model_facts import model_facts
from ropeway.launch.placement import Options
from tiny_gguf import TinyModel, write_tiny

LAYERS = 6
CONTEXT = 256


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return open_checkpoint(write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf", TinyModel(layers=LAYERS)))


def node(name: str, limit_bytes: int = 1 << 40, cores: int = 4) -> Candidate:
    return Candidate(name * 8, name, {"limit_bytes": limit_bytes, "cores": cores})


def options(stages: int, cuts: tuple[int, ...] | None = None) -> Options:
    return Options("tiny", stages, cuts, context=CONTEXT, chunk=64)


def layers_bytes(checkpoint: Checkpoint, layers: int, *, ends: bool = True) -> int:
    """Enough for so many layers (and rank 0's ends), and not for one more."""
    model = model_facts(checkpoint.path, "tiny")
    one = model.layers[0].weights_bytes + model.layers[0].kv_row_bytes * CONTEXT
    return layers * one + one // 2 + 4 * 64 * model.row_bytes + ends * (model.embed_bytes + model.head_bytes)


def test_equal_nodes_get_equal_shares(checkpoint: Checkpoint) -> None:
    chosen = choose(checkpoint, options(3), [node("a"), node("b"), node("c"), node("d")])
    assert [one.label for one in chosen.nodes] == ["a", "b", "c"]
    assert chosen.cuts == (2, 4)


def test_no_more_stages_than_nodes(checkpoint: Checkpoint) -> None:
    assert choose(checkpoint, options(3), [node("a"), node("b")]).cuts == (3,)
    assert choose(checkpoint, options(3), [node("a")]).cuts == ()


def test_more_cores_get_more_layers(checkpoint: Checkpoint) -> None:
    assert choose(checkpoint, options(2), [node("a", cores=8), node("b", cores=4)]).cuts == (4,)


def test_a_small_node_gets_what_it_can_hold(checkpoint: Checkpoint) -> None:
    small = node("b", layers_bytes(checkpoint, 1, ends=False))
    assert choose(checkpoint, options(2), [node("a"), small]).cuts == (LAYERS - 1,)


def test_who_was_there_before_goes_first(checkpoint: Checkpoint) -> None:
    nodes = [node("a"), node("b", 1 << 41), node("c"), node("d")]
    assert [one.label for one in choose(checkpoint, options(2), nodes).nodes] == ["a", "b"]
    kept = choose(checkpoint, options(2), nodes, keep=[nodes[0].node, nodes[3].node])
    assert [one.label for one in kept.nodes] == ["a", "d"]


def test_who_failed_is_taken_only_where_the_others_cannot_hold_it(checkpoint: Checkpoint) -> None:
    nodes = [node("a"), node("b"), node("c")]
    kept = choose(checkpoint, options(2), nodes, keep=[nodes[1].node], avoid=[nodes[1].node])
    assert [one.label for one in kept.nodes] == ["a", "c"]
    fewer = choose(checkpoint, options(3), nodes, avoid=[nodes[1].node])
    assert [one.label for one in fewer.nodes] == ["a", "c"]
    limit = layers_bytes(checkpoint, 2)
    small = [node(name, limit) for name in "abc"]
    needed = choose(checkpoint, options(3), small, avoid=[small[1].node])
    assert [one.label for one in needed.nodes] == ["a", "c", "b"]


def test_more_nodes_than_asked_for_rather_than_none(checkpoint: Checkpoint) -> None:
    limit = layers_bytes(checkpoint, 2)
    chosen = choose(checkpoint, options(2), [node(name, limit) for name in "abcd"])
    assert len(chosen.nodes) == 3
    assert chosen.cuts == (2, 4)


def test_what_is_missing_is_told_with_the_nodes_labels(checkpoint: Checkpoint) -> None:
    limit = layers_bytes(checkpoint, 2)
    with pytest.raises(DoesNotFit, match="does not fit") as caught:
        choose(checkpoint, options(2), [node("a", limit), node("b", limit)])
    assert "aaaaaaaa" not in str(caught.value)


def test_cuts_that_were_given_stay(checkpoint: Checkpoint) -> None:
    nodes = [node("a"), node("b")]
    assert choose(checkpoint, options(2, (1,)), nodes).cuts == (1,)
    with pytest.raises(DoesNotFit, match="3 stages, and 2 nodes"):
        choose(checkpoint, options(3, (1, 2)), nodes)


def test_what_was_measured_counts_where_every_node_has_it(checkpoint: Checkpoint) -> None:
    def measured(one: Candidate, ms: float) -> Candidate:
        costs = {"decode": [ms, ms, 0.0], "prompt": [ms, ms, 0.0]}
        entry = {"name": "x", "limit_bytes": 1, "layers": {"*": costs}}
        return Candidate(one.node, one.label, {**one.facts, "calibration": entry})

    slow, quick = measured(node("a"), 2.0), measured(node("b"), 1.0)
    assert choose(checkpoint, options(2), [slow, quick]).cuts == (2,)
    assert choose(checkpoint, options(2), [slow, node("b")]).cuts == (3,)

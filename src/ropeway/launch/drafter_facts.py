"""What a model that drafts takes: memory, by its header alone, and milliseconds a guess, measured here."""

from __future__ import annotations

import time
from statistics import median
from typing import Final

from ropeway.checkpoints.checkpoint import open_checkpoint
from ropeway.checkpoints.demo import resolve_model
from ropeway.engines.base import EngineConfig, Span
from ropeway.engines.llamacpp.whole import WholeModel
from ropeway.launch.drafting import DraftKind, DraftOptions
from ropeway.launch.model_facts import model_facts
from ropeway.placement.cost import layer_state_bytes
from ropeway.placement.facts import KV_SHARE
from ropeway.placement.wanted import Wanted

DEPTH: Final = 64
"""Positions behind which a guess is timed."""
GUESSES: Final = 24


def drafter_bytes(draft: DraftOptions, context: int, streams: int) -> int:
    """Bytes of weights, keys and values (f16); 0 for drafters that are no model. Raises CheckpointError."""
    if draft.kind is not DraftKind.MODEL:
        return 0
    model = model_facts(resolve_model(draft.model))
    wanted = Wanted(context, streams)
    states = sum(
        layer_state_bytes(layer.kv_row_bytes, layer.state_bytes, KV_SHARE[wanted.kv], wanted) for layer in model.layers
    )
    return sum(layer.weights_bytes for layer in model.layers) + model.embed_bytes + model.head_bytes + states


def drafter_ms(draft: DraftOptions, threads: int, gpu_layers: int = -1) -> float:
    """Milliseconds of a guess (one row, its logits) on this machine; 0 for drafters that are no model.

    Raises CheckpointError, EngineError.
    """
    if draft.kind is not DraftKind.MODEL:
        return 0.0
    path = resolve_model(draft.model)
    layers = open_checkpoint(path).layers
    model = WholeModel(
        EngineConfig(
            str(path),
            0,
            layers,
            embed=True,
            head=True,
            context=DEPTH + GUESSES,
            parallel=1,
            chunk=DEPTH,
            threads=threads,
            gpu_layers=gpu_layers,
        )
    )
    try:
        model.forward([Span(0, 0, DEPTH)], [1] * DEPTH, [DEPTH - 1])
        times = []
        for at in range(DEPTH, DEPTH + GUESSES):
            started = time.perf_counter()
            model.forward([Span(0, at, 1)], [1], [0])
            times.append((time.perf_counter() - started) * 1e3)
        return median(times)
    finally:
        model.close()

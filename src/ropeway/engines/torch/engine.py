"""torch as an engine: layers of a safetensors directory, or of a GGUF, by transformers' own modules.

The whole model is a stage with every layer, the embeddings and the head. Rows leave in the dtype that the layers
compute in, unless the layout says otherwise; then they are converted here, at the edge.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ropeway.engines.base import NO_STATES, Capacities, EngineConfig, EngineError, Logits, Span
from ropeway.engines.cores import usable_cores
from ropeway.engines.torch.batch import make_batch
from ropeway.engines.torch.choices import backend_of, check_invariant, compute_dtype, device_of
from ropeway.engines.torch.edge import TORCH, Edge, Pinned
from ropeway.engines.torch.family import Family, family_of, layer_type
from ropeway.engines.torch.model import StageModel
from ropeway.engines.torch.mtp import MtpHead
from ropeway.engines.torch.recorded import Recorder, recorder_of
from ropeway.engines.torch.saving import dump_slot, load_slot
from ropeway.engines.torch.slot import Slot
from ropeway.engines.torch.sources import EMBEDDINGS, HEAD, Source, open_source
from ropeway.types import Boundary, EngineKind, KvDtype, RowDtype

_log = logging.getLogger("ropeway.torch")
_KV: Final = {RowDtype.F32: KvDtype.F32, RowDtype.F16: KvDtype.F16, RowDtype.BF16: KvDtype.BF16}


class TorchEngine:
    """Layers first..end of a checkpoint. Raises EngineError or CheckpointError when it cannot be loaded.

    Without `pack` matrices stay plain where they could be packed, without `four_bit` those that lie in 4 bits are made
    large; without `compact` layers are the library's own where there is one of ours. `recorder` is what records decode
    steps, in place of the device's own.
    """

    kind = EngineKind.TORCH

    def __init__(
        self,
        config: EngineConfig,
        *,
        pack: bool = True,
        four_bit: bool = True,
        compact: bool = True,
        recorder: Recorder | None = None,
    ) -> None:
        self._config = config
        self._recorder = recorder
        self._pack, self._four_bit, self._compact = pack, four_bit, compact
        self._source: Source = open_source(Path(config.model))
        self._family: Family = family_of(str(self._source.config.model_type))
        model = self._source.config
        self._device = device_of(config.device)
        self._row_dtype = compute_dtype(config, model)
        planes = self._family.planes(model)
        self.boundary = config.boundary or Boundary(int(model.hidden_size), planes, self._row_dtype)
        if (self.boundary.hidden, self.boundary.planes) != (int(model.hidden_size), planes):
            raise EngineError(
                f"boundary: the layout sends {self.boundary.planes} planes of {self.boundary.hidden} values, "
                f"this model has {planes} of {model.hidden_size}"
            )
        if config.invariant:
            check_invariant(self._device, self._row_dtype)
        if not 0 <= config.first < config.end <= int(model.num_hidden_layers):
            raise EngineError(f"layers {config.first}..{config.end} are not in this model of {model.num_hidden_layers}")
        staging = Pinned(self._device) if self._device.type == "cuda" else None
        self._edge = Edge(self.boundary, TORCH[self._row_dtype], self._device, staging)
        self.kv_dtype = _KV[self._row_dtype]
        self.backend = backend_of(self._device)
        layers = range(config.first, config.end)
        recurrent = any(layer_type(model, layer) == "linear_attention" for layer in layers)
        self.capacities = Capacities(
            chunk=config.chunk,
            max_rows=max(config.context, config.chunk),
            parallel=config.parallel,
            context=config.context,
            kv_rows=config.context * config.parallel,
            states=config.parallel if recurrent else NO_STATES,
        )
        self.weights_bytes = self._held_bytes(layers)
        self._model: StageModel | None = None
        self._slots: list[Slot] = []
        self._tokens: Sequence[int] = ()

    def load(self) -> None:
        """Map the stage's weights, pack its matrices, and run a row once."""
        config = self._config
        torch.set_num_threads(config.threads or usable_cores())
        with _named("could not be loaded"):
            self._model = StageModel(
                self._source,
                self._family,
                range(config.first, config.end),
                embed=config.embed,
                head=config.head,
                dtype=TORCH[self._row_dtype],
                device=self._device,
                invariant=config.invariant,
                pack=self._pack,
                four_bit=self._four_bit,
                compact=self._compact,
                recorder=self._recorder or recorder_of(self._device),
            )
        self._slots = [Slot(config.context) for _ in range(config.parallel)]
        self._say()
        self._warm()

    def _say(self) -> None:
        """What someone who chose the model or a flag should know."""
        config, model = self._config, self._loaded
        where = f"layers {config.first}..{config.end}"
        if model.kept_four:
            _log.info("%s: %d matrices stay in 4 bits", where, model.kept_four)
        if model.made_large:
            kind, device = self._row_dtype.label, self._device.type
            _log.warning(
                "%s: %d matrices in 4 bits are made large, to %s: torch has no 4-bit product for them in %s on %s",
                where, model.made_large, kind, kind, device,
            )  # fmt: skip
        if config.invariant and config.embed:
            _log.warning("what --invariant holds and costs: docs/exactness.md, The torch engine")

    @property
    def _loaded(self) -> StageModel:
        assert self._model is not None, "the engine is not loaded"
        return self._model

    def _warm(self) -> None:
        """Run one row, so that the first request does not pay for the first touch of every weight."""
        rows = memoryview(bytearray(self.boundary.row_bytes()))
        self.take_tokens([0])
        self.forward([Span(0, 0, 1)], rows, memoryview(bytearray(len(rows))))
        self.release(0)
        if self._config.head:
            self.head([Span(0, 0, 1)], rows, [0])

    def take_tokens(self, tokens: Sequence[int]) -> None:
        """The token ids of the next forward's rows, for families whose layers read them."""
        self._tokens = tokens

    def embed(self, tokens: Sequence[int], out: memoryview) -> None:
        """Write the embedding rows of `tokens` into `out`."""
        if not self._config.embed:
            raise EngineError("this stage was loaded without the embeddings")
        with torch.inference_mode():
            self._edge.write(self._loaded.embed(tokens), out)

    def forward(
        self, spans: Sequence[Span], rows: memoryview, out: memoryview, wanted: Sequence[int] | None = None
    ) -> None:
        """Run the layers; `out` gets the last layer's output rows, all or those `wanted`."""
        with torch.inference_mode(), _named("could not compute"):
            result = self._run(spans, rows)
            self._edge.write(result if wanted is None else result[:, list(wanted)], out)

    def forward_head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Run the layers and the head over the rows `wanted`."""
        if not self._config.head:
            raise EngineError("this stage does not hold the last layer and the head together")
        with torch.inference_mode(), _named("could not compute"):
            return self._logits(self._run(spans, rows)[:, list(wanted)])

    def head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Norm and output matrix over the rows `wanted` of a part."""
        if not self._config.head:
            raise EngineError("this stage was loaded without a head of its own")
        with torch.inference_mode(), _named("could not compute"):
            return self._logits(self._edge.read(rows, len(wanted)))

    def keep(self, slot: int, length: int) -> None:
        """Forget the slot's positions from `length` on."""
        with torch.inference_mode():
            self._slots[slot].keep(length)

    def release(self, slot: int) -> None:
        """Forget all of the slot."""
        self._slots[slot] = Slot(self._config.context)

    def save(self, slot: int) -> bytes:
        """The slot's state."""
        with torch.inference_mode():
            return dump_slot(self._slots[slot])

    def restore(self, slot: int, state: bytes) -> None:
        """Put a saved state into an empty slot."""
        with torch.inference_mode():
            self._slots[slot] = load_slot(state, self._config.context, self._device)

    def next_token_head(self) -> MtpHead:
        """The model's own next-token head, over the rows of the last layer. Raises EngineError or CheckpointError."""
        if not self._config.embed or not self._config.head:
            raise EngineError("draft: a next-token head needs the embeddings and the output matrix beside it")
        with _named("could not load the next-token head"):
            return MtpHead(
                self._loaded,
                TORCH[self.boundary.row_dtype],
                context=self._config.context + 64,
                parallel=self._config.parallel,
            )

    def close(self) -> None:
        """Let go of the weights and the states."""
        self._model = None
        self._slots = []

    def _run(self, spans: Sequence[Span], rows: memoryview) -> Tensor:
        model = self._loaded
        count = sum(span.rows for span in spans)
        for span in spans:
            if self._slots[span.slot].position != span.first:
                raise EngineError(
                    f"slot {span.slot} stands at position {self._slots[span.slot].position}, not at {span.first}"
                )
        tokens, self._tokens = self._tokens, ()
        if model.reads_tokens and len(tokens) != count:
            raise EngineError(f"layers of this stage read token ids; {len(tokens)} came for {count} rows")
        batch = make_batch(
            spans,
            self._slots,
            tokens if model.reads_tokens else (),
            self._device,
            recurrent=model.recurrent,
            invariant=self._config.invariant,
        )
        result = model.run(self._edge.read(rows, count), batch)
        for span in spans:
            self._slots[span.slot].end(span.first + span.rows)
        return result

    def _logits(self, rows: Tensor) -> Logits:
        if not rows.shape[1]:
            return np.empty((0, self._loaded.vocabulary), np.float32)
        logits: Logits = self._loaded.logits(rows).cpu().numpy()
        return logits

    def _held_bytes(self, layers: range) -> int:
        """A tied matrix counts once for each of its two uses."""
        matrix = (EMBEDDINGS if self._source.tied else HEAD).removesuffix("weight")
        prefixes = [f"layers.{layer}." for layer in layers]
        prefixes += [EMBEDDINGS.removesuffix("weight")] if self._config.embed else []
        prefixes += [f"{self._family.final_name}.", matrix] if self._config.head else []
        return sum(self._source.bytes_under(prefix) for prefix in prefixes)


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Turn torch's errors (memory, devices) into an EngineError."""
    try:
        yield
    except RuntimeError as error:
        raise EngineError(f"torch {what}: {str(error).splitlines()[0]}") from error

"""A stage's part of a model: transformers' own modules for its layers, loaded one by one, called one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.utils import logging

from ropeway.engines.base import EngineError
from ropeway.engines.torch import experts
from ropeway.engines.torch.attention import Attention
from ropeway.engines.torch.batch import Batch
from ropeway.engines.torch.by_stream import IndexedAttention, Mixer, TokenReader
from ropeway.engines.torch.caches import BatchCache
from ropeway.engines.torch.compact import CompactLayer, is_compact
from ropeway.engines.torch.family import Family, layer_type
from ropeway.engines.torch.packing import can_pack, keep_four, kept_four, replace_linears, replaced
from ropeway.engines.torch.recorded import Apart, ApartModule, Recorder, Recordings
from ropeway.engines.torch.slot import GRAIN
from ropeway.engines.torch.sources import EMBEDDINGS, HEAD, Source
from ropeway.engines.torch.tables import ShardedTable

_STRETCHED: Final = ("dynamic", "longrope")
"""RoPE whose frequencies depend on how long a stream is; streams of a batch share them here."""


class StageModel:
    """Layers first..end of `source`, with the embeddings and the head where asked. Raises CheckpointError.

    Without `pack` matrices stay plain where they could be packed, without `four_bit` those that lie in 4 bits are made
    large; without `compact` every layer is the library's own. `recorder` records decode steps.
    """

    def __init__(
        self,
        source: Source,
        family: Family,
        layers: range,
        *,
        embed: bool,
        head: bool,
        dtype: torch.dtype,
        device: torch.device,
        invariant: bool = False,
        pack: bool = True,
        four_bit: bool = True,
        compact: bool = True,
        recorder: Recorder | None = None,
    ) -> None:
        logging.set_verbosity_error()  # what it falls back to on a CPU is nobody's worry
        self.config = config = source.config
        self.family, self.source, self.dtype, self.device = family, source, dtype, device
        self._invariant = invariant
        self._compact = compact
        self._pack = pack and can_pack(device, dtype)
        self._four_bit = self._pack and four_bit
        self.kept_four = 0
        """Matrices that stay in 4 bits."""
        self.made_large = 0
        """Those that lie in 4 bits and were made larger, since torch has no product for them here."""
        attention = f"ropeway_{id(self):x}"
        config._attn_implementation = attention
        config._experts_implementation = experts.register() if invariant else "eager"
        self._apart = Apart()
        self._attention = Attention(attention, config, family.eager, self._apart, invariant=invariant)
        self._check_rope()
        self._rotary = family.rotary(config).to(device)
        self.planes = family.planes(config)
        self.width = int(config.hidden_size)
        self._types = {layer: layer_type(config, layer) for layer in layers}
        self.layers = {layer: self._layer(layer) for layer in layers}
        self._table = self._weight(EMBEDDINGS, self._table_shape(), self.dtype) if embed else None
        self._recordings = Recordings(self._run, self._apart, None if invariant else recorder)
        self._final: nn.Module | None = None
        self._head: nn.Module | None = None
        if head:
            self._final = self.filled(lambda: family.final(config), f"{family.final_name}.")
            self._head = self._output()

    @property
    def recurrent(self) -> bool:
        """Some layer of this stage keeps a state that cannot be cut."""
        return any(kind == "linear_attention" for kind in self._types.values())

    @property
    def reads_tokens(self) -> bool:
        """Some layer of this stage reads token ids."""
        return any(self.family.tokens(self.config, layer) for layer in self.layers)

    @property
    def vocabulary(self) -> int:
        """Rows of the output matrix."""
        return int(self.config.vocab_size)

    def embed(self, tokens: Sequence[int]) -> Tensor:
        """The rows of `tokens`, [1, n, planes * width]. Raises ValueError for an id outside the vocabulary."""
        assert self._table is not None
        if tokens and not 0 <= min(tokens) <= max(tokens) < self._table.shape[0]:
            raise ValueError(f"tokens: an id is outside the vocabulary of {self._table.shape[0]}")
        ids = torch.tensor([list(tokens)], dtype=torch.long, device=self.device)
        rows = functional.embedding(ids, self._table)
        if self.family.embed_scale is not None:
            rows = rows * torch.tensor(self.family.embed_scale(self.config)).to(rows.dtype)
        return rows.repeat(1, 1, self.planes) if self.planes > 1 else rows

    def run(self, rows: Tensor, batch: Batch) -> Tensor:
        """The layers over rows [1, n, planes * width]; played from a recording where the device has one."""
        return self._recordings(rows, batch)

    def _run(self, rows: Tensor, batch: Batch) -> Tensor:
        cache = BatchCache(batch)
        turned: dict[str, tuple[Tensor, Tensor]] = {}
        extra = {"ple_input_ids": batch.tokens} if batch.tokens is not None else {}
        for layer, module in self.layers.items():
            kind = self._types[layer]
            if kind not in turned:
                turned[kind] = self.turned(rows, batch.positions, kind)
            rows = module(
                rows,
                position_embeddings=turned[kind],
                attention_mask=None,
                position_ids=batch.positions,
                cache=cache,
                batch=batch,
                **extra,
            )
        return rows

    def logits(self, rows: Tensor) -> Tensor:
        """What the head makes of rows [1, n, planes * width]: [n, vocabulary], f32."""
        return self.project(self.normed(rows))

    def normed(self, rows: Tensor) -> Tensor:
        """Rows [1, n, planes * width] behind what stands before the output matrix: [1, n, width]."""
        assert self._final is not None
        output: Tensor = self._final(rows)
        return output

    def project(self, rows: Tensor) -> Tensor:
        """The output matrix over rows [1, n, width]: [n, vocabulary], f32."""
        assert self._head is not None
        output: Tensor = self._head(rows)[0].float()
        return output

    def turned(self, rows: Tensor, positions: Tensor, kind: str) -> tuple[Tensor, Tensor]:
        """Cosines and sines for positions [1, n] in layers of a kind, in the dtype of `rows`."""
        return self.family.rotate(self._rotary, rows, positions, kind)

    def filled(self, make: Callable[[], nn.Module], prefix: str) -> nn.Module:
        """A module made without memory and filled from the checkpoint, packed where that can be."""
        with torch.device("meta"):
            module = make()
        self._fill(module, prefix)
        if type(module) is nn.Linear:
            return replaced(module, pack=self._pack, invariant=self._invariant)
        replace_linears(module, pack=self._pack, invariant=self._invariant)
        return module.eval()

    def outside_layer(self, config: Any, prefix: str) -> nn.Module:
        """A layer with full attention that stands outside the model's own layers, under `prefix`."""
        return self._streamed(self.filled(lambda: self.family.layer(config, 0), prefix), 0, "full_attention")

    def _layer(self, layer: int) -> nn.Module:
        with torch.device("meta"):
            module = self.family.layer(self.config, layer)
        self._fill(module, f"layers.{layer}.")
        if self._compact and is_compact(module, self.config):
            return CompactLayer(
                module, self.config, layer, self._attention, pack=self._pack, invariant=self._invariant
            ).eval()
        replace_linears(module, pack=self._pack, invariant=self._invariant)
        return self._streamed(module, layer, self._types[layer]).eval()

    def _streamed(self, module: nn.Module, layer: int, kind: str) -> nn.Module:
        """With the parts put behind ours that see one stream at a time, or that choose experts."""
        experts = getattr(getattr(module, "mlp", None), "experts", None)
        if isinstance(experts, nn.Module):
            module.get_submodule("mlp").register_module("experts", ApartModule(experts, self._apart))
        for part in self.family.by_stream:
            inner = getattr(module, part, None)
            if isinstance(inner, nn.Module):
                module.register_module(part, self._by_stream(part, inner, layer, kind))
        return module

    def _by_stream(self, part: str, inner: nn.Module, layer: int, kind: str) -> nn.Module:
        match part:
            case "linear_attn":
                return Mixer(inner, layer, self._apart, lone=GRAIN - 1 if self._invariant else 0)
            case "ple":
                return TokenReader(inner, layer, self._apart)
            case _:
                positions = partial(self._all_positions, kind)
                return IndexedAttention(inner, positions, self._apart, invariant=self._invariant)

    def _all_positions(self, kind: str, count: int) -> tuple[Tensor, Tensor]:
        rows = torch.empty(0, dtype=self.dtype, device=self.device)
        return self.turned(rows, torch.arange(count, device=self.device)[None], kind)

    def _output(self) -> nn.Module:
        with torch.device("meta"):
            linear = nn.Linear(self.width, self.vocabulary, bias=False)
        name = EMBEDDINGS if self.source.tied else HEAD
        if self.source.in_four_bits(name):
            self._keep_four(linear, name)
        if kept_four(linear) is None:
            table = self._table if self.source.tied else None
            matrix = self._weight(name, linear.weight.shape, self.dtype) if table is None else table
            linear.weight = nn.Parameter(matrix, requires_grad=False)
        return replaced(linear, pack=self._pack, invariant=self._invariant)

    def _table_shape(self) -> torch.Size:
        return torch.Size((self.vocabulary, self.width))

    def _fill(self, module: nn.Module, prefix: str) -> None:
        """Put the checkpoint's weights in the place of meta ones, in the dtype that rows have here."""
        for name, child in list(module.named_modules()):
            inside = f"{prefix}{name}." if name else prefix
            if type(child) is nn.Embedding and (shards := self.source.shards(inside + "weight")):
                parent, _, leaf = name.rpartition(".")
                module.get_submodule(parent).register_module(leaf, ShardedTable(shards, child.weight.shape, self.dtype))
                continue
            if type(child) is nn.Linear and self.source.in_four_bits(inside + "weight"):
                self._keep_four(child, inside + "weight")
            for own, parameter in list(child.named_parameters(recurse=False)):
                if own == "weight" and kept_four(child) is not None:
                    continue
                dtype = torch.float32 if self._stays_float32(inside) else self.dtype
                weight = self._weight(inside + own, parameter.shape, dtype)
                child.register_parameter(own, nn.Parameter(weight, requires_grad=False))
            for own, buffer in list(child.named_buffers(recurse=False)):
                child.register_buffer(own, self._weight(inside + own, buffer.shape, buffer.dtype))

    def _keep_four(self, linear: nn.Linear, name: str) -> None:
        """Keep a matrix in the 4 bits that it lies in, where there is a product for it."""
        four = self.source.four_bit(name) if self._four_bit else None
        if four is not None and four.fits and four.values.shape == linear.weight.shape:
            keep_four(linear, four)
            self.kept_four += 1
        else:
            self.made_large += 1

    def _stays_float32(self, inside: str) -> bool:
        return inside.rstrip(".").rpartition(".")[2] in self.family.float32

    def _weight(self, name: str, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        weight = self.source.tensor(name, shape)
        return weight.to(self.device, dtype if weight.is_floating_point() else weight.dtype)

    def _check_rope(self) -> None:
        parameters = getattr(self.config, "rope_parameters", None) or {}
        nested = [value for value in parameters.values() if isinstance(value, dict)] or [parameters]
        for one in nested:
            if one.get("rope_type", "default") in _STRETCHED:
                raise EngineError(f"RoPE of the kind {one['rope_type']} cannot be run with several streams in a batch")

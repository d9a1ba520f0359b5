"""Tiny random GGUF models that llama.cpp really loads: the same model for the same arguments, down to the byte.

Width 64 unless told, 4 heads, 2 KV heads; a byte-level BPE vocabulary of 320 tokens with an end of turn; ChatML.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from ropeway.checkpoints.ggml_types import GgmlType
from ropeway.checkpoints.gguf_values import Field, GgufScalar, ValueType, array_field, scalar_field
from ropeway.checkpoints.gguf_write import OutTensor, encode_header, write_gguf

HEADS = 4
KV_HEADS = 2
VOCABULARY = 320
END_OF_TEXT, TURN_START, TURN_END = 0, 1, 2
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = (
    "t h",
    "th e",
    "i n",
    "a n",
    "an d",
    "e r",
    "o u",
    "Ġ the",
    "Ġ a",
    "h e",
    "l l",
    "he ll",
    "hell o",
    "Ġ w",
    "o r",
)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_NORMAL, _CONTROL, _UNUSED = 1, 3, 5
"""llama.cpp's token types."""


@dataclass(frozen=True, slots=True)
class TinyModel:
    """What varies. `type` is that of the matrices; `experts` (llama) makes a mixture of that many, 2 of them used."""

    architecture: str = "llama"
    layers: int = 5
    type: GgmlType = GgmlType.Q8_0
    tied: bool = False
    rope_factors: bool = False
    experts: int = 0
    width: int = 64
    feed_forward: int = 96
    seed: int = 0

    @property
    def head_size(self) -> int:
        """Values an attention head."""
        return self.width // HEADS


def write_tiny(path: Path, model: TinyModel | None = None) -> Path:
    """Write the model to `path`, which it gives back."""
    model = model or TinyModel()
    tensors = _tensors(model)
    with path.open("wb") as file:
        write_gguf(file, encode_header(_fields(model), tensors), tensors)
    return path


def vocabulary() -> list[str]:
    """The tokens by id: special ones, the 256 bytes as GPT-2 writes them, what the merges give, unused ones."""
    tokens = [*SPECIAL, *(_byte_text(byte) for byte in range(256)), *(merge.replace(" ", "") for merge in MERGES)]
    return tokens + [f"<|unused{number}|>" for number in range(VOCABULARY - len(tokens))]


def _byte_text(byte: int) -> str:
    """GPT-2's letter for a byte: itself where it can be seen, else the next one from U+0100 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = [value for value in range(256) if value not in seen]
    return chr(byte) if byte in seen else chr(0x100 + unseen.index(byte))


def _fields(model: TinyModel) -> dict[str, Field]:
    def number(value: int) -> Field:
        return scalar_field(ValueType.UINT32, value)

    def text(value: str) -> Field:
        return scalar_field(ValueType.STRING, value)

    tokens: list[GgufScalar] = list(vocabulary())
    used = len(SPECIAL) + 256 + len(MERGES)
    types: list[GgufScalar] = [_NORMAL] * VOCABULARY
    types[: len(SPECIAL)] = [_CONTROL] * len(SPECIAL)
    types[used:] = [_UNUSED] * (VOCABULARY - used)
    arch = model.architecture
    fields = {
        "general.architecture": text(arch),
        "general.type": text("model"),
        "general.name": text(f"tiny {arch} {model.seed}"),
        f"{arch}.block_count": number(model.layers),
        f"{arch}.context_length": number(2048),
        f"{arch}.embedding_length": number(model.width),
        f"{arch}.feed_forward_length": number(model.feed_forward),
        f"{arch}.attention.head_count": number(HEADS),
        f"{arch}.attention.head_count_kv": number(KV_HEADS),
        f"{arch}.attention.layer_norm_rms_epsilon": scalar_field(ValueType.FLOAT32, 1e-5),
        f"{arch}.rope.freq_base": scalar_field(ValueType.FLOAT32, 10000.0),
        f"{arch}.rope.dimension_count": number(model.head_size),
        f"{arch}.vocab_size": number(VOCABULARY),
        "general.quantization_version": number(2),
        "tokenizer.ggml.model": text("gpt2"),
        "tokenizer.ggml.pre": text("gpt-2"),
        "tokenizer.ggml.tokens": array_field(ValueType.STRING, tokens),
        "tokenizer.ggml.token_type": array_field(ValueType.INT32, types),
        "tokenizer.ggml.merges": array_field(ValueType.STRING, list(MERGES)),
        "tokenizer.ggml.bos_token_id": number(TURN_START),
        "tokenizer.ggml.eos_token_id": number(TURN_END),
        "tokenizer.ggml.add_bos_token": scalar_field(ValueType.BOOL, False),
        "tokenizer.chat_template": text(CHAT_TEMPLATE),
    }
    if model.experts:
        fields |= {f"{arch}.expert_count": number(model.experts), f"{arch}.expert_used_count": number(2)}
    return fields


def _tensors(model: TinyModel) -> list[OutTensor]:
    rng = np.random.default_rng(model.seed)
    kv = KV_HEADS * model.head_size
    width, feed_forward = model.width, model.feed_forward

    def matrix(name: str, row: int, *rest: int, kind: GgmlType = model.type) -> OutTensor:
        values = rng.standard_normal((*reversed(rest), row), np.float32) / np.float32(np.sqrt(row))
        return _tensor(name, kind, values)

    def vector(name: str, size: int, middle: float) -> OutTensor:
        return _tensor(name, GgmlType.F32, middle + rng.standard_normal(size, np.float32) / np.float32(4))

    tensors = [matrix("token_embd.weight", width, VOCABULARY), vector("output_norm.weight", width, 1.0)]
    if not model.tied:
        tensors.append(matrix("output.weight", width, VOCABULARY))
    if model.rope_factors:
        factors = np.linspace(1, 8, model.head_size // 2, dtype=np.float32)
        tensors.append(_tensor("rope_freqs.weight", GgmlType.F32, factors))
    for layer in range(model.layers):
        blk = f"blk.{layer}."
        tensors += [
            vector(blk + "attn_norm.weight", width, 1.0),
            matrix(blk + "attn_q.weight", width, width),
            matrix(blk + "attn_k.weight", width, kv),
            matrix(blk + "attn_v.weight", width, kv),
            matrix(blk + "attn_output.weight", width, width),
            vector(blk + "ffn_norm.weight", width, 1.0),
        ]
        if model.architecture == "qwen2":
            tensors += [
                vector(f"{blk}attn_{name}.bias", size, 0.0) for name, size in (("q", width), ("k", kv), ("v", kv))
            ]
        if model.architecture == "qwen3":
            tensors += [vector(f"{blk}attn_{name}_norm.weight", model.head_size, 1.0) for name in ("q", "k")]
        many, suffix = ((model.experts,), "_exps") if model.experts else ((), "")
        if model.experts:
            tensors.append(matrix(blk + "ffn_gate_inp.weight", width, model.experts, kind=GgmlType.F32))
        tensors += [
            matrix(f"{blk}ffn_gate{suffix}.weight", width, feed_forward, *many),
            matrix(f"{blk}ffn_up{suffix}.weight", width, feed_forward, *many),
            matrix(f"{blk}ffn_down{suffix}.weight", feed_forward, width, *many),
        ]
    return tensors


def _tensor(name: str, kind: GgmlType, values: npt.NDArray[np.float32]) -> OutTensor:
    raw = np.ascontiguousarray(quantize(values.astype(np.float32), GGMLQuantizationType(kind)))
    return OutTensor(name, kind, tuple(reversed(values.shape)), memoryview(raw.tobytes()))

"""A Llama GGUF as a checkpoint directory for torch and mlx: `python bench/converted.py MODEL DIRECTORY [--dtype bf16]`.

Weights are dequantized to f32 and then rounded to the dtype; with f32 the two hold the same numbers. The tokenizer is
the GGUF's own (byte-level BPE, digits apart, as SmolLM has it).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaForCausalLM

from ropeway.checkpoints.demo import resolve_model
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.engines.torch.gguf_source import GgufSource

DTYPES: Final = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_CONTROL: Final = 3
"""llama.cpp's LLAMA_TOKEN_TYPE_CONTROL."""


def convert(gguf: Path, to: Path, dtype: str = "f32") -> Path:
    """Write the directory."""
    to.mkdir(parents=True, exist_ok=True)
    source = GgufSource(gguf)
    with torch.device("meta"):
        shapes = LlamaForCausalLM(source.config).state_dict()
    weights = {
        name: source.tensor(name.removeprefix("model."), value.shape).to(DTYPES[dtype])
        for name, value in shapes.items()
        if not (source.tied and name == "lm_head.weight")
    }
    save_file(weights, str(to / "model.safetensors"), {"format": "pt"})
    values = source.config.to_dict() | {"architectures": ["LlamaForCausalLM"], "dtype": str(DTYPES[dtype])[6:]}
    (to / "config.json").write_text(json.dumps(values | ends(gguf)))
    write_tokenizer(gguf, to)
    return to


def ends(gguf: Path) -> dict[str, int]:
    """The ids that begin and end a text."""
    metadata = GgufFile.open(gguf).metadata
    return {name: metadata.integer(f"tokenizer.ggml.{name}") for name in ("bos_token_id", "eos_token_id")}


def write_tokenizer(gguf: Path, to: Path) -> None:
    """tokenizer.json, and its settings with the chat template."""
    metadata: Any = GgufFile.open(gguf).metadata
    tokens = [str(token) for token in metadata["tokenizer.ggml.tokens"]]
    merges = [(left, right) for left, _, right in (str(p).partition(" ") for p in metadata["tokenizer.ggml.merges"])]
    made = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    control = [number for number, kind in enumerate(metadata["tokenizer.ggml.token_type"]) if kind == _CONTROL]
    made.add_special_tokens([AddedToken(tokens[number], special=True) for number in control])
    made.save(str(to / "tokenizer.json"))
    settings = {name.removesuffix("_id"): tokens[number] for name, number in ends(gguf).items()}
    template = metadata.text("tokenizer.chat_template")
    (to / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": template}))


def main() -> None:
    """Convert a model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--dtype", choices=list(DTYPES), default="f32")
    a = parser.parse_args()
    print(convert(resolve_model(a.model), a.directory, a.dtype))


if __name__ == "__main__":
    main()

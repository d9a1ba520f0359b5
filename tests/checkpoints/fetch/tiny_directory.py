"""A tiny safetensors checkpoint as files in memory, in one file or in several with an index."""

from __future__ import annotations

import json
import random
import struct

LAYERS = 6
CONFIG = {"model_type": "llama", "num_hidden_layers": LAYERS, "hidden_size": 8, "num_attention_heads": 2}
TOKENIZER = b'{"version": "1.0"}'


def tensors(*, tied: bool = False, tensor_bytes: int = 40_000, prefix: str = "model.") -> dict[str, bytes]:
    """Each tensor's bytes by its name; some that belong to no layer of the text model among them."""
    names = [f"{prefix}embed_tokens.weight", "visual.blocks.0.attn.weight"]
    names += [f"{prefix}layers.{layer}.{part}.weight" for layer in range(LAYERS) for part in ("attn", "mlp")]
    names += [f"{prefix}norm.weight", "mtp.layers.0.mlp.weight"]
    names += [] if tied else ["lm_head.weight"]
    rng = random.Random(3)
    return {name: rng.randbytes(tensor_bytes) for name in names}


def encode(held: dict[str, bytes]) -> bytes:
    """One safetensors file."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, raw in held.items():
        header[name] = {"dtype": "BF16", "shape": [len(raw) // 2], "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(held.values())


def single(held: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a checkpoint without an index."""
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": TOKENIZER,
        "model.safetensors": encode(held),
    }


def sharded(held: dict[str, bytes], count: int = 3) -> dict[str, bytes]:
    """The files of a checkpoint in `count` parts with an index."""
    names = list(held)
    files = {"config.json": json.dumps(CONFIG).encode(), "tokenizer.json": TOKENIZER}
    where: dict[str, str] = {}
    for number in range(count):
        file = f"model-{number + 1:05d}-of-{count:05d}.safetensors"
        part = names[number * len(names) // count : (number + 1) * len(names) // count]
        files[file] = encode({name: held[name] for name in part})
        where |= dict.fromkeys(part, file)
    files["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": where}).encode()
    return files

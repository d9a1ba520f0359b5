"""Short names of models, as people know them, and where their GGUF files are."""

from __future__ import annotations

from typing import Final

MODELS: Final = {"llama3.2:1b": "hf:bartowski/Llama-3.2-1B-Instruct-GGUF:Llama-3.2-1B-Instruct-Q6_K.gguf"}
"""tinygrad's own table of names (tinygrad/apps/llm.py, 0.12.0) has the same file under this name."""


def find_model(name: str) -> str:
    """What stages load for `name`: itself where it is no short name."""
    return MODELS.get(name, name)

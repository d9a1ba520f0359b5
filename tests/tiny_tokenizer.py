"""A tokenizer.json for tests: byte-level BPE as the tiny GGUF models have it, with ChatML's control tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_gguf import CHAT_TEMPLATE, MERGES, SPECIAL


def _alphabet() -> list[str]:
    """GPT-2's characters for the 256 bytes, the bytes that can be shown first."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(byte) for byte in shown] + [chr(256 + index) for index in range(256 - len(shown))]


def recipe() -> dict[str, Any]:
    """The tokenizer's description."""
    words = [*SPECIAL, *_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, text in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {word: number for number, word in enumerate(words)},
            "merges": list(MERGES),
        },
    }


def write_tokenizer(path: Path) -> Path:
    """The files that a checkpoint directory has for its text, beside those that it has already."""
    (path / "tokenizer.json").write_text(json.dumps(recipe()))
    settings = {"bos_token": None, "eos_token": {"content": SPECIAL[2]}, "chat_template": CHAT_TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2]}))
    return path

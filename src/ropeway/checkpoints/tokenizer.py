"""A directory's tokenizer.json through the library `tokenizers`, and its chat template."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Final

from ropeway.checkpoints.directory import CONFIG, read_json, read_json_if_there
from ropeway.checkpoints.errors import CheckpointError

TOKENIZER = "tokenizer.json"
SETTINGS = "tokenizer_config.json"
GENERATION = "generation_config.json"
TURN_ENDS: Final = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|return|>", "<|call|>")
"""Control tokens that end a turn in every vocabulary that has them, as llama.cpp takes them too."""

_SPACE = "\u2581"


class DirectoryVocabulary:
    """The tokenizer of a checkpoint directory. Thread-safe. Raises CheckpointError where it cannot be used."""

    def __init__(self, path: Path) -> None:
        if importlib.util.find_spec("tokenizers") is None:
            raise CheckpointError(
                f"{path}: its text needs the library tokenizers, which is not installed: pip install 'ropeway[torch]'"
            )
        from tokenizers import Tokenizer

        file = path / TOKENIZER
        recipe = read_json(file)
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
            self._plain = Tokenizer.from_file(str(file))
        except Exception as error:
            raise CheckpointError(f"{file}: cannot be used: {error}") from error
        self._plain.encode_special_tokens = True
        settings = read_json_if_there(path / SETTINGS)
        config = read_json(path / CONFIG)
        text = config.get("text_config", config)
        added = {item["id"]: item for item in recipe.get("added_tokens", [])}
        self._control: dict[int, str] = {
            number: item["content"] for number, item in added.items() if item.get("special")
        }
        self._spelled: dict[int, str] = {
            number: item["content"] for number, item in added.items() if not item.get("special")
        }
        self._bytes = _byte_alphabet() if _is_byte_level(recipe) else None
        self.size = max(self._tokenizer.get_vocab_size(), text.get("vocab_size") or 0)
        self.bos, self.eos = _content(settings.get("bos_token")), _content(settings.get("eos_token"))
        self.end_tokens = self._end_tokens(path, config, text)
        first = self._tokenizer.encode("a").ids[:1]
        self.adds_bos = bool(self.bos) and first == [self._tokenizer.token_to_id(self.bos)]

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text`. `parse_special` reads control tokens such as <|im_end|> in the text as such."""
        tokenizer = self._tokenizer if parse_special else self._plain
        return list(tokenizer.encode(text, add_special_tokens=add_special).ids)

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes that `token` stands for; control tokens give none unless `special`."""
        if token in self._control:
            return self._control[token].encode() if special else b""
        if token in self._spelled:
            return self._spelled[token].encode()
        text: str | None = self._tokenizer.id_to_token(token)
        if text is None:
            return b""
        if self._bytes is not None:
            return bytes(self._bytes[character] for character in text if character in self._bytes)
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            return bytes([int(text[3:5], 16)])
        return text.replace(_SPACE, " ").encode()

    def close(self) -> None:
        """Nothing to free."""

    def _end_tokens(self, path: Path, config: dict[str, Any], text: dict[str, Any]) -> frozenset[int]:
        found: set[int] = set()
        for source in (read_json_if_there(path / GENERATION), config, text):
            value = source.get("eos_token_id")
            found |= {value} if isinstance(value, int) else set(value or ())
        control = {content: number for number, content in self._control.items()}
        found |= {control[name] for name in (self.eos, *TURN_ENDS) if name in control}
        return frozenset(number for number in found if isinstance(number, int) and 0 <= number < self.size)


def directory_template(path: Path) -> str:
    """The chat template of a checkpoint directory, empty where it has none. Raises CheckpointError."""
    file = path / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{file}: cannot be read: {error}") from error
    for name in ("chat_template.json", SETTINGS):
        template = read_json_if_there(path / name).get("chat_template")
        if isinstance(template, list):
            named = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
            template = named.get("default")
        if isinstance(template, str):
            return template
    return ""


def _content(token: Any) -> str:
    """A token of tokenizer_config.json: its text, or an object that holds it."""
    value = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else ""


def _is_byte_level(recipe: dict[str, Any]) -> bool:
    """The vocabulary's tokens spell bytes as GPT-2 does: its decoder, or one of several, says so."""
    decoder = recipe.get("decoder") or {}
    kinds = [decoder.get("type")] + [inner.get("type") for inner in decoder.get("decoders", [])]
    return "ByteLevel" in kinds


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes (openai/gpt-2, src/encoder.py, bytes_to_unicode), from character to byte."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    alphabet = {chr(byte): byte for byte in shown}
    return alphabet | {chr(256 + index): byte for index, byte in enumerate(hidden)}

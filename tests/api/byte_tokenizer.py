"""A tokenizer of bytes and a few words, small enough to reason about: what the API's tests stand on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

WORDS: Final = ("hello", " world", " the", '{"', '": ', "ST", "OP", "<tool_call>", "</tool_call>", "  ")
CONTROL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|python_tag|>")
FIRST_CONTROL: Final = 256
END_OF_TEXT, TURN_START, TURN_END, PYTHON_TAG = range(FIRST_CONTROL, FIRST_CONTROL + len(CONTROL))
FIRST_WORD: Final = FIRST_CONTROL + len(CONTROL)

CHATML: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class ByteTokenizer:
    """Ids 0..255 are bytes, then the control tokens, then words."""

    size = FIRST_WORD + len(WORDS)
    end_tokens = frozenset({END_OF_TEXT, TURN_END})

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Longest word first; control tokens by name where `parse_special`."""
        parts = re.split(f"({'|'.join(map(re.escape, CONTROL))})", text) if parse_special else [text]
        ids: list[int] = []
        for part in parts:
            control = parse_special and part in CONTROL
            ids += [FIRST_CONTROL + CONTROL.index(part)] if control else self._words(part)
        return ids

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of a token."""
        if token < FIRST_CONTROL:
            return bytes([token])
        if token < FIRST_WORD:
            return CONTROL[token - FIRST_CONTROL].encode() if special else b""
        return WORDS[token - FIRST_WORD].encode()

    def ids(self, text: str) -> list[int]:
        """Plain text as tokens."""
        return self.tokenize(text, add_special=False, parse_special=True)

    def _words(self, text: str) -> Iterator[int]:
        at = 0
        while at < len(text):
            word = max((word for word in WORDS if text.startswith(word, at)), key=len, default="")
            if word:
                yield FIRST_WORD + WORDS.index(word)
                at += len(word)
            else:
                yield from text[at].encode()
                at += 1

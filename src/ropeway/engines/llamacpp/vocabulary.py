"""Text to token ids and back, by llama.cpp's own tokenizer over a vocabulary-only load of the original GGUF."""

from __future__ import annotations

from pathlib import Path

from ropeway.engines.base import EngineError
from ropeway.engines.llamacpp import binding
from ropeway.engines.llamacpp.context import load_model


class Vocabulary:
    """The tokenizer of one GGUF. Safe to call from one thread at a time."""

    def __init__(self, path: Path) -> None:
        llama = binding.load()
        self._llama, self._ffi, self._lib = llama, llama.ffi, llama.lib
        self._model = load_model(path, vocab_only=True)
        self._vocab = self._lib.llama_model_get_vocab(self._model)
        self.size = int(self._lib.llama_vocab_n_tokens(self._vocab))
        self.end_tokens = frozenset(i for i in range(self.size) if self._lib.llama_vocab_is_eog(self._vocab, i))
        self.bos = self._token_text(self._lib.llama_vocab_bos(self._vocab))
        self.eos = self._token_text(self._lib.llama_vocab_eos(self._vocab))
        self.adds_bos = bool(self._lib.llama_vocab_get_add_bos(self._vocab))

    def _token_text(self, token: int) -> str:
        return self.piece(token, special=True).decode(errors="replace") if token >= 0 else ""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text`. `parse_special` reads control tokens such as <|im_end|> in the text as such."""
        data = text.encode()
        capacity = len(data) + 8
        tokens = self._ffi.new("llama_token[]", capacity)
        count = self._lib.llama_tokenize(self._vocab, data, len(data), tokens, capacity, add_special, parse_special)
        if count < 0:
            raise EngineError(f"llama.cpp could not tokenize {len(data)} bytes of text")
        return list(self._ffi.unpack(tokens, count)) if count else []

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes that `token` stands for; control tokens give none unless `special`."""
        size = 64
        while True:
            buffer = self._ffi.new("char[]", size)
            written = self._lib.llama_token_to_piece(self._vocab, token, buffer, size, 0, special)
            if written >= 0:
                return bytes(self._ffi.buffer(buffer, written))
            size = -written

    def close(self) -> None:
        """Free the vocabulary."""
        if self._model != self._ffi.NULL:
            self._lib.llama_model_free(self._model)
            self._model = self._ffi.NULL

"""Grammars as constraints on tokens, by llguidance: JSON Schema, Lark and GBNF in, masks over the vocabulary out.

Knows nothing of requests. Compiling may take a second: not for an event loop. A grammar that runs into llguidance's
limits while a reply is under way lets the reply end and says why in `GrammarConstraint.error`.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from llguidance.gbnf_to_lark import any_to_lark

from ropeway.serving.schemas import MAX_DEPTH, closed, depth
from ropeway.serving.service import Tokenizer

Json = Mapping[str, object]

MAX_GRAMMAR_BYTES: Final = 262_144
"""Of a whole grammar, schemas included."""

CACHED: Final = 32
"""Compiled grammars kept a model."""

WHITESPACE: Final = r"[ ]|\n[ ]{0,32}"
"""Between the tokens of JSON: a blank, or a new line and its indent. Without a bound a reply can be white for ever."""

JSON_OBJECT: Final[Json] = {"type": "object"}
ANY_JSON: Final[Json] = {}


class GrammarError(ValueError):
    """The grammar cannot be used; the text is for people."""


class GrammarConstraint:
    """One reply's state in a grammar. A `Constraint` (service.py)."""

    def __init__(self, matcher: LLMatcher, size: int, end_tokens: frozenset[int]) -> None:
        self._matcher = matcher
        self._size = size
        self._end_tokens = end_tokens
        self._bits = np.zeros((size + 31) // 32, dtype=np.int32)
        self.error = ""
        """Why the grammar could not be followed to its end; empty while it can."""

    def mask(self) -> npt.NDArray[np.bool_]:
        """Allowed tokens, [vocabulary], a fresh array."""
        if not self._failed():
            self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
            allowed = np.unpackbits(self._bits.view(np.uint8), bitorder="little")[: self._size].view(np.bool_)
            if not self._failed() and allowed.any():
                return allowed
        self.error = self.error or "the grammar allows no token here"
        ends = np.zeros(self._size, dtype=np.bool_)
        ends[list(self._end_tokens)] = True
        return ends

    def advance(self, token: int) -> None:
        """`token` was chosen."""
        if token not in self._end_tokens and not self._failed():
            self._matcher.consume_token(token)
            self._failed()

    def _failed(self) -> bool:
        if not self.error and self._matcher.is_error():
            self.error = _first_line(self._matcher.get_error())
        return bool(self.error)


class GrammarCompiler:
    """One model's grammars. Thread-safe. Making it takes a fifth of a second for 50,000 tokens, half of it with the GIL
    held, so it is made before anything is served."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._vocabulary = _vocabulary(tokenizer) if tokenizer.end_tokens else None
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()

    def constraint(self, grammar: str) -> GrammarConstraint:
        """A fresh constraint by a grammar from one of the functions below. Raises GrammarError."""
        if len(grammar.encode()) > MAX_GRAMMAR_BYTES:
            raise GrammarError(f"it has {len(grammar.encode())} bytes, at most {MAX_GRAMMAR_BYTES} are taken")
        with self._lock:
            if grammar not in self._compiled:
                self._compiled[grammar] = self._compile(grammar)
                if len(self._compiled) > CACHED:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(grammar)
            matcher = self._compiled[grammar].deep_copy()
        return GrammarConstraint(matcher, self._tokenizer.size, self._tokenizer.end_tokens)

    def literal(self, text: str) -> str:
        """`text` in Lark: the name of a control token where it is one, else a string."""
        ids = self._tokenizer.tokenize(text, add_special=False, parse_special=True)
        control = len(ids) == 1 and not self._tokenizer.piece(ids[0])
        return text if control and text[:1] == "<" and text[-1:] == ">" else json.dumps(text)

    def _compile(self, grammar: str) -> LLMatcher:
        if self._vocabulary is None:
            raise GrammarError("this model has no end-of-generation token, so no grammar can end")
        limits = LLParserLimits(
            verbose_errors=False,
            max_items_in_row=1000,
            step_max_items=20_000,
            step_lexer_fuel=100_000,
            max_lexer_states=50_000,
        )
        matcher = LLMatcher(self._vocabulary, grammar, log_level=0, limits=limits)
        first = matcher.deep_copy()
        if not first.is_error():
            first.compute_bitmask()  # the dearest step of many grammars, and where some prove to allow nothing
        if first.is_error():
            raise GrammarError(_first_line(first.get_error()))
        return matcher


def from_schema(schema: Json) -> str:
    """The grammar of a JSON Schema. Raises GrammarError for one that is nested too deep."""
    return from_parts({"schema": schema})


def from_text(text: str) -> str:
    """The grammar of Lark (llguidance's dialect) or GBNF (llama.cpp's). Raises GrammarError."""
    try:
        lark = any_to_lark(text)
    except Exception as error:  # noqa: BLE001 (of its own kind, plain ones, IndexError, RecursionError)
        raise GrammarError(f"it is neither Lark nor GBNF: {_first_line(str(error))}") from None
    return json.dumps({"grammars": [{"lark_grammar": lark}]})


def from_parts(schemas: Mapping[str, Json], lark: str = "") -> str:
    """Lark that refers to JSON Schemas as @name; without any Lark, the one schema."""
    grammars: list[object] = [{"name": "top", "lark_grammar": lark}] if lark else []
    for name, schema in schemas.items():
        if depth(schema) > MAX_DEPTH:
            raise GrammarError(f"it nests deeper than {MAX_DEPTH} levels")
        options = {"whitespace_pattern": WHITESPACE, "whitespace_flexible": True, "lenient": False}
        grammars.append({"name": name, "json_schema": {**closed(schema), "x-guidance": options}})
    return json.dumps({"grammars": grammars}, ensure_ascii=False)


class _Words:
    """A vocabulary in the shape that llguidance's wrapper wants."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        shown = [tokenizer.piece(token) for token in range(tokenizer.size)]
        self.tokens = [piece or tokenizer.piece(token, special=True) for token, piece in enumerate(shown)]
        self.special_token_ids = [token for token, piece in enumerate(shown) if not piece and self.tokens[token]]
        self.eos_token_id = min(tokenizer.end_tokens)
        self.bos_token_id = None

    def __call__(self, text: bytes | str) -> list[int]:
        words = text.decode(errors="replace") if isinstance(text, bytes) else text
        return self._tokenizer.tokenize(words, add_special=False, parse_special=False)


def _vocabulary(tokenizer: Tokenizer) -> LLTokenizer:
    wrapper = TokenizerWrapper(_Words(tokenizer))
    return LLTokenizer(wrapper, n_vocab=tokenizer.size, eos_token=sorted(tokenizer.end_tokens))


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return line[:300]

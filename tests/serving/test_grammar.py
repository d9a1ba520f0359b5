"""Grammars over a small vocabulary: masks, ends, several states, limits."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from api.byte_tokenizer import TURN_END, ByteTokenizer
from ropeway.serving import grammar
from ropeway.serving.grammar import GrammarCompiler, GrammarConstraint, GrammarError

TOKENIZER = ByteTokenizer()


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    """One for all: compiled grammars are kept."""
    return GrammarCompiler(TOKENIZER)


def allowed(constraint: GrammarConstraint) -> set[bytes]:
    """The tokens that may come, control tokens by name."""
    mask = constraint.mask()
    assert mask.dtype == np.bool_
    assert mask.shape == (TOKENIZER.size,)
    return {TOKENIZER.piece(int(token), special=True) for token in np.flatnonzero(mask)}


def advance(constraint: GrammarConstraint, text: str) -> None:
    """Take a text token by token; each must be allowed."""
    for token in TOKENIZER.ids(text):
        assert constraint.mask()[token], text
        constraint.advance(token)


def test_the_end_is_allowed_exactly_where_the_grammar_may_end(compiler: GrammarCompiler) -> None:
    constraint = compiler.constraint(grammar.from_text('start: "hello" " world"?'))
    ends = {b"<|endoftext|>", b"<|im_end|>"}
    assert not allowed(constraint) & ends
    advance(constraint, "hello")
    assert ends < allowed(constraint)
    advance(constraint, " world")
    assert allowed(constraint) == ends
    constraint.advance(TURN_END)
    assert constraint.error == ""


def test_words_that_leave_the_grammar_are_not_allowed(compiler: GrammarCompiler) -> None:
    constraint = compiler.constraint(grammar.from_text('start: "hel" ("lo" | "p")'))
    assert b"hello" in allowed(constraint)
    advance(constraint, "hel")
    assert allowed(constraint) == {b"l", b"p"}


def test_states_are_apart(compiler: GrammarCompiler) -> None:
    text = grammar.from_text("start: /ab+c/")
    first, second = compiler.constraint(text), compiler.constraint(text)
    advance(first, "ab")
    assert allowed(second) == {b"a"}
    assert allowed(first) == {b"b", b"c"}


@pytest.mark.parametrize("seed", range(20))
def test_any_allowed_tokens_make_json(compiler: GrammarCompiler, seed: int) -> None:
    schema = {
        "type": "object",
        "properties": {
            "s": {"type": "string", "maxLength": 4},
            "n": {"type": "number", "minimum": 0, "maximum": 9},
            "l": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        },
        "required": ["s", "n"],
    }
    constraint, rng, made = compiler.constraint(grammar.from_schema(schema)), random.Random(seed), b""
    for _ in range(2000):
        ids = np.flatnonzero(constraint.mask()).tolist()
        if TURN_END in ids:
            break
        token = rng.choice(ids)
        constraint.advance(token)
        made += TOKENIZER.piece(token)
    value = json.loads(made)
    assert {"s", "n"} <= set(value) <= {"s", "n", "l"}
    assert constraint.error == ""


def test_json_is_never_white_for_ever(compiler: GrammarCompiler) -> None:
    constraint = compiler.constraint(grammar.from_schema(grammar.JSON_OBJECT))
    advance(constraint, "{")
    advance(constraint, "\n" + " " * 32)
    assert b" " not in allowed(constraint)
    assert b"\n" not in allowed(constraint)


def test_a_control_token_is_named(compiler: GrammarCompiler) -> None:
    assert compiler.literal("<|python_tag|>") == "<|python_tag|>"
    assert compiler.literal("<tool_call>") == '"<tool_call>"'
    assert compiler.literal("{") == '"{"'
    constraint = compiler.constraint(grammar.from_text('start: <|python_tag|> "x"'))
    assert allowed(constraint) == {b"<|python_tag|>"}


def test_a_grammar_that_gets_stuck_ends_and_says_why(compiler: GrammarCompiler) -> None:
    constraint = compiler.constraint(grammar.from_text('start: "ab"'))
    constraint.advance(ord("x"))
    assert allowed(constraint) == {b"<|endoftext|>", b"<|im_end|>"}
    assert constraint.error


@pytest.mark.parametrize("text", ["", "start: nothing", "start: /(/", "root ::= (", "x", "\0", "start: " + "(" * 500])
def test_bad_text(compiler: GrammarCompiler, text: str) -> None:
    with pytest.raises(GrammarError):
        compiler.constraint(grammar.from_text(text))


def test_too_much(compiler: GrammarCompiler) -> None:
    with pytest.raises(GrammarError, match="bytes"):
        compiler.constraint(grammar.from_text(f'start: "{"x" * 300_000}"'))
    with pytest.raises(GrammarError, match="deeper"):
        grammar.from_schema(json.loads('{"items":' * 70 + "{}" + "}" * 70))


def test_no_more_than_so_many_are_kept() -> None:
    compiler = GrammarCompiler(TOKENIZER)
    texts = [grammar.from_text(f'start: "{number}"') for number in range(grammar.CACHED + 5)]
    for text in texts:
        compiler.constraint(text)
    assert allowed(compiler.constraint(texts[0])) == {b"0"}

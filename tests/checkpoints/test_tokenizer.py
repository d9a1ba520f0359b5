"""A directory's tokenizer gives ids and bytes; its chat template is found wherever it lies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.tokenizer import DirectoryVocabulary, directory_template
from ropeway.serving.speech import Speech
from ropeway.serving.vocabulary import open_vocabulary
from tiny_gguf import CHAT_TEMPLATE
from tiny_safetensors import LLAMA, llama_tensors, write_directory
from tiny_tokenizer import recipe, write_tokenizer

pytest.importorskip("tokenizers", reason="the library tokenizers (extra torch) is not installed")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    return write_tokenizer(write_directory(path, {**LLAMA, "vocab_size": 320}, llama_tensors()))


@given(text=st.text(max_size=40))
@settings(max_examples=50, deadline=None)
def test_text_comes_back(model: Path, text: str) -> None:
    vocabulary = DirectoryVocabulary(model)
    ids = vocabulary.tokenize(text, add_special=False, parse_special=False)
    assert b"".join(vocabulary.piece(token) for token in ids).decode(errors="surrogatepass") == text


def test_control_tokens_are_read_where_they_may_be(model: Path) -> None:
    vocabulary = DirectoryVocabulary(model)
    assert vocabulary.tokenize("<|im_end|>", add_special=False, parse_special=True) == [2]
    assert 2 not in vocabulary.tokenize("<|im_end|>", add_special=False, parse_special=False)
    assert vocabulary.piece(2) == b""
    assert vocabulary.piece(2, special=True) == b"<|im_end|>"


def test_facts(model: Path) -> None:
    vocabulary = open_vocabulary(model)
    assert vocabulary.size == 320
    assert vocabulary.end_tokens == {0, 2}
    assert (vocabulary.bos, vocabulary.eos) == ("", "<|im_end|>")
    assert vocabulary.piece(319) == b""


def test_a_prompt_through_the_template(model: Path) -> None:
    speech = Speech(model)
    assert speech.name == "tiny"
    assert speech.prompt("hello")[0] == 1
    assert speech.prompt("hello", raw=True) == speech.vocabulary.tokenize(
        "hello", add_special=True, parse_special=False
    )
    speech.close()


def test_pieces_of_a_vocabulary_that_spells_text(tmp_path: Path) -> None:
    words = {"<unk>": 0, "\u2581hi": 1, "<0xE2>": 2, "x": 3}
    spelled = {**recipe(), "added_tokens": [], "decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}]}}
    spelled["model"] = {**recipe()["model"], "vocab": words, "merges": [], "unk_token": "<unk>", "byte_fallback": True}
    path = write_directory(tmp_path, LLAMA, llama_tensors())
    (path / "tokenizer.json").write_text(json.dumps(spelled))
    vocabulary = DirectoryVocabulary(path)
    assert [vocabulary.piece(token) for token in range(1, 4)] == [b" hi", b"\xe2", b"x"]


def test_a_tokenizer_that_is_none(tmp_path: Path) -> None:
    path = write_directory(tmp_path, LLAMA, llama_tensors())
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: cannot be read"):
        DirectoryVocabulary(path)
    (path / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: cannot be used"):
        DirectoryVocabulary(path)


def test_where_templates_lie(tmp_path: Path) -> None:
    path = write_directory(tmp_path, LLAMA, llama_tensors())
    assert directory_template(path) == ""
    write_tokenizer(path)
    assert directory_template(path) == CHAT_TEMPLATE
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert directory_template(path) == "d"
    (path / "chat_template.json").write_text(json.dumps({"chat_template": "j"}))
    assert directory_template(path) == "j"
    (path / "chat_template.jinja").write_text("file")
    assert directory_template(path) == "file"

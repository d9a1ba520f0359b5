"""A checkpoint's tokenizer and chat template, whatever its format."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ropeway.checkpoints.checkpoint import Format, format_of
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.serving.service import Tokenizer


class Vocabulary(Tokenizer, Protocol):
    """A tokenizer with what a chat template needs of it."""

    @property
    def bos(self) -> str: ...
    @property
    def eos(self) -> str: ...
    def close(self) -> None:
        """Free it; it is not used again."""
        ...


def open_vocabulary(path: Path) -> Vocabulary:
    """The tokenizer of the checkpoint at `path`. Raises CheckpointError or EngineError."""
    if format_of(path) is Format.SAFETENSORS:
        from ropeway.checkpoints.tokenizer import DirectoryVocabulary

        return DirectoryVocabulary(path)
    from ropeway.engines.llamacpp import vocabulary

    return vocabulary.Vocabulary(path)


def read_template(path: Path) -> str:
    """The chat template of the checkpoint at `path`; empty where it has none. Raises CheckpointError."""
    if format_of(path) is Format.SAFETENSORS:
        from ropeway.checkpoints.tokenizer import directory_template

        return directory_template(path)
    return GgufFile.open(path).metadata.text("tokenizer.chat_template", "")

"""Models by name, `hf:ORG/NAME` or `hf:ORG/NAME@REVISION`, through huggingface_hub's own cache: only what is needed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Final

from ropeway.checkpoints.errors import CheckpointError

NEEDED: Final = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "model.safetensors.index.json",
    "model*.safetensors",
)
"""Nothing else of a repository is fetched: no other formats, no code."""

_NAME = re.compile(r"hf:([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w./-]+))?")


def fetch_repository(model: str) -> Path:
    """The directory of `hf:ORG/NAME`, fetched as far as it is not there. Raises CheckpointError."""
    match = _NAME.fullmatch(model)
    if match is None:
        raise CheckpointError(f"{model}: is not of the form hf:ORG/NAME or hf:ORG/NAME@REVISION")
    if importlib.util.find_spec("huggingface_hub") is None:
        raise CheckpointError(f"{model}: huggingface_hub is not installed: pip install 'ropeway[torch]'")
    from huggingface_hub import snapshot_download

    name, revision = match.groups()
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(NEEDED)))
    except Exception as error:
        raise CheckpointError(f"{model}: could not be fetched: {str(error).splitlines()[0]}") from error

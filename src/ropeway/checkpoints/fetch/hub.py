"""Hugging Face: which files a repository has, where they are, and the token, which goes nowhere else.

Source: the routes /api/models/ORG/NAME/revision/REVISION and /ORG/NAME/resolve/REVISION/FILE of huggingface.co.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.http import Secret, Web, site_of
from ropeway.checkpoints.fetch.source import SourceError
from ropeway.checkpoints.fetch.spec import HubSpec

ENDPOINT: Final = "https://huggingface.co"
MAX_LISTING_BYTES: Final = 32 << 20
MAX_FILES: Final = 100_000
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
"""A file of several that make one; the first stands for all."""
_TOKEN = re.compile(r"[\x21-\x7e]{1,512}")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository at one commit, so that files fetched hours apart belong together."""

    endpoint: str
    name: str
    commit: str
    files: tuple[str, ...]

    def url(self, file: str) -> str:
        """Where a file is."""
        return f"{self.endpoint}/{self.name}/resolve/{self.commit}/{quote(file)}"


def endpoint() -> str:
    """HF_ENDPOINT, as huggingface_hub reads it, else huggingface.co."""
    return (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")


def hub_secret() -> Secret | None:
    """The person's token, from HF_TOKEN or from where huggingface_hub keeps it, for the endpoint alone."""
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token:
        home = os.environ.get("HF_HOME")
        place = Path(home).expanduser() if home else Path.home() / ".cache" / "huggingface"
        try:
            with (place / "token").open(encoding="ascii") as file:
                token = file.read(1024).strip()
        except (OSError, UnicodeDecodeError):
            return None
    return Secret(site_of(endpoint()), token) if _TOKEN.fullmatch(token) else None


def open_repository(web: Web, spec: HubSpec) -> Repository:
    """Ask what a repository has. Raises SourceError, or CheckpointError for an answer that makes no sense."""
    base = endpoint()
    url = f"{base}/api/models/{spec.repository}/revision/{quote(spec.revision, safe='')}"
    try:
        reply = web.get(url)
        raw = reply.text(MAX_LISTING_BYTES, "the listing")
    except SourceError as error:
        raise SourceError(f"{spec}: {error}", lasting=error.lasting, retry_after_s=error.retry_after_s) from None
    try:
        value = json.loads(raw)
        commit = value["sha"]
        names = [sibling["rfilename"] for sibling in value["siblings"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CheckpointError(f"{spec}: {reply.label} gave no listing of a repository") from None
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit) or len(names) > MAX_FILES:
        raise CheckpointError(f"{spec}: {reply.label} gave no listing of a repository")
    files = tuple(name for name in names if isinstance(name, str) and _harmless(name))
    return Repository(base, spec.repository, commit, files)


def choose_gguf(spec: HubSpec, files: Sequence[str]) -> str:
    """The GGUF file that a spec means: named, named in part, or the only one. Raises CheckpointError."""
    found = [name for name in files if name.endswith(".gguf") and not _LATER_PART.search(name)]
    if spec.file in found:
        return spec.file
    if spec.file:
        found = [name for name in found if spec.file.lower() in name.lower()]
    if len(found) == 1:
        return found[0]
    if not found:
        what = f"a file like {spec.file!r}" if spec.file else "a model"
        raise CheckpointError(f"{spec}: there is no {what.removeprefix('a ')} in GGUF or safetensors form there")
    shown = ", ".join(sorted(found)[:20]) + (", ..." if len(found) > 20 else "")
    raise CheckpointError(f"{spec}: name one of its {len(found)} GGUF files behind a colon: {shown}")


def _harmless(name: str) -> bool:
    return not (name.startswith("/") or ".." in name.split("/") or any(ord(c) < 32 or c == "\\" for c in name))

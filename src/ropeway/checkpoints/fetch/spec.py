"""What a person types for a checkpoint that is elsewhere. Pure: reads neither disk nor network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

HUB = "hf:"

_HUB = re.compile(
    r"hf:(?P<repository>[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95})"
    r"(?:@(?P<revision>[A-Za-z0-9][A-Za-z0-9._/-]{0,199}))?(?::(?P<file>[^\x00-\x1f\x7f\\?#%:]{1,400}))?"
)


@dataclass(frozen=True, slots=True)
class HubSpec:
    """hf:ORG/NAME[@REVISION][:FILE]. `file` may also be a part of a GGUF's name, such as Q4_K_M; empty: not named."""

    repository: str
    revision: str = "main"
    file: str = ""

    def __str__(self) -> str:
        revision = "" if self.revision == "main" else f"@{self.revision}"
        return f"{HUB}{self.repository}{revision}" + (f":{self.file}" if self.file else "")


@dataclass(frozen=True, slots=True)
class WebSpec:
    """The URL of a GGUF, of a safetensors file or of its index."""

    url: str

    def __str__(self) -> str:
        return public_url(self.url)

    @property
    def file(self) -> str:
        """The last part of the path."""
        return urlsplit(self.url).path.rpartition("/")[2]


Spec = HubSpec | WebSpec


def is_remote(model: str) -> bool:
    """Whether `model` names something that is elsewhere."""
    return model.startswith((HUB, "http://", "https://"))


def parse_spec(model: str) -> Spec:
    """The remote checkpoint that `model` names. Raises ValueError, naming the argument, when it is malformed."""
    if model.startswith(HUB):
        match = _HUB.fullmatch(model)
        if match is None:
            raise ValueError(f"model: {model!r} is not hf:ORG/NAME, hf:ORG/NAME@REVISION or hf:ORG/NAME:FILE")
        file = match["file"] or ""
        if file.startswith("/") or ".." in file.split("/"):
            raise ValueError(f"model: {file!r} is not a file inside a repository")
        return HubSpec(match["repository"], match["revision"] or "main", file)
    try:
        parts = urlsplit(model)
    except ValueError:
        raise ValueError(f"model: {public_url(model)} cannot be fetched") from None
    if parts.username or parts.password:
        raise ValueError("model: a URL with a password in it would end up in logs; use a place that needs none")
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[\x00-\x20\x7f]", model):
        raise ValueError(f"model: {public_url(model)!r} is not a URL that can be fetched")
    spec = WebSpec(model)
    if not spec.file.endswith((".gguf", ".safetensors", ".safetensors.index.json")):
        raise ValueError(
            f"model: {spec} names no .gguf, no .safetensors and no .safetensors.index.json file, so nothing to fetch"
        )
    return spec


def public_url(url: str) -> str:
    """A URL that may be shown: without the query, which often is a signature, and without a user."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a URL that is none"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))

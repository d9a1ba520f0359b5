"""The process bridge as bytes and values: what a worker says when it is ready, requests, replies (docs/worker.md).

Pure: knows nothing of processes or engines. What a worker says is judged here, field by field.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from ropeway.engines.base import EngineError
from ropeway.types import Backend, KvDtype, RowDtype

BRIDGE_VERSION: Final = 1
"""The version of the extension, `bridge` in the ready line."""
READY_BYTES: Final = 1 << 16
"""A longer ready line is refused."""
SLACK_BYTES: Final = 4096
"""Room in a reply for everything but its payload."""
ERROR_TEXT: Final = 400
ABILITIES: Final = frozenset({"keep", "save", "head"})

_Enum = TypeVar("_Enum", RowDtype, Backend, KvDtype)


@dataclass(frozen=True, slots=True)
class Extension:
    """What a worker can do beyond the plain bridge: the object `bridge` of its ready line.

    `streams` at once, each with a slot number; `context` positions a stream and `chunk` rows a request at most, None
    where it does not say. `can` holds the names of operations that it knows: "keep", "save" (and restore), "head".
    """

    row_dtype: RowDtype = RowDtype.BF16
    """The plain bridge has two bytes a value."""
    streams: int = 1
    context: int | None = None
    chunk: int | None = None
    backend: Backend = Backend.OTHER
    kv_dtype: KvDtype = KvDtype.F16
    weights_bytes: int = 0
    can: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReadyLine:
    """The worker's first line: it has loaded layers first..end of `layers`."""

    pid: int
    stage: int
    hidden: int
    vocabulary: int
    layers: int
    first: int
    end: int
    end_tokens: tuple[int, ...]
    extension: Extension


def decode_ready(line: bytes) -> ReadyLine:
    """Read the ready line. Raises EngineError, naming the field."""
    value = decode_object(line, "the ready line")
    if value.get("status") != "ready":
        raise EngineError(f"the worker's first line has status {_short(value.get('status'))}, expected 'ready'")
    span = value.get("layer_range")
    if not isinstance(span, list) or len(span) != 2:
        raise EngineError(f"the worker's layer_range is {_short(span)}, expected [first, end]")
    layers = integer(value, "total_blocks", 1)
    first, end = (integer({"layer_range": edge}, "layer_range", 0) for edge in span)
    if not first < end <= layers:
        raise EngineError(f"the worker's layer_range is {first}..{end} of {layers} layers")
    ends = value.get("eog_ids", [])
    if not isinstance(ends, list):
        raise EngineError(f"the worker's eog_ids are {_short(ends)}, expected a list")
    return ReadyLine(
        pid=integer(value, "pid", 1),
        stage=integer(value, "stage", 0),
        hidden=integer(value, "hidden_dim", 1, 1 << 20),
        vocabulary=integer(value, "vocab_size", 1, 1 << 24),
        layers=layers,
        first=first,
        end=end,
        end_tokens=tuple(integer({"eog_ids": token}, "eog_ids", 0) for token in ends),
        extension=_extension(value["bridge"]) if "bridge" in value else Extension(),
    )


def _extension(value: object) -> Extension:
    if not isinstance(value, dict):
        raise EngineError(f"the worker's bridge is {_short(value)}, expected an object")
    version = integer(value, "version", 0)
    if version != BRIDGE_VERSION:
        raise EngineError(f"the worker speaks version {version} of the bridge's extension, expected {BRIDGE_VERSION}")
    can = value.get("can", [])
    if not isinstance(can, list) or not all(isinstance(name, str) for name in can):
        raise EngineError(f"the worker's can is {_short(can)}, expected a list of names")
    return Extension(
        row_dtype=_named(RowDtype, value, "row_dtype", RowDtype.BF16),
        streams=integer(value, "streams", 1, 1 << 16) if "streams" in value else 1,
        context=integer(value, "context", 1) if "context" in value else None,
        chunk=integer(value, "chunk", 1) if "chunk" in value else None,
        backend=_named(Backend, value, "backend", Backend.OTHER),
        kv_dtype=_named(KvDtype, value, "kv_dtype", KvDtype.F16),
        weights_bytes=integer(value, "weights_bytes", 0, 1 << 62) if "weights_bytes" in value else 0,
        can=frozenset(can) & ABILITIES,
    )


def _named(enum: type[_Enum], value: Mapping[str, object], name: str, default: _Enum) -> _Enum:
    if name not in value:
        return default
    for member in enum:
        if member.name.lower() == value[name]:
            return member
    names = ", ".join(member.name.lower() for member in enum)
    raise EngineError(f"the worker's {name} is {_short(value[name])}, expected one of {names}")


def encode_request(number: int, op: str, fields: Mapping[str, object]) -> bytes:
    """One request line."""
    return json.dumps({"op": op, "request_id": number, **fields}, separators=(",", ":")).encode() + b"\n"


def decode_reply(line: bytes, number: int) -> dict[str, object]:
    """The reply to request `number`. Raises EngineError: not JSON, another request's, or the worker's own error."""
    value = decode_object(line, "a reply")
    told = value.get("request_id")
    if type(told) is not int or told != number:
        raise EngineError(f"the worker sent a reply to request {_short(told)}, expected {number}")
    if "error" in value:
        raise WorkerRefused(str(value["error"])[:ERROR_TEXT])
    return value


class WorkerRefused(EngineError):
    """The worker answered with an error, and goes on serving."""

    def __init__(self, text: str) -> None:
        super().__init__(f"the worker refused: {text}")


def decode_object(line: bytes, what: str) -> dict[str, object]:
    """The JSON object of a line. Raises EngineError."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise EngineError(f"the worker wrote {_short(line)} where {what} is expected, which is not JSON") from None
    if not isinstance(value, dict):
        raise EngineError(f"the worker wrote {_short(line)} where {what} is expected, which is no JSON object")
    return value


def integer(value: Mapping[str, object], name: str, least: int, most: int = 1 << 31) -> int:
    """The integer `name`, which a boolean is not. Raises EngineError."""
    found = value.get(name)
    if type(found) is not int or not least <= found <= most:
        raise EngineError(f"the worker's {name} is {_short(found)}, expected an integer from {least} to {most}")
    return found


def payload(value: Mapping[str, object], name: str, size: int | None = None) -> bytes:
    """The base64 field `name`, of exactly `size` bytes where that is known. Raises EngineError."""
    text = value.get(name)
    if not isinstance(text, str):
        raise EngineError(f"the worker's {name} is {_short(text)}, expected base64")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise EngineError(f"the worker's {name} is not base64") from None
    if size is not None and len(raw) != size:
        raise EngineError(f"the worker's {name} has {len(raw)} bytes, expected {size}")
    return raw


def encoded(data: bytes | memoryview) -> str:
    """Base64 text."""
    return base64.b64encode(data).decode("ascii")


def encoded_size(size: int) -> int:
    """Bytes that a line needs for a payload of `size` bytes, with everything around it."""
    return (size + 2) // 3 * 4 + SLACK_BYTES


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."

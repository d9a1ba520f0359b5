"""Messages to a registered name: a question to a ring's entry and its answer. Values and their JSON, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

ENTRY: Final = "pp-entry"
EXIT: Final = "pp-exit"
ORCHESTRATOR: Final = "pp-orchestrator"


def stage_name(stage: int) -> str:
    """The name of a stage's node."""
    return f"pp-stage-{stage}"


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """Go on from `prompt` for at most `max_tokens` tokens, and send the reply to the name `reply_to`."""

    reply_to: str
    prompt: str
    max_tokens: int
    request_id: str = ""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens: {self.max_tokens} is not at least 1")


@dataclass(frozen=True, slots=True)
class InferenceResponse:
    """The reply to the request of that id; `error` says why there is none, or why it ends early."""

    text: str
    token_ids: tuple[int, ...] = ()
    request_id: str = ""
    error: str = ""


Message = InferenceRequest | InferenceResponse


def encode_message(message: Message) -> dict[str, Any]:
    """A message as a JSON object."""
    return {"type": type(message).__name__, **asdict(message)}


def decode_message(value: Mapping[str, Any]) -> Message:
    """A message that a node sent. Raises ValueError naming the field; fields that we do not know are passed over."""
    match value.get("type"):
        case "InferenceRequest":
            return InferenceRequest(
                _text(value, "reply_to"),
                _text(value, "prompt"),
                _count(value, "max_tokens"),
                _text(value, "request_id"),
            )
        case "InferenceResponse":
            tokens = value.get("token_ids", [])
            if not isinstance(tokens, list | tuple) or not all(type(token) is int for token in tokens):
                raise ValueError("token_ids: not a list of integers")
            return InferenceResponse(
                _text(value, "text"), tuple(tokens), _text(value, "request_id"), _text(value, "error")
            )
        case other:
            raise ValueError(f"type: {other!r} is no message")


def _text(value: Mapping[str, Any], field: str) -> str:
    text = value.get(field, "")
    if not isinstance(text, str):
        raise ValueError(f"{field}: not a string")
    return text


def _count(value: Mapping[str, Any], field: str) -> int:
    count = value.get(field)
    if type(count) is not int:
        raise ValueError(f"{field}: not an integer")
    return count

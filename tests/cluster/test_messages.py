"""Messages as JSON, there and back, and what is no message."""

from __future__ import annotations

from typing import Any

import pytest

from ropeway.cluster.messages import (
    InferenceRequest,
    InferenceResponse,
    Message,
    decode_message,
    encode_message,
    stage_name,
)


@pytest.mark.parametrize(
    "message",
    [
        InferenceRequest("pp-orchestrator", "Say hello", 64, "7"),
        InferenceResponse("Hello!", (1, 2, 3), "7"),
        InferenceResponse("", (), "7", "stage 1 was lost"),
    ],
)
def test_messages_there_and_back(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


def test_fields_that_we_do_not_know_are_passed_over() -> None:
    value = {"type": "InferenceRequest", "reply_to": "a", "prompt": "b", "max_tokens": 1, "colour": "red"}
    assert decode_message(value) == InferenceRequest("a", "b", 1)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({}, "type"),
        ({"type": "Order"}, "type"),
        ({"type": "InferenceRequest", "reply_to": 1, "prompt": "b", "max_tokens": 1}, "reply_to"),
        ({"type": "InferenceRequest", "reply_to": "a", "prompt": None, "max_tokens": 1}, "prompt"),
        ({"type": "InferenceRequest", "reply_to": "a", "prompt": "b"}, "max_tokens"),
        ({"type": "InferenceRequest", "reply_to": "a", "prompt": "b", "max_tokens": True}, "max_tokens"),
        ({"type": "InferenceRequest", "reply_to": "a", "prompt": "b", "max_tokens": 0}, "max_tokens"),
        ({"type": "InferenceResponse", "text": "a", "token_ids": [1, "2"]}, "token_ids"),
        ({"type": "InferenceResponse", "text": "a", "token_ids": "12"}, "token_ids"),
    ],
)
def test_what_is_no_message_is_refused_by_its_field(value: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        decode_message(value)


def test_stage_names() -> None:
    assert [stage_name(0), stage_name(12)] == ["pp-stage-0", "pp-stage-12"]

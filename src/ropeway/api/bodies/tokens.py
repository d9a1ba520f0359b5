"""The bodies of POST /tokenize and POST /detokenize (vLLM's shapes)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from ropeway.api.bodies.chat import MAX_MESSAGES, MAX_TOOLS, Message, Tool
from ropeway.api.bodies.common import Body, token_ids

_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}}


class TokenizeBody(Body):
    """Text or messages, never both. `add_special_tokens` counts for text alone; a template brings its own."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message] | None, Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)] = None
    tools: Annotated[list[Tool] | None, Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)] = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _one_of_two(self) -> TokenizeBody:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("Give either prompt or messages.")
        return self


class DetokenizeBody(Body):
    """Token ids."""

    model: str | None = None
    tokens: Annotated[list[int], PlainValidator(token_ids), WithJsonSchema(_TOKENS)]

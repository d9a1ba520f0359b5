"""The fields that chat and text completions share, and how they become a sampler's settings.

A field that OpenAI has and we have not is declared `Absent`: null is taken, anything else is refused by name. Fields
that only label a request (user, metadata, ...) are taken and have no effect.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from ropeway.serving.sequence import SamplingParams
from ropeway.serving.service import Penalties

MAX_STOPS: Final = 16
MAX_STOP_CHARACTERS: Final = 1024
MAX_N: Final = 32
MAX_BIASES: Final = 1024
MAX_GRAMMAR_CHARACTERS: Final = 65_536
MAX_LOGPROBS: Final = 20
MAX_METADATA: Final = 64
MAX_FIELDS: Final = 100
"""Of any object whose fields are known here: more than any has."""


def _absent(value: object) -> None:
    if value is not None:
        raise PydanticCustomError("unsupported", "This field is not supported by this server.")


Absent = Annotated[None, BeforeValidator(_absent), WithJsonSchema({"type": "null"})]
"""A field of OpenAI's that is not supported: null or absent."""


def _absent_or_false(value: object) -> object:
    if value is not None and value is not False:
        raise PydanticCustomError("unsupported", "Only false is supported by this server.")
    return value


NeverTrue = Annotated[bool | None, BeforeValidator(_absent_or_false), WithJsonSchema({"enum": [False, None]})]
"""A switch of OpenAI's that cannot be on."""


def _integral(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Int = Annotated[int, BeforeValidator(_integral)]
"""1.0 is an integer too, as in JSON Schema: some languages write it so. A string is none, and neither is true."""


def token_ids(value: object) -> list[int]:
    """Token ids by hand, since there may be a million. Raises PydanticCustomError."""
    if isinstance(value, list):
        ids = [_integral(token) for token in value]
        if all(type(token) is int and token >= 0 for token in ids):
            return cast(list[int], ids)
    raise PydanticCustomError("token_ids", "Expected a list of token ids.")


def _bounded(value: object, most: int) -> object:
    """An object of at most so many entries, judged before its entries are: thousands of errors take seconds."""
    if isinstance(value, dict) and len(value) > most:
        raise PydanticCustomError("too_long", "It has more than {most} entries.", {"most": most})
    return value


def at_most(entries: int) -> BeforeValidator:
    """The bound of an object's entries, as a validator."""
    return BeforeValidator(lambda value: _bounded(value, entries))


class Body(BaseModel):
    """Strict: a number is not taken for a string, an unknown field is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _few(cls, value: object) -> object:
        return _bounded(value, MAX_FIELDS)


class StreamOptions(Body):
    """`include_usage` adds a last chunk with the usage and no choices."""

    include_usage: bool | None = None
    include_obfuscation: NeverTrue = None


StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
TokenKey = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
Bias = Annotated[float, Field(ge=-100, le=100)]


class Generating(Body):
    """One or more replies to one or more prompts."""

    model: Annotated[str, Field(min_length=1, max_length=512)]
    max_tokens: Int | None = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    top_k: Annotated[Int | None, Field(ge=-1, le=1 << 31)] = None
    min_p: Annotated[float | None, Field(ge=0, le=1)] = None
    seed: Annotated[Int | None, Field(ge=-(1 << 63), lt=1 << 64)] = None
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS, fail_fast=True)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    presence_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    frequency_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    repetition_penalty: Annotated[float | None, Field(gt=0, le=100)] = None
    logit_bias: Annotated[dict[TokenKey, Bias] | None, at_most(MAX_BIASES)] = None
    n: Annotated[Int | None, Field(ge=1, le=MAX_N)] = None
    grammar: Annotated[str | None, Field(min_length=1, max_length=MAX_GRAMMAR_CHARACTERS)] = None
    """Lark as llguidance takes it, or GBNF as llama.cpp does."""

    user: Annotated[str | None, Field(max_length=512)] = None
    metadata: Annotated[dict[str, str] | None, at_most(MAX_METADATA)] = None
    safety_identifier: Annotated[str | None, Field(max_length=512)] = None
    prompt_cache_key: Annotated[str | None, Field(max_length=512)] = None
    service_tier: Literal["auto", "default"] | None = None
    store: NeverTrue = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def choices(self) -> int:
        """Replies a prompt."""
        return self.n or 1

    @property
    def wants_usage_chunk(self) -> bool:
        """Whether a stream ends with its usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def params(self, seed: int, choice: int) -> SamplingParams:
        """The sampler's settings for one choice; OpenAI's defaults. `seed` counts where the body has none."""
        return SamplingParams(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=max(0, self.top_k or 0),
            # 0 keeps the likeliest token alone, and so does the smallest share above it.
            top_p=1.0 if self.top_p is None else max(self.top_p, math.ulp(0.0)),
            min_p=self.min_p or 0.0,
            seed=((seed if self.seed is None else self.seed) + choice) % (1 << 64),
        )

    @property
    def penalties(self) -> Penalties:
        """The three penalties."""
        return Penalties(self.presence_penalty or 0.0, self.frequency_penalty or 0.0, self.repetition_penalty or 1.0)

    @property
    def biases(self) -> dict[int, float]:
        """logit_bias by token id."""
        return {int(token): bias for token, bias in (self.logit_bias or {}).items()}


JsonObject = dict[str, Any]
"""A JSON object that is judged elsewhere."""

"""From a request's bytes to a judged body. What is wrong becomes a 400 that names one field."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.requests import Request

from ropeway.api.bodies.common import Body
from ropeway.api.errors import ApiError, bad_request

B = TypeVar("B", bound=Body)

THREAD_BYTES: Final = 16_384
"""A longer body is judged off the event loop."""


async def read_body(request: Request, kind: type[B]) -> B:
    """The request's body. Raises ApiError (400, 415)."""
    # A foreign page's form can be sent here without the browser asking us first, but not as JSON.
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise _unsupported("The body must be sent as application/json.", "unsupported_media_type")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise _unsupported("The body must not be compressed.", "unsupported_encoding")
    data = await request.body()
    if len(data) > THREAD_BYTES:
        return await asyncio.to_thread(parse_body, data, kind)
    return parse_body(data, kind)


def parse_body(data: bytes, kind: type[B]) -> B:
    """A body from its JSON. Raises ApiError (400)."""
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise bad_request(f"The body is not JSON: {error}.", None, "invalid_json") from None
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        # A field that fits none of several types has an error for each: the deepest says most, then the one of the
        # type that was right.
        judged = [
            (field_path(value, detail["loc"]), detail)
            for detail in error.errors(include_url=False, include_input=False)
        ]
        path, detail = max(judged, key=lambda pair: (len(pair[0]), not pair[1]["type"].endswith("_type")))
        raise _refusal(path, detail) from None


def field_path(value: object, loc: Sequence[int | str]) -> tuple[int | str, ...]:
    """Where in `value` an error lies: pydantic's location without the names of the types that it tried."""
    path: list[int | str] = []
    for at, step in enumerate(loc):
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        elif isinstance(value, dict) and (step in value or at == len(loc) - 1):
            value = value.get(step)
        else:
            continue
        path.append(step)
    return tuple(path)


def path_text(path: Sequence[int | str]) -> str:
    """messages[0].content, as OpenAI writes it."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def _unsupported(text: str, code: str) -> ApiError:
    return ApiError(415, "invalid_request_error", text, None, code)


def _refusal(path: Sequence[int | str], detail: ErrorDetails) -> ApiError:
    kind, param = detail["type"], path_text(path)
    if kind == "extra_forbidden":
        return bad_request(f"Unknown parameter: '{param}'. It is not supported.", param, "unknown_parameter")
    if kind == "unsupported":
        return bad_request(f"Unsupported parameter: '{param}'. {detail['msg']}", param, "unsupported_parameter")
    if kind in ("missing", "union_tag_not_found"):
        tag = str(detail.get("ctx", {}).get("discriminator", "")).strip("'")
        param = path_text([*path, tag]) if tag else param
        return bad_request(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")
    if kind == "union_tag_invalid":
        context = detail.get("ctx", {})
        param = path_text([*path, str(context.get("discriminator", "")).strip("'")])
        expected = context.get("expected_tags", "")
        message = f"Invalid value for '{param}': {str(context.get('tag'))[:100]!r}. Expected one of {expected}."
        return bad_request(message, param, "invalid_value")
    text = detail["msg"].removeprefix("Value error, ")
    code = "invalid_type" if kind.endswith("_type") else "invalid_value"
    return bad_request(f"Invalid value for '{param}': {text}" if param else text, param or None, code)

"""Every refusal and failure that a client sees, in OpenAI's shape: {"error": {message, type, param, code}}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic_core import to_json
from starlette.responses import Response
from typing_extensions import TypedDict

from ropeway.serving.service import PromptTooLong, QueueFull, RingUnavailable, Unsupported

ErrorType = Literal[
    "invalid_request_error", "authentication_error", "rate_limit_error", "ring_unavailable", "server_error"
]


class ErrorBody(TypedDict):
    """What went wrong. `param` is the field's path, as in messages[0].content; null where no field is to blame."""

    message: str
    type: ErrorType
    param: str | None
    code: str | None


class ErrorReply(TypedDict):
    """Every reply whose status is 400 or above, and the data of a stream's error event."""

    error: ErrorBody


class ApiError(Exception):
    """Ends a request with `status` and an OpenAI-shaped body."""

    def __init__(
        self,
        status: int,
        type: ErrorType,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.type, self.message, self.param, self.code = status, type, message, param, code
        self.headers = dict(headers or {})

    def body(self) -> ErrorReply:
        """The reply's JSON."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The whole reply."""
        return Response(to_json(self.body()), self.status, self.headers, "application/json")


def bad_request(message: str, param: str | None = None, code: str | None = "invalid_value") -> ApiError:
    """A 400 that names the field."""
    return ApiError(400, "invalid_request_error", message, param, code)


def too_long(error: PromptTooLong, param: str) -> ApiError:
    """The 400 that names both numbers."""
    return bad_request(
        f"This model's maximum context length is {error.context} tokens. However, your {param} resulted in "
        f"{error.prompt_tokens} tokens, and a reply needs room for at least one. Please shorten the {param}.",
        param,
        "context_length_exceeded",
    )


def ring_unavailable(text: str, retry_after_s: int = 1) -> ApiError:
    """The 503 of a ring that is not whole."""
    wait = str(max(1, retry_after_s))
    return ApiError(503, "ring_unavailable", text, None, "ring_unavailable", {"Retry-After": wait})


def internal_error() -> ApiError:
    """The 500 of our own mistakes."""
    return ApiError(500, "server_error", "The server failed; its log says why.", None, "internal_error")


def from_service(error: RingUnavailable | QueueFull | PromptTooLong | Unsupported, param: str) -> ApiError:
    """What `Service.submit` raised, as the client sees it."""
    if isinstance(error, PromptTooLong):
        return too_long(error, param)
    if isinstance(error, Unsupported):
        return bad_request(f"'{error.field}' cannot be served here: {error.why}.", error.field, "unsupported_value")
    if isinstance(error, RingUnavailable):
        return ring_unavailable(str(error), error.retry_after_s)
    wait = str(max(1, error.retry_after_s))
    return ApiError(429, "rate_limit_error", str(error), None, "queue_full", {"Retry-After": wait})

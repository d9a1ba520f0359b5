"""All routes but the page's: one table, from which the app and its OpenAPI document are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ropeway.api import plain, replies
from ropeway.api.bodies.chat import ChatBody
from ropeway.api.bodies.common import Body
from ropeway.api.bodies.completions import CompletionBody
from ropeway.api.bodies.tokens import DetokenizeBody, TokenizeBody
from ropeway.api.chat import chat
from ropeway.api.completions import completions
from ropeway.api.front import Front

Endpoint = Callable[[Front, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Described:
    """A route: what it takes, what it gives (JSON unless `media` says otherwise), and the events of its streams."""

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    body: type[Body] | None = None
    reply: Any = None
    event: Any = None
    media: str = "application/json"
    keyed: bool = True
    errors: tuple[int, ...] = ()


_GENERATE: Final = (400, 404, 408, 413, 415, 429, 503)
_TOKENS: Final = (400, 404, 408, 413, 415)

ROUTES: Final = (
    Described(
        "POST",
        "/v1/chat/completions",
        chat,
        "The next message of a conversation",
        ChatBody,
        replies.ChatCompletion,
        replies.ChatChunk,
        errors=_GENERATE,
    ),
    Described(
        "POST",
        "/v1/completions",
        completions,
        "What follows a text",
        CompletionBody,
        replies.TextCompletion,
        replies.TextCompletion,
        errors=_GENERATE,
    ),
    Described("GET", "/v1/models", plain.models, "The models that can be asked", reply=replies.ModelList),
    Described("GET", "/v1/models/{id}", plain.model, "One model", reply=replies.Model, errors=(404,)),
    Described(
        "POST",
        "/tokenize",
        plain.tokenize,
        "Text or messages to tokens",
        TokenizeBody,
        replies.Tokenized,
        errors=_TOKENS,
    ),
    Described(
        "POST", "/detokenize", plain.detokenize, "Tokens to text", DetokenizeBody, replies.Detokenized, errors=_TOKENS
    ),
    Described("GET", "/v1/ring", plain.ring, "The placement and its live figures", reply=dict[str, Any]),
    Described("GET", "/health", plain.health, "Whether the process is alive", reply=replies.Alive, keyed=False),
    Described(
        "GET", "/ready", plain.ready, "Whether the ring is whole", reply=replies.Alive, keyed=False, errors=(503,)
    ),
    Described("GET", "/metrics", plain.metrics, "Figures for Prometheus", media="text/plain"),
)

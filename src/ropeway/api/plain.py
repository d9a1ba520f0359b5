"""The small routes: models, tokens, health, readiness, metrics, the ring."""

from __future__ import annotations

import asyncio

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from ropeway.api.bodies.tokens import DetokenizeBody, TokenizeBody
from ropeway.api.errors import ring_unavailable
from ropeway.api.front import Front
from ropeway.api.prompts import chat_prompt, check_tokens, text_prompt
from ropeway.api.reading import read_body
from ropeway.api.replies import Alive, Detokenized, Model, ModelList, Tokenized
from ropeway.serving.service import ServiceState

RETRY_AFTER_S = 2
"""What /ready says while the ring is not whole."""


async def models(front: Front, request: Request) -> Response:
    """GET /v1/models."""
    listed: ModelList = {"object": "list", "data": [_model(front)]}
    return _json(listed)


async def model(front: Front, request: Request) -> Response:
    """GET /v1/models/{id}."""
    front.check_model(request.path_params["id"])
    return _json(_model(front))


async def tokenize(front: Front, request: Request) -> Response:
    """POST /tokenize: text or messages to token ids."""
    body = await read_body(request, TokenizeBody)
    return _json(await asyncio.to_thread(_tokenize, front, body))


async def detokenize(front: Front, request: Request) -> Response:
    """POST /detokenize: token ids to text, control tokens by name."""
    body = await read_body(request, DetokenizeBody)
    front.check_model(body.model)
    check_tokens(front, body.tokens, "tokens")
    text = await asyncio.to_thread(lambda: b"".join(map(front.names.bytes, body.tokens)).decode("utf-8", "replace"))
    reply: Detokenized = {"prompt": text}
    return _json(reply)


async def health(front: Front, request: Request) -> Response:
    """GET /health: the process is alive, whatever the ring does."""
    return _json(_alive(front, "alive"))


async def ready(front: Front, request: Request) -> Response:
    """GET /ready: 200 while the ring is whole, else 503 and why."""
    state = front.service.state()
    if state is not ServiceState.READY:
        why = str(front.service.ring().get("detail", ""))  # which node is missing, say
        raise ring_unavailable(f"The ring is not whole: {state.value}. {why}".rstrip(), RETRY_AFTER_S)
    return _json(_alive(front, state.value))


async def metrics(front: Front, request: Request) -> Response:
    """GET /metrics, for Prometheus."""
    return Response(front.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def ring(front: Front, request: Request) -> Response:
    """GET /v1/ring: the placement and its live figures."""
    return _json(front.service.ring())


def _tokenize(front: Front, body: TokenizeBody) -> Tokenized:
    front.check_model(body.model)
    if body.prompt is not None:
        tokenizer = front.service.tokenizer
        special = body.add_special_tokens
        ids = (
            text_prompt(front, body.prompt)
            if special
            else tokenizer.tokenize(body.prompt, add_special=False, parse_special=True)
        )
    else:
        ids = chat_prompt(
            front, body.messages or (), body.tools or (), add_generation_prompt=body.add_generation_prompt
        )
    strs = [front.names.text(token) for token in ids] if body.return_token_strs else None
    return {"count": len(ids), "max_model_len": front.service.context, "tokens": ids, "token_strs": strs}


def _model(front: Front) -> Model:
    return {
        "id": front.service.model_id,
        "object": "model",
        "created": front.created,
        "owned_by": "ropeway",
        "context_length": front.service.context,
    }


def _alive(front: Front, status: str) -> Alive:
    return {"status": status, "model": front.service.model_id, "placement": front.service.fingerprint}


def _json(value: object) -> Response:
    return Response(to_json(value, inf_nan_mode="null"), media_type="application/json")

"""The application: routes, errors, the page, behind the guard."""

from __future__ import annotations

import functools

from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ropeway.api.errors import ApiError, internal_error
from ropeway.api.front import Front
from ropeway.api.guard import Guard
from ropeway.api.openapi import openapi_document
from ropeway.api.routes import ROUTES
from ropeway.api.settings import Settings
from ropeway.api.sse import ClientGone
from ropeway.api.static import page_routes
from ropeway.serving.service import Service


def create_app(service: Service, settings: Settings | None = None) -> ASGIApp:
    """The ASGI application of rank 0's front door."""
    settings = settings or Settings()
    front = Front(service, settings)
    document = to_json(openapi_document(ROUTES, keyed=bool(settings.api_keys)))

    async def openapi(request: Request) -> Response:
        return Response(document, media_type="application/json")

    routes = [
        Route(
            # A model's id may hold slashes.
            described.path.replace("{id}", "{id:path}"),
            functools.partial(described.endpoint, front),
            methods=[described.method],
        )
        for described in ROUTES
    ]
    app = Starlette(
        routes=[*routes, Route("/openapi.json", openapi), *page_routes(settings.page)],
        exception_handlers={
            ApiError: _refused,
            HTTPException: _not_served,
            ClientGone: _nobody,
            Exception: _failed,
        },
    )
    return Guard(app, front)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _not_served(request: Request, error: Exception) -> Response:
    """Starlette's own refusals: an unknown path, a wrong method."""
    assert isinstance(error, HTTPException)
    text = f"{request.method} {request.url.path[:200]}: {error.detail}."
    return ApiError(error.status_code, "invalid_request_error", text, None, "not_found", error.headers).response()


async def _nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nginx's number; nobody reads it but our metrics


async def _failed(request: Request, error: Exception) -> Response:
    """Our own mistake; Starlette raises it again, so that the server logs it."""
    return internal_error().response()

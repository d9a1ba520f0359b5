"""The OpenAPI 3.1 document, from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from ropeway import __version__
from ropeway.api.errors import ErrorReply
from ropeway.api.routes import Described

Json = dict[str, Any]

_REF: Final = "#/components/schemas/{model}"
_RETRIED: Final = frozenset({429, 503})


def openapi_document(routes: Sequence[Described], *, keyed: bool) -> Json:
    """The document. `keyed`: this server asks for a key."""
    kinds: list[tuple[Any, JsonSchemaMode]] = [(ErrorReply, "serialization")]
    for route in routes:
        kinds += [(route.body, "validation")] if route.body is not None else []
        kinds += [(kind, "serialization") for kind in (route.reply, route.event) if kind is not None]
    inputs = [(str(at), mode, TypeAdapter(kind)) for at, (kind, mode) in enumerate(kinds)]
    schemas, shared = TypeAdapter.json_schemas(inputs, ref_template=_REF)
    by_kind = {(str(kind), mode): schemas[str(at), mode] for at, (kind, mode) in enumerate(kinds)}

    def schema(kind: object, mode: JsonSchemaMode = "serialization") -> Json:
        return by_kind[str(kind), mode]

    paths: Json = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema, keyed=keyed)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ropeway",
            "version": __version__,
            "description": "OpenAI-compatible routes over one model that is split by layers over several machines.",
        },
        "paths": paths,
        "components": {
            "schemas": shared.get("$defs", {}),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Described, schema: Any, *, keyed: bool) -> Json:
    content: Json = {route.media: {"schema": {"type": "string"} if route.reply is None else schema(route.reply)}}
    if route.event is not None:
        content["text/event-stream"] = {"schema": {"type": "string"}, "x-event-schema": schema(route.event)}
    responses: Json = {"200": {"description": "Well.", "content": content}}
    for status in sorted({*route.errors, *((401,) if keyed and route.keyed else ())}):
        response: Json = {
            "description": HTTPStatus(status).phrase + ".",
            "content": {"application/json": {"schema": schema(ErrorReply)}},
        }
        if status in _RETRIED:
            response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
        responses[str(status)] = response
    operation: Json = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "summary": route.summary,
        "responses": responses,
    }
    if keyed and route.keyed:
        operation["security"] = [{"key": []}]
    if route.body is not None:
        taken = {"application/json": {"schema": schema(route.body, "validation")}}
        operation["requestBody"] = {"required": True, "content": taken}
    if names := re.findall(r"{(\w+)}", route.path):
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    return operation

"""The page at /: every file of one directory, read once, so that no request can name any other."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
"""What is served; other files of the directory are not."""

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Kept, but asked about each time: an update of the package shows at once, and costs a 304 otherwise.
    "Cache-Control": "no-cache",
}
INDEX: Final = "index.html"


@dataclass(frozen=True, slots=True)
class _File:
    data: bytes
    type: str
    tag: str


def page_routes(directory: Path) -> list[Route]:
    """A route for each file of `directory`, and / for its index; none where it does not exist."""
    routes: list[Route] = []
    for path in sorted(directory.rglob("*")) if directory.is_dir() else ():
        if path.suffix in TYPES and path.is_file():
            data = path.read_bytes()
            file = _File(data, TYPES[path.suffix], f'"{hashlib.sha256(data).hexdigest()[:32]}"')
            name = path.relative_to(directory).as_posix()
            routes += [
                Route(f"/{at}", functools.partial(page, file)) for at in ({name, ""} if name == INDEX else {name})
            ]
    return routes


async def page(file: _File, request: Request) -> Response:
    """GET of a file."""
    headers = {**HEADERS, "ETag": file.tag}
    asked = [tag.strip().removeprefix("W/") for tag in request.headers.get("If-None-Match", "").split(",")]
    if file.tag in asked or "*" in asked:
        return Response(status_code=304, headers=headers)
    return Response(file.data, headers={**headers, "Content-Type": file.type})

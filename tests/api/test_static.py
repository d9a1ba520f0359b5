"""The page's files: types, caching, the policy, and that nothing else can be reached."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.fake_service import FakeService
from api.live import Live, serving
from ropeway.api import Settings


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with a page of three files."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "secret.html").write_text("no")
    page = folder / "page"
    (page / "parts").mkdir(parents=True)
    (page / "index.html").write_text("<!doctype html><title>é</title>", encoding="utf-8")
    (page / "parts" / "ring.js").write_text("export {}")
    (page / "style.css").write_text("a{}")
    (page / "notes.py").write_text("no")
    with serving(FakeService(), Settings(page=page)) as live:
        yield live


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/index.html", "text/html; charset=utf-8"),
        ("/parts/ring.js", "text/javascript; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
    ],
)
def test_files(paged: Live, path: str, kind: str) -> None:
    answer = paged.ask("GET", path)
    assert (answer.status, answer.headers["content-type"]) == (200, kind)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-cache"
    again = paged.ask("GET", path, headers={"If-None-Match": f'"x", W/{answer.headers["etag"]}'})
    assert (again.status, again.body) == (304, b"")
    assert paged.ask("GET", path, headers={"If-None-Match": '"x"'}).status == 200
    head = paged.ask("HEAD", path)
    assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/notes.py",
        "/parts",
        "/parts/",
        "/../secret.html",
        "/%2e%2e/secret.html",
        "/parts/..%2f..%2fsecret.html",
        "//etc/passwd",
    ],
)
def test_nothing_else(paged: Live, path: str) -> None:
    answer = paged.ask("GET", path)
    assert answer.status == 404
    assert answer.error["code"] == "not_found"


def test_a_package_without_a_page_still_serves(tmp_path: Path) -> None:
    with serving(FakeService(), Settings(page=tmp_path / "none")) as live:
        assert live.ask("GET", "/").status == 404
        assert live.ask("GET", "/health").status == 200

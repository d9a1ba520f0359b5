"""GET with redirects, secrets that stay at home, and what each kind of answer becomes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from checkpoints.fetch.web_server import Answer, Site, serving
from ropeway.checkpoints.fetch.http import MAX_REDIRECTS, Secret, Web, site_of
from ropeway.checkpoints.fetch.source import Missing, SourceError


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site({"/file": b"content"})) as site:
        yield site


@pytest.fixture
def other() -> Iterator[Site]:
    with serving(Site({"/file": b"elsewhere"})) as site:
        yield site


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web(timeout_s=5)
    yield web
    web.close()


def to(url: str, status: int = 302) -> Answer:
    return Answer(status, {"Location": url})


def text(web: Web, url: str) -> bytes:
    return web.get(url).text(1000, "it")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed(web: Web, site: Site, other: Site, status: int) -> None:
    site.once(to(other.url + "/file", status))
    reply = web.get(site.url + "/file", {"Range": "bytes=0-3"})
    assert reply.status == 206
    assert reply.text(1000, "it") == b"else"
    assert reply.url == other.url + "/file"
    assert reply.first["Location"] == reply.url
    assert other.asked[0].headers["range"] == "bytes=0-3"


def test_a_redirect_may_be_relative(web: Web, site: Site) -> None:
    site.once(to("../file"), "/a/b")
    assert text(web, site.url + "/a/b") == b"content"


def test_a_secret_is_never_sent_to_another_host(site: Site, other: Site) -> None:
    web = Web(Secret(site_of(site.url), "the-secret"), timeout_s=5)
    site.once(to(other.url + "/there"), "/file")
    other.once(to(site.url + "/file"), "/there")
    assert text(web, site.url + "/file") == b"content"
    assert [asked.headers.get("authorization") for asked in site.asked] == ["Bearer the-secret"] * 2
    assert "authorization" not in other.asked[0].headers
    assert "the-secret" not in repr(Secret(site_of(site.url), "the-secret"))
    web.close()


def test_a_secret_is_never_sent_in_the_clear() -> None:
    for url in ("http://example.org/", "http://10.0.0.1:80/"):
        assert Secret(site_of(url), "s").header_for(site_of(url)) == {}
    here = site_of("https://example.org/a")
    assert Secret(here, "s").header_for(site_of("https://example.org:443/b")) == {"Authorization": "Bearer s"}
    for url in ("https://example.org:444/", "http://example.org:443/", "https://example.org.evil.net/"):
        assert Secret(here, "s").header_for(site_of(url)) == {}


@pytest.mark.parametrize(
    ("location", "match"),
    [
        ("file:///etc/passwd", "file:///etc/passwd is not a URL that can be fetched"),
        ("ftp://example.org/file", "is not a URL that can be fetched"),
        ("http://example.org:99999/", "is not a URL that can be fetched"),
        ("", "a redirect to nowhere"),
        ("http://[::1/file", "a redirect to what is no URL"),
        ("//[::1/file", "a redirect to what is no URL"),
    ],
)
def test_redirects_that_are_not_followed(web: Web, site: Site, location: str, match: str) -> None:
    site.once(to(location))
    with pytest.raises(SourceError, match=match) as caught:
        web.get(site.url + "/file")
    assert caught.value.lasting


def test_redirects_do_not_go_on_for_ever(web: Web, site: Site) -> None:
    site.times(99, to("/file"))
    with pytest.raises(SourceError, match=f"more than {MAX_REDIRECTS} redirects"):
        web.get(site.url + "/file")
    assert len(site.asked) == MAX_REDIRECTS + 1


@pytest.mark.parametrize(
    ("status", "lasting", "match"),
    [
        (404, True, "404 Not Found"),
        (410, True, "410 Gone"),
        (401, True, r"401 Unauthorized: it may need a token \(HF_TOKEN\)"),
        (403, True, "403 Forbidden: it may need a token"),
        (400, True, "400 Bad Request"),
        (429, False, "429 Too Many Requests"),
        (500, False, "500 Internal Server Error"),
        (503, False, "503 Service Unavailable"),
    ],
)
def test_statuses(web: Web, site: Site, status: int, lasting: bool, match: str) -> None:
    site.once(Answer(status, {"Retry-After": "7"}, b"an explanation"))
    with pytest.raises(SourceError, match=match) as caught:
        web.get(site.url + "/file?token=secret")
    assert caught.value.lasting is lasting
    assert caught.value.retry_after_s == (0 if lasting else 7)
    assert isinstance(caught.value, Missing) == (status in (404, 410))
    assert "secret" not in str(caught.value)
    assert text(web, site.url + "/file") == b"content"


@pytest.mark.parametrize(("value", "seconds"), [("99999", 120), ("Wed, 21 Oct 2026 07:28:00 GMT", 0), ("-5", 0)])
def test_how_long_a_server_may_ask_to_wait(web: Web, site: Site, value: str, seconds: int) -> None:
    site.once(Answer(503, {"Retry-After": value}))
    with pytest.raises(SourceError) as caught:
        web.get(site.url + "/file")
    assert caught.value.retry_after_s == seconds


def test_a_connection_is_kept_and_made_again(web: Web, site: Site) -> None:
    assert text(web, site.url + "/file") == b"content"
    assert text(web, site.url + "/file") == b"content"
    kept = site.asked[0].port
    site.once(Answer(302, {"Location": "/file"}))  # with no body
    assert text(web, site.url + "/file") == b"content"
    assert [asked.port for asked in site.asked] == [kept] * 4
    web.get(site.url + "/file")  # not read to its end
    assert text(web, site.url + "/file") == b"content"
    assert site.asked[5].port != kept
    web.get(site.url + "/file").close()
    assert text(web, site.url + "/file") == b"content"
    assert len(site.asked) == 8  # none was spoilt by what an earlier one left


def test_a_text_has_a_limit(web: Web, site: Site) -> None:
    with pytest.raises(SourceError, match="it has 7 bytes, the limit is 6"):
        web.get(site.url + "/file").text(6, "it")
    site.once(Answer(cut_after=3))
    with pytest.raises(SourceError, match="the connection was cut after 3 of 7 bytes"):
        text(web, site.url + "/file")


def test_another_encoding_is_refused(web: Web, site: Site) -> None:
    site.once(Answer(headers={"Content-Encoding": "gzip"}))
    with pytest.raises(SourceError, match="insists on the encoding 'gzip'"):
        web.get(site.url + "/file")
    assert site.asked[0].headers["accept-encoding"] == "identity"


def test_nobody_answers(web: Web, site: Site) -> None:
    with serving(Site()) as gone:
        url = gone.url
    with pytest.raises(SourceError, match=f"{url}/file: no answer: Connection refused") as caught:
        web.get(url + "/file?token=secret")
    assert not caught.value.lasting


@pytest.mark.parametrize("url", [f"http://{'a' * 70}.example/f", "http://[::1/f", "http://exa%6dple/f", "http:///f"])
def test_urls_of_nothing(web: Web, url: str) -> None:
    with pytest.raises(SourceError):
        web.get(url)


def test_what_is_not_ascii_is_quoted(web: Web, site: Site) -> None:
    site.files["/m%C3%BCll?x=%C3%A9&y=%20"] = b"quoted"
    assert text(web, site.url + "/müll?x=é&y=%20") == b"quoted"
    site.once(to("/müll?x=é&y=%20"), "/file")
    assert text(web, site.url + "/file") == b"quoted"


def test_a_body_that_drips_is_given_up(site: Site) -> None:
    now = [0.0]
    web = Web(timeout_s=5, clock=lambda: now[0])
    reply = web.get(site.url + "/file")
    one = memoryview(bytearray(1))
    assert reply.read_into(one) == 1
    now[0] = 61.0
    with pytest.raises(SourceError, match="only 2 bytes came in 60 s"):
        reply.read_into(one)
    web.close()


def test_a_proxy_of_the_environment(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", site.url)
    monkeypatch.delenv("no_proxy", raising=False)
    site.files["http://example.org/file?a=b"] = b"through the proxy"
    web = Web(Secret(site_of("http://example.org/"), "s"), timeout_s=5)
    assert text(web, "http://example.org/file?a=b") == b"through the proxy"
    assert site.asked[0].headers["host"] == "example.org"
    web.close()

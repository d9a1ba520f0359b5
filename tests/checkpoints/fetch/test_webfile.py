"""A file on a web server by ranges, also of servers that do not know them or that change their mind."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from checkpoints.fetch.web_server import Answer, Site, serving
from ropeway.checkpoints.fetch.http import Web
from ropeway.checkpoints.fetch.source import SourceError
from ropeway.checkpoints.fetch.webfile import FIRST_BYTES, WebFile

DATA = random.Random(2).randbytes(5 * FIRST_BYTES + 123)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site({"/m/file": DATA})) as site:
        yield site


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web(timeout_s=5)
    yield web
    web.close()


def read(file: WebFile, start: int, nbytes: int) -> bytes:
    found = bytearray()
    file.read(start, nbytes, found.extend)
    return bytes(found)


def test_a_range_is_read_and_nothing_else(web: Web, site: Site) -> None:
    file = WebFile(web, site.url + "/m/file")
    assert (file.facts.name, file.facts.nbytes, file.held) == ("file", len(DATA), ((0, len(DATA)),))
    assert site.sent == FIRST_BYTES
    assert read(file, 0, 100) == DATA[:100]
    assert site.sent == FIRST_BYTES  # known already
    assert read(file, FIRST_BYTES - 10, 30) == DATA[FIRST_BYTES - 10 :][:30]
    assert read(file, 40_000, 1000) == DATA[40_000:41_000]
    assert site.sent == FIRST_BYTES + 20 + 1000 == file.bytes_read
    assert [asked.headers["range"] for asked in site.asked] == [
        "bytes=0-16383",
        "bytes=16384-16403",
        "bytes=40000-40999",
    ]
    assert file.digest(0, 10) is None


def test_a_small_file(web: Web, site: Site) -> None:
    site.files["/m/small"] = b"small"
    file = WebFile(web, site.url + "/m/small")
    assert file.facts.nbytes == 5
    assert read(file, 1, 3) == b"mal"
    assert len(site.asked) == 1


def test_a_server_that_ignores_ranges(web: Web, site: Site) -> None:
    site.ranges = False
    file = WebFile(web, site.url + "/m/file")
    assert file.ignores_ranges
    assert read(file, 20_000, 1000) == DATA[20_000:21_000]
    assert read(file, 50_000, 1000) == DATA[50_000:51_000]
    assert len(site.asked) == 1  # one body, read on and on
    assert read(file, 30_000, 10) == DATA[30_000:30_010]
    assert len(site.asked) == 2
    file.close()


def test_a_server_that_ignores_a_range_now_and_then(web: Web, site: Site) -> None:
    file = WebFile(web, site.url + "/m/file")
    site.once(Answer(whole=True))
    assert read(file, 60_000, 500) == DATA[60_000:60_500]
    assert file.ignores_ranges


def test_a_connection_that_is_cut(web: Web, site: Site) -> None:
    file = WebFile(web, site.url + "/m/file")
    site.once(Answer(cut_after=700))
    found = bytearray()
    with pytest.raises(SourceError, match="cut after 700 of 9000 bytes") as caught:
        file.read(30_000, 9000, found.extend)
    assert not caught.value.lasting
    assert found == DATA[30_000:30_700]
    assert read(file, 30_700, 8300) == DATA[30_700:39_000]


@pytest.mark.parametrize(
    ("headers", "match"),
    [
        ({"ETag": '"another"'}, "the file has changed since the fetch began"),
        ({"Content-Range": f"bytes 30000-30099/{len(DATA) + 1}"}, "the file has changed"),
        ({"Content-Range": f"bytes 30001-30100/{len(DATA)}"}, "gave bytes 30001-30100, asked for 30000-30099"),
        ({"Content-Range": "bytes 30000-30099/*"}, "gave the range 'bytes 30000-30099/\\*'"),
        ({"Content-Range": f"bytes 30000-29999/{len(DATA)}"}, "gave the range"),
        ({"Content-Range": f"bytes 30000-30198/{len(DATA)}"}, "in 100 bytes"),
        ({"Content-Range": ""}, "gave the range ''"),
    ],
)
def test_answers_to_another_question(web: Web, site: Site, headers: dict[str, str], match: str) -> None:
    file = WebFile(web, site.url + "/m/file")
    site.once(Answer(headers=headers))
    with pytest.raises(SourceError, match=match):
        read(file, 30_000, 100)
    assert read(file, 30_000, 100) == DATA[30_000:30_100]


def test_a_file_that_shrank(web: Web, site: Site) -> None:
    file = WebFile(web, site.url + "/m/file")
    site.files["/m/file"] = DATA[:20_000]
    with pytest.raises(SourceError, match="the file has changed"):
        read(file, 30_000, 100)
    site.ranges = False
    with pytest.raises(SourceError, match="the file has changed"):
        read(file, 30_000, 100)


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (Answer(200, {"Transfer-Encoding": "chunked", "Content-Length": ""}, b"0\r\n\r\n"), "does not say how long"),
        (Answer(200, {"Content-Length": str(1 << 50)}), "counts 1125899906842624 bytes, which is no checkpoint"),
        (Answer(206, {"Content-Range": f"bytes 0-99/{len(DATA)}"}, b"x" * 100), "not what it was asked for"),
        (Answer(416, {}), "the file is empty"),
    ],
)
def test_files_that_are_not_opened(web: Web, site: Site, answer: Answer, match: str) -> None:
    site.once(answer)
    with pytest.raises(SourceError, match=match):
        WebFile(web, site.url + "/m/file")


def test_what_tells_contents_apart(web: Web, site: Site) -> None:
    sha, blob = "a" * 64, "b" * 40
    url = site.url + "/m/file"

    def tag(*, hub: bool = False, **headers: str) -> str:
        site.faults.clear()
        site.once(Answer(headers={name.replace("_", "-"): value for name, value in headers.items()}))
        return WebFile(web, url, hub=hub).facts.tag

    assert tag(hub=True, X_Linked_Etag=f'"{sha}"') == f"sha256:{sha}"
    assert tag(hub=True, ETag=f'"{blob}"') == f"git:{blob}"
    assert tag(X_Linked_Etag=f'"{sha}"', ETag='"v1"') == f'etag:{url} "v1"'  # anybody can claim a digest
    assert tag(ETag='W/"v1"', Last_Modified="Mon") == f"date:{url} Mon"
    assert tag(ETag='W/"v1"') == f"url:{url}"

"""One file on a web server, read by byte ranges (RFC 9110 14), also where the server does not know them."""

from __future__ import annotations

import re
from email.message import Message
from urllib.parse import urlsplit

from ropeway.checkpoints.fetch.http import Web
from ropeway.checkpoints.fetch.ranges import Ranges
from ropeway.checkpoints.fetch.reply import Reply, whole_number
from ropeway.checkpoints.fetch.source import MAX_FILE_BYTES, FileFacts, Sink, SourceError
from ropeway.checkpoints.fetch.spec import public_url

FIRST_BYTES = 16 << 10
"""The first request asks for so many, because every format starts with its header."""
_BUFFER_BYTES = 1 << 20
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
_SHA256 = re.compile(r'"?([0-9a-f]{64})"?')
_GIT_BLOB = re.compile(r'"?([0-9a-f]{40})"?')


class WebFile:
    """A file at a URL. Raises SourceError where it cannot be reached or does not say its size.

    A server that ignores Range is read from its start on, and what is
    not wanted is dropped: `ignores_ranges` says so. On the `hub` alone the digest that the server names is believed to
    be the content's, because it decides what is taken for the same file.
    """

    def __init__(self, web: Web, url: str, name: str = "", *, hub: bool = False) -> None:
        self._web = web
        self._hub = hub
        self._url = url
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._whole: tuple[Reply, int] | None = None
        self.label = urlsplit(url).netloc.rpartition("@")[2]
        self.bytes_read = 0
        self.requests = 0
        self.ignores_ranges = False
        self._first = b""
        self._etag: str | None = None
        self.facts = self._open(name or urlsplit(url).path.rpartition("/")[2])

    @property
    def held(self) -> Ranges:
        """All of it."""
        return ((0, self.facts.nbytes),)

    def read(self, start: int, nbytes: int, sink: Sink) -> None:
        """As `Source`."""
        if start < len(self._first):
            known = memoryview(self._first)[start : start + nbytes]
            sink(known)
            start, nbytes = start + len(known), nbytes - len(known)
        if not nbytes:
            return
        if self._whole is not None and self._whole[1] <= start:
            self._read_on(start, nbytes, sink)
            return
        reply = self._ask(start, start + nbytes - 1)
        if reply.status == 206:
            self._check(reply, start, start + nbytes - 1)
            self._body(reply, nbytes, sink)
            return
        self._judge_whole(reply)
        self._read_on(start, nbytes, sink)

    def digest(self, start: int, nbytes: int) -> str | None:
        """Web servers give no digests of ranges."""
        return None

    def close(self) -> None:
        """Give a body up that is half read."""
        if self._whole is not None:
            self._whole[0].close()
            self._whole = None

    def _open(self, name: str) -> FileFacts:
        reply = self._ask(0, FIRST_BYTES - 1)
        if reply.status == 416:
            raise SourceError(f"{reply.label}: the file is empty", lasting=True)
        if reply.status == 200:
            size = reply.length
            if size is None:
                raise SourceError(f"{reply.label}: the server does not say how long the file is", lasting=True)
            self.ignores_ranges = size > FIRST_BYTES
            self._whole = (reply, 0)
            last = min(size, FIRST_BYTES) - 1
        else:
            first, last, size = _content_range(reply)
            if first != 0 or last != min(size, FIRST_BYTES) - 1:
                raise SourceError(f"{reply.label}: the server gave bytes {first}-{last}, not what it was asked for")
        if not 0 < size <= MAX_FILE_BYTES:
            raise SourceError(f"{reply.label}: the server counts {size} bytes, which is no checkpoint", lasting=True)
        self._etag = _strong_etag(reply.headers)
        facts = FileFacts(name, size, _tag(reply, public_url(self._url), self._hub))
        parts: list[bytes] = []
        if self._whole is not None:
            self._read_on(0, last + 1, lambda view: parts.append(bytes(view)))
        else:
            self._body(reply, last + 1, lambda view: parts.append(bytes(view)))
        self._first = b"".join(parts)
        return facts

    def _ask(self, first: int, last: int) -> Reply:
        self.close()
        self.requests += 1
        return self._web.get(self._url, {"Range": f"bytes={first}-{last}"})

    def _check(self, reply: Reply, first: int, last: int) -> None:
        """Refuse another range than was asked for, and another file than the one that was begun."""
        found = _content_range(reply)
        if found[2] != self.facts.nbytes:
            reply.close()
            raise self._changed(reply)
        if found[:2] != (first, last):
            reply.close()
            raise SourceError(f"{reply.label}: the server gave bytes {found[0]}-{found[1]}, asked for {first}-{last}")
        self._check_etag(reply)

    def _judge_whole(self, reply: Reply) -> None:
        if reply.status == 416 or reply.length != self.facts.nbytes:
            reply.close()
            raise self._changed(reply)
        self._check_etag(reply)
        self.ignores_ranges = True
        self._whole = (reply, 0)

    def _check_etag(self, reply: Reply) -> None:
        etag = _strong_etag(reply.headers)
        if self._etag is not None and etag is not None and etag != self._etag:
            reply.close()
            raise self._changed(reply)

    def _changed(self, reply: Reply) -> SourceError:
        return SourceError(f"{reply.label}: the file has changed since the fetch began; start again", lasting=True)

    def _read_on(self, start: int, nbytes: int, sink: Sink) -> None:
        """Take a range out of a whole body that is being read, dropping what comes before it."""
        assert self._whole is not None
        reply, at = self._whole
        self._whole = None  # until this went well
        self._body(reply, start - at, lambda _: None)
        self._body(reply, nbytes, sink)
        self._whole = (reply, start + nbytes)

    def _body(self, reply: Reply, nbytes: int, sink: Sink) -> None:
        left = nbytes
        while left:
            count = reply.read_into(self._buffer[: min(left, _BUFFER_BYTES)])
            if not count:
                raise SourceError(f"{reply.label}: the connection was cut after {nbytes - left} of {nbytes} bytes")
            self.bytes_read += count
            left -= count
            sink(self._buffer[:count])


def _content_range(reply: Reply) -> tuple[int, int, int]:
    text = reply.headers.get("Content-Range", "")
    match = _CONTENT_RANGE.fullmatch(text)
    if match is None:
        reply.close()
        raise SourceError(f"{reply.label}: the server gave the range {text[:60]!r}", lasting=True)
    first, last, size = (int(number) for number in match.groups())
    length = whole_number(reply.headers.get("Content-Length"))
    if not first <= last < size or length not in (None, last - first + 1):
        reply.close()
        raise SourceError(f"{reply.label}: the server gave the range {text[:60]!r} in {length} bytes", lasting=True)
    return first, last, size


def _strong_etag(headers: Message) -> str | None:
    etag = headers.get("ETag")
    return None if etag is None or etag.startswith("W/") or len(etag) > 256 else etag


def _tag(reply: Reply, url: str, hub: bool) -> str:
    """What tells this content from another. Hugging Face names the SHA-256 of large files, and git's digest of others.

    Source: the headers X-Linked-Etag and ETag of https://huggingface.co/ORG/NAME/resolve/REVISION/FILE.
    """
    for value in (reply.first.get("X-Linked-Etag", ""), reply.first.get("ETag", "")) if hub else ():
        if match := _SHA256.fullmatch(value):
            return f"sha256:{match[1]}"
        if match := _GIT_BLOB.fullmatch(value):
            return f"git:{match[1]}"
    etag = _strong_etag(reply.headers)
    if etag is not None:
        return f"etag:{url} {etag}"
    changed = reply.headers.get("Last-Modified", "")[:64]
    return f"date:{url} {changed}" if changed else f"url:{url}"

"""Another node as a source, and this node as one for others: the exchange over a connected stream socket.

A socket of any kind will do: TCP, Unix, or one end of a pair whose other end a node's agent carries over iroh.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from ropeway.checkpoints.fetch.exchange import (
    DATA_BYTES,
    PREFACE,
    READ_BYTES,
    Answer,
    Ask,
    Asker,
    Data,
    End,
    ExchangeError,
    Giver,
    Have,
    Read,
    Refused,
    Request,
)
from ropeway.checkpoints.fetch.holdings import copies, held_here
from ropeway.checkpoints.fetch.ranges import Ranges, covers
from ropeway.checkpoints.fetch.source import FileFacts, Missing, Sink, Source, SourceError

ANSWER_S: Final = 30.0
"""Longest wait for the next bytes of an answer, and for the other side to take ours."""
_RECEIVE_BYTES = 1 << 20


class PeerSource:
    """One file of another node. `connect` gives a connected stream socket; it is called again after a loss.

    Raises SourceError where the node cannot be asked, Missing where it does not know the file.
    """

    def __init__(self, connect: Callable[[], socket.socket], key: str, label: str, timeout_s: float = ANSWER_S) -> None:
        self.label = label
        self._key = key
        self._line = _Line(connect, label, timeout_s)
        self._digests = _Line(connect, label, timeout_s)  # a digest may be wanted in the middle of a read
        have = self._line.ask(Ask(key))
        if not isinstance(have, Have) or have.facts.key != key:
            self.close()
            raise SourceError(f"{label}: it named another file than it was asked for", lasting=True)
        self.facts: FileFacts = have.facts
        self.held: Ranges = have.held

    @property
    def bytes_read(self) -> int:
        """As `Source`."""
        return self._line.bytes_read + self._digests.bytes_read

    def read(self, start: int, nbytes: int, sink: Sink) -> None:
        """As `Source`."""
        end = start + nbytes
        while start < end:
            count = min(end - start, READ_BYTES)
            for answer in self._line.answers(Read(self._key, start, count)):
                if isinstance(answer, Data):
                    sink(answer.view)
            start += count

    def digest(self, start: int, nbytes: int) -> str | None:
        """SHA-256 hex of a range as the node has it; None for more than one request may ask for."""
        if nbytes > READ_BYTES or not covers(self.held, start, start + nbytes):
            return None
        end = self._digests.ask(Read(self._key, start, nbytes, digest_only=True))
        return end.sha256 if isinstance(end, End) else None

    def close(self) -> None:
        """Close the connections."""
        self._line.close()
        self._digests.close()


class _Line:
    """One connection to a node, made when it is needed; one request at a time."""

    def __init__(self, connect: Callable[[], socket.socket], label: str, timeout_s: float) -> None:
        self.bytes_read = 0
        self._connect = connect
        self._label = label
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._asker = Asker()
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))

    def ask(self, request: Request) -> Answer:
        """The last answer. Raises SourceError."""
        return list(self.answers(request))[-1]

    def answers(self, request: Request) -> Iterator[Answer]:
        """Every answer as it comes. Raises SourceError."""
        done = False
        try:
            self._send(request)
            while not done:
                for answer in self._asker.feed(self._receive()):
                    if isinstance(answer, Refused):
                        done = True
                        raise self._refusal(request, answer)
                    done = isinstance(answer, End | Have)
                    yield answer
        except ExchangeError as error:
            raise SourceError(f"{self._label}: {error}", lasting=True) from None
        finally:
            if not done:
                self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _refusal(self, request: Request, answer: Refused) -> SourceError:
        text = f"{self._label}: {answer.text}"
        return (
            Missing(text) if isinstance(request, Ask) and answer.lasting else SourceError(text, lasting=answer.lasting)
        )

    def _send(self, request: Request) -> None:
        try:
            if self._socket is None:
                self._socket = self._connect()
                self._socket.settimeout(self._timeout_s)
                self._asker = Asker()
                self._socket.sendall(PREFACE)
            self._socket.sendall(self._asker.request(request))
        except OSError as error:
            raise self._lost(error) from None

    def _receive(self) -> memoryview:
        assert self._socket is not None
        try:
            count = self._socket.recv_into(self._buffer)
        except OSError as error:
            raise self._lost(error) from None
        if not count:
            raise SourceError(f"{self._label}: the connection was cut")
        self.bytes_read += count
        return self._buffer[:count]

    def _lost(self, error: OSError) -> SourceError:
        why = "nothing came in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return SourceError(f"{self._label}: {why}")


class Holder(Protocol):
    """What a node gives to others."""

    def find(self, key: str) -> Source | None:
        """The file of this key, as far as it is here; None where it is not known."""
        ...


class Shelf:
    """The files of this node: those that were added, whole, and what the cache holds of others."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._added: dict[str, Source] = {}

    def add(self, source: Source) -> str:
        """Give a file to others, such as a `whole_file` of this machine; its key."""
        self._added[source.facts.key] = source
        return source.facts.key

    def find(self, key: str) -> Source | None:
        """As `Holder`."""
        if added := self._added.get(key):
            return added
        for _, facts, _ in copies(self._cache):
            if facts.key == key:
                return held_here(self._cache, facts)
        return None


def serve(connection: socket.socket, holder: Holder, timeout_s: float = ANSWER_S) -> None:
    """Answer one asker until it leaves, breaks a rule, or takes nothing for `timeout_s`. Never raises OSError.

    An asker may be silent between requests for as long as its connection lives.
    """
    giver = Giver()
    known: dict[str, Source] = {}
    buffer = memoryview(bytearray(4096))
    try:
        connection.sendall(PREFACE)
        while count := _wait(connection, buffer):
            for request in giver.feed(buffer[:count]):
                connection.settimeout(timeout_s)
                _give(connection, holder, known, request)
    except (OSError, ExchangeError):
        return
    finally:
        connection.close()


def _wait(connection: socket.socket, buffer: memoryview) -> int:
    connection.settimeout(None)
    return connection.recv_into(buffer)


def _give(connection: socket.socket, holder: Holder, known: dict[str, Source], request: Request) -> None:
    source = known.get(request.key) or holder.find(request.key)
    if source is None:
        connection.sendall(Giver.answer(Refused("this node does not have that file", lasting=True)))
        return
    known[request.key] = source
    if isinstance(request, Ask):
        connection.sendall(Giver.answer(Have(source.facts, source.held)))
        return
    digest = hashlib.sha256()

    def send(view: memoryview) -> None:
        digest.update(view)
        if not request.digest_only:
            for at in range(0, len(view), DATA_BYTES):
                connection.sendall(Giver.answer(Data(view[at : at + DATA_BYTES])))

    try:
        if not covers(source.held, request.start, request.start + request.nbytes):
            raise SourceError("this node does not hold those bytes", lasting=True)
        source.read(request.start, request.nbytes, send)
    except SourceError as error:
        known.pop(request.key, None)
        connection.sendall(Giver.answer(Refused(_public(error), lasting=True)))
        return
    connection.sendall(Giver.answer(End(digest.hexdigest())))


def _public(error: SourceError) -> str:
    """What another node may hear: no paths of this machine."""
    return str(error) if str(error).startswith("this node") else "this node cannot read those bytes any more"

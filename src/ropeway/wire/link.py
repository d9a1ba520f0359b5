"""One end of one connection, without sockets (sans-IO): bytes in, events out, and frames to send.

The link lends memory to read into and never copies a row. It reads no clock, draws no randomness (the hello brings
its nonce) and holds no lock: one thread may read while another writes, once the hello is done.
"""

from __future__ import annotations

from collections.abc import Callable

from ropeway.wire.boot import Describe, Ready, decode_describe, decode_ready
from ropeway.wire.conversation import Conversation, State
from ropeway.wire.errors import ErrorCode, ProtocolError
from ropeway.wire.events import (
    Described,
    DoneHeard,
    EchoHeard,
    Event,
    FateHeard,
    HelloDone,
    PlanHeard,
    ProbeHeard,
    ReadyHeard,
    RowsHeard,
    TokensHeard,
)
from ropeway.wire.frames import HEADER_BYTES, Channel, Header, Kind, decode_header, encode_header
from ropeway.wire.handshake import Handshake
from ropeway.wire.hello import Hello, Side
from ropeway.wire.plan import decode_plan
from ropeway.wire.results import Done, Fate, FateKind, Tokens, decode_done, decode_fate, decode_tokens

Buffers = tuple[bytes | memoryview, ...]
"""One frame, ready for `sendmsg`."""


class Link:
    """One end of one connection.

    `side` is ours. `channel` is what we dial for; an acceptor may pass None and takes the dialer's word. It overrides
    `hello.channel`. `hello` is ours, with a fresh nonce; `key` has 32 bytes. `accept` judges the peer's hello further
    (a rank that is connected already: `duplicate_rank`) before it has proved itself, so it must keep nothing. `lend`
    gives the memory for a rows frame, once its header is judged; it raises ProtocolError `rows_length` where the plan
    implies another length, and may block until that plan is known. Raises ValueError for a bad key or no channel.
    """

    def __init__(
        self,
        side: Side,
        channel: Channel | None,
        hello: Hello,
        key: bytes,
        accept: Callable[[Hello], None] | None = None,
        lend: Callable[[Header], memoryview] | None = None,
    ) -> None:
        self._side = side
        self._handshake = Handshake(side, channel, hello, key, accept)
        self._lend = lend
        self._conversation = Conversation()
        self._proved = False
        self._outgoing: list[bytes] = []
        self._error: ProtocolError | None = None
        self._scratch = memoryview(bytearray(HEADER_BYTES))
        self._header: Header | None = None
        self._view = self._scratch
        self._filled = 0
        if side is Side.DIALER:
            self._queue(Kind.HELLO, self._handshake.make_hello())

    @property
    def proved(self) -> bool:
        """Both proofs have passed."""
        return self._proved

    @property
    def peer(self) -> Hello | None:
        """The peer's hello, once heard; believe it only where `proved`."""
        return self._handshake.peer

    def buffer(self) -> memoryview:
        """Where the next bytes belong; never empty. Raises the link's error again once it has failed."""
        if self._error is not None:
            raise self._error
        return self._view[self._filled :] if self._filled else self._view

    def received(self, count: int) -> Event | None:
        """`count` bytes have been written into `buffer()`. Gives an event when they complete a frame that has one.

        Raises ProtocolError, the peer's mistake; after that nothing but a fate can be sent.
        """
        view = self._view
        if not 0 < count <= len(view) - self._filled:
            raise ValueError(f"count: {count}, outside 1..{len(view) - self._filled}")
        self._filled += count
        if self._filled < len(view):
            return None
        try:
            return self._complete()
        except ProtocolError as error:
            self._error = error
            raise

    def eof(self) -> None:
        """The peer has closed.

        Raises ProtocolError `truncated` inside a frame, `peer_lost` where no fate announced it (a probe needs none).
        """
        if self._error is not None:
            raise self._error
        if self._header is not None or self._filled:
            missing = len(self._view) - self._filled
            what = "header" if self._header is None else f"{self._header.kind.label} frame"
            raise ProtocolError(ErrorCode.TRUNCATED, f"the connection ended {missing} bytes short of a {what}")
        conversation = self._conversation
        if conversation.state is not State.PROBE and not conversation.ended(self._side.other):
            raise ProtocolError(
                ErrorCode.PEER_LOST,
                f"the connection ended without a fate, while it waited for {conversation.state.label}",
            )

    def _complete(self) -> Event | None:
        """The header or the payload is complete."""
        header = self._header
        if header is None:
            header = decode_header(self._scratch)
            self._conversation.judge(self._side.other, header)
            self._filled = 0
            if header.length:
                self._view = self._room(header)
                self._header = header
                return None
        payload = self._view if self._header is not None else memoryview(b"")
        self._header = None
        self._view = self._scratch
        self._filled = 0
        return self._hear(header, payload)

    def _room(self, header: Header) -> memoryview:
        """Memory of exactly the payload's judged size."""
        if header.kind is not Kind.ROWS:
            return memoryview(bytearray(header.length))
        if self._lend is None:
            raise ProtocolError(ErrorCode.ROWS_LENGTH, f"nobody here takes {header.rows} rows")
        room = self._lend(header).cast("B")
        if len(room) != header.length:
            raise ValueError(f"lend: memory of {len(room)} bytes for rows of {header.length}")
        return room

    def _hear(self, header: Header, payload: memoryview) -> Event | None:
        match header.kind:
            case Kind.ROWS:
                return RowsHeard(header.round, header.part, header.rows, payload)
            case Kind.PLAN:
                return PlanHeard(header.round, decode_plan(payload))
            case Kind.DONE:
                done = decode_done(payload)
                self._judge_rank(done.rank, 0)
                return DoneHeard(header.round, done)
            case Kind.TOKENS:
                return TokensHeard(header.round, decode_tokens(payload))
            case Kind.HELLO:
                self._hear_hello(payload)
                return None
            case Kind.PROOF:
                return self._hear_proof(payload)
            case Kind.DESCRIBE:
                return Described(decode_describe(payload))
            case Kind.READY:
                ready = decode_ready(payload)
                self._judge_rank(ready.rank, 8)
                return ReadyHeard(ready)
            case Kind.FATE:
                return self._hear_fate(payload)
            case Kind.PROBE:
                return ProbeHeard(header.round, header.length)
            case Kind.ECHO:
                return EchoHeard(header.round)

    def _judge_rank(self, rank: int, at: int) -> None:
        peer = self._handshake.peer
        assert peer is not None
        if rank != peer.rank:
            raise ProtocolError(ErrorCode.WRONG_RANK, f"rank is {rank}, the peer's hello said {peer.rank}", at)

    def _hear_hello(self, payload: memoryview) -> None:
        handshake = self._handshake
        handshake.hear_hello(payload)
        self._conversation.channel = handshake.channel
        self._conversation.edge_back = handshake.edge_back
        if self._side is Side.ACCEPTOR:
            self._queue(Kind.HELLO, handshake.make_hello())
        else:
            self._queue(Kind.PROOF, handshake.make_proof())

    def _hear_proof(self, payload: memoryview) -> HelloDone:
        handshake = self._handshake
        handshake.hear_proof(payload)
        self._proved = True
        if self._side is Side.ACCEPTOR:
            self._queue(Kind.PROOF, handshake.make_proof())
        assert handshake.peer is not None
        return HelloDone(handshake.peer)

    def _hear_fate(self, payload: memoryview) -> FateHeard:
        fate = decode_fate(payload)
        peer = self._handshake.peer
        if self.proved and peer is not None and fate.rank >= peer.world:
            raise ProtocolError(
                ErrorCode.WRONG_RANK, f"the fate began at rank {fate.rank} in a world of {peer.world}", 4
            )
        if fate.what is not FateKind.DRAIN:
            self._conversation.end(self._side.other)
        return FateHeard(fate, self.proved)

    def outgoing(self) -> list[bytes]:
        """Frames of the hello and proof that are due now, each once."""
        due, self._outgoing = self._outgoing, []
        return due

    def _queue(self, kind: Kind, payload: bytes) -> None:
        self._outgoing.append(self._head(kind, len(payload)) + payload)

    def _head(self, kind: Kind, length: int, round_: int = 0, rows: int = 0, part: int = 0) -> bytes:
        """The header of a frame of ours, judged as the peer will judge it. Raises ProtocolError, our own mistake."""
        if self._error is not None and kind is not Kind.FATE:
            raise self._error
        header = Header(kind, round_, rows, part, length)
        raw = encode_header(header)
        self._conversation.judge(self._side, header)
        return raw

    def send_describe(self, describe: Describe) -> Buffers:
        """A stage's description, to rank 0."""
        payload = describe.encode()
        return self._head(Kind.DESCRIBE, len(payload)), payload

    def send_ready(self, ready: Ready) -> Buffers:
        """A stage is ready, to rank 0."""
        payload = ready.encode()
        return self._head(Kind.READY, len(payload)), payload

    def send_plan(self, round_: int, payload: bytes) -> Buffers:
        """An encoded plan (`Plan.encode()`), to one stage; each plan's round is higher than the one before."""
        return self._head(Kind.PLAN, len(payload), round_), payload

    def send_rows(self, round_: int, part: int, rows: int, payload: memoryview) -> Buffers:
        """One part's rows, to the next rank. `payload` is not copied: leave it alone until it has been sent."""
        return self._head(Kind.ROWS, payload.nbytes, round_, rows, part), payload

    def send_tokens(self, round_: int, tokens: Tokens) -> Buffers:
        """A round's tokens, from the last rank to rank 0."""
        payload = tokens.encode()
        return self._head(Kind.TOKENS, len(payload), round_), payload

    def send_done(self, round_: int, done: Done) -> Buffers:
        """A stage's end of a round, to rank 0."""
        payload = done.encode()
        return self._head(Kind.DONE, len(payload), round_), payload

    def send_alive(self) -> Buffers:
        """A stage's answer to a keep-alive: a done that repeats the round of its last one, 0 before the first."""
        return self.send_done(self._conversation.last_round(self._side), Done(self._handshake.rank))

    def send_fate(self, fate: Fate) -> Buffers:
        """How the ring ends, or that it will. Legal at any time until one that ends it, also after an error."""
        payload = fate.encode()
        head = self._head(Kind.FATE, len(payload))
        if fate.what is not FateKind.DRAIN:
            self._conversation.end(self._side)
        return head, payload

    def send_probe(self, round_: int, payload: memoryview) -> Buffers:
        """A probe of any bytes, numbered `round_`."""
        return self._head(Kind.PROBE, payload.nbytes, round_), payload

    def send_echo(self, round_: int) -> Buffers:
        """The answer to the probe of that number."""
        return (self._head(Kind.ECHO, 0, round_),)

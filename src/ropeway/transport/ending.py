"""How a ring ends: the exceptions that every blocking call raises, which cause is kept, and the words for people.

Pure: time is an argument. Knows nothing of sockets.
"""

from __future__ import annotations

from typing import Final

from ropeway.wire import ErrorCode, Fate, FateKind, ProtocolError

GRACE_S: Final = 0.2
"""How long a bare end of a connection waits for a fate from elsewhere that says more."""


class RingEnded(Exception):
    """The ring has ended. `rank` is where it began, `text` is for people: what, where, what to do."""

    def __init__(self, code: ErrorCode, rank: int, text: str) -> None:
        super().__init__(code, rank, text)
        self.code = code
        self.rank = rank
        self.text = text

    def __str__(self) -> str:
        return self.text if self.code is ErrorCode.NONE else f"{self.code.label}: {self.text}"


class RingLost(RingEnded):
    """The ring has ended in failure; `rank` is the rank that was lost or where the failure began."""


class RingStopped(RingEnded):
    """The ring has been stopped in good order by `rank`."""


def ended(fate: Fate) -> RingEnded:
    """The exception for a fate that ends a ring; a new one each time, since threads must not share a traceback."""
    return (RingStopped if fate.what is FateKind.STOP else RingLost)(fate.error, fate.rank, fate.text)


class Verdict:
    """Which of several signs of an end is kept as the cause.

    A fate, a broken rule, a silence or a deadline settles it at once. A connection that just ends is only suspected:
    the peer may have ended because of a third rank, and the fate that says so can be on another connection.
    """

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._suspicion: tuple[Fate, float] | None = None
        self.settled: Fate | None = None

    def suspect(self, fate: Fate, now: float) -> None:
        """A connection has ended without a fate; the first such sign is kept."""
        if self._suspicion is None:
            self._suspicion = fate, now + self._grace_s

    def settle(self, fate: Fate) -> bool:
        """Fix the cause. False when it was fixed before."""
        if self.settled is not None:
            return False
        self.settled = fate
        return True

    def ripe(self, now: float) -> Fate | None:
        """The suspicion to settle with, once nothing better came within the grace."""
        if self._suspicion is None or self.settled is not None or now < self._suspicion[1]:
            return None
        return self._suspicion[0]


_CAPACITY: Final = "Start that rank with the --context, --parallel and --part of rank 0, or with larger ones."
_ADVICE: Final = {
    ErrorCode.WRONG_KEY: "Give every rank the same key file.",
    ErrorCode.WRONG_FINGERPRINT: (
        "Start every rank with the same checkpoint, cuts and sampler. A fine-tune or another quantization of a model "
        "is another checkpoint."
    ),
    ErrorCode.WRONG_WORLD: "Start every rank with the same number of stages.",
    ErrorCode.WRONG_RANK: "Check each rank's number and the order of the addresses.",
    ErrorCode.WRONG_CHANNEL: "Check the order of the addresses: rank 0's must come first.",
    ErrorCode.DUPLICATE_RANK: "Stop the other process that runs as this rank, or give this one its own number.",
    ErrorCode.BAD_MAGIC: "Something that is not Ropeway speaks there: check the address.",
    ErrorCode.BAD_VERSION: "Install the same release of Ropeway on every machine.",
    ErrorCode.PREFIX_PROTOCOL: "Install the same release of Ropeway on every machine.",
    ErrorCode.PEER_LOST: "That rank's own output says why it left; then start the ring again.",
    ErrorCode.TRUNCATED: "That rank's own output says why it left; then start the ring again.",
    ErrorCode.SILENCE: "It is stopped, swapped out or cut off: check that machine and its network, then start again.",
    ErrorCode.REFUSED_CHUNK: _CAPACITY,
    ErrorCode.REFUSED_MAX_ROWS: _CAPACITY,
    ErrorCode.REFUSED_PARALLEL: _CAPACITY,
    ErrorCode.REFUSED_CONTEXT: _CAPACITY,
    ErrorCode.REFUSED_KV_ROWS: _CAPACITY,
    ErrorCode.REFUSED_STATES: _CAPACITY,
    ErrorCode.REFUSED_RELEASE: "Install the same release of Ropeway on every machine.",
    ErrorCode.DEADLINE: "Check that this rank runs and can be reached.",
    ErrorCode.ENGINE_FAILED: "That rank's own output says more.",
}
_BROKEN: Final = "This is a bug of one of the two ranks, or their releases differ."


def failure(code: ErrorCode, rank: int, text: str) -> Fate:
    """A fate fail whose text ends with what to do about it."""
    advice = _ADVICE.get(code, _BROKEN)
    return Fate(FateKind.FAIL, code, rank, f"{text.rstrip('.')}. {advice}")


class CutShort(ConnectionError):
    """A connection has ended in the middle of a frame."""


def peer_failure(rank: int, who: str, error: ProtocolError | OSError) -> Fate:
    """The fate for what a connection to `rank` raised: it ended, or a rule was broken. `who` names it with address."""
    if isinstance(error, OSError):
        code = ErrorCode.TRUNCATED if isinstance(error, CutShort) else ErrorCode.PEER_LOST
        return failure(code, rank, f"{who} was lost: {error.strerror or error}")
    return failure(error.code, rank, f"{who} broke the protocol: {error.detail}")


def printable(text: str) -> str:
    """A text that a peer sent, without the control characters that could play tricks on a terminal or a log."""
    return "".join(character if character.isprintable() else "?" for character in text)

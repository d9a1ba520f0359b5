"""Every error of the link by name and number (wire.md 9), and the one exception that carries them.

Knows nothing of who is to blame: what a decoder or `Link.received` raises is the peer's mistake, what an encoder or
`Link.send_*` raises is ours.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """The errors of wire.md 9. 0 stands in a fate frame for "no error"."""

    NONE = 0
    BAD_MAGIC = 1
    BAD_CHECK = 2
    BAD_VERSION = 3
    BAD_FLAGS = 4
    BAD_KIND = 5
    ILLEGAL_FRAME = 6
    TOO_LONG = 7
    TRUNCATED = 8
    ROUND_ORDER = 9
    WRONG_WORLD = 10
    WRONG_RANK = 11
    WRONG_CHANNEL = 12
    WRONG_FINGERPRINT = 13
    WRONG_KEY = 14
    DUPLICATE_RANK = 15
    PREFIX_MAGIC = 16
    PREFIX_PROTOCOL = 17
    PREFIX_MESSAGE = 18
    RESERVED_NOT_ZERO = 19
    STREAM_ORDER = 20
    UNKNOWN_OP = 21
    STREAM_UNKNOWN = 22
    RESUME_RANGE = 23
    EMPTY_ROWS = 24
    ROWS_ON_CLOSE = 25
    CUT_RANGE = 26
    ACCEPTED_RANGE = 27
    STALE_GENERATION = 28
    FIRST_POSITION = 29
    ROWS_LENGTH = 30
    TOKEN_COUNT = 31
    UNKNOWN_KEY = 32
    OVER_CAPACITY = 33
    BAD_UTF8 = 34
    BAD_VALUE = 35
    REFUSED_RANK = 40
    REFUSED_WORLD = 41
    REFUSED_LAYERS = 42
    REFUSED_HIDDEN = 43
    REFUSED_PLANES = 44
    REFUSED_ROW_DTYPE = 45
    REFUSED_CHUNK = 46
    REFUSED_MAX_ROWS = 47
    REFUSED_PARALLEL = 48
    REFUSED_CONTEXT = 49
    REFUSED_KV_ROWS = 50
    REFUSED_STATES = 51
    REFUSED_DRAFT_WIDTH = 52
    REFUSED_TAPS = 53
    REFUSED_RELEASE = 54
    DEADLINE = 60
    PEER_LOST = 61
    ENGINE_FAILED = 62
    SILENCE = 63

    @property
    def label(self) -> str:
        """The name that wire.md 9 gives it, such as `stream_order`; a boot refusal is its field, such as `rank`."""
        return self.name.lower().removeprefix("refused_")


class ProtocolError(Exception):
    """Bytes or a message that break wire.md.

    `detail` is for people: the field and both values. `at` is the offset of that field, counted from the start of the
    header where a header is wrong, and from the start of the payload otherwise.
    """

    def __init__(self, code: ErrorCode, detail: str, at: int = 0) -> None:
        super().__init__(code, detail, at)
        self.code = code
        self.detail = detail
        self.at = at

    def __str__(self) -> str:
        return f"{self.code.label}: {self.detail}"

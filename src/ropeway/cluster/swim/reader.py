"""Reading a packet field by field: nothing is taken before its length has been judged against what is left."""

from __future__ import annotations

from ropeway.cluster.swim.errors import Fault, PacketError
from ropeway.cluster.swim.values import ID_BYTES, SEAL_BYTES, TIME_MAX


class Reader:
    """A position in a packet. Every method raises PacketError `truncated` where the packet ends too early."""

    __slots__ = ("at", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def take(self, count: int, what: str) -> bytes:
        """The next `count` bytes."""
        left = len(self.raw) - self.at
        if count > left:
            raise PacketError(Fault.TRUNCATED, f"{what} needs {count} bytes, {left} are left", self.at)
        self.at += count
        return self.raw[self.at - count : self.at]

    def number(self, width: int, what: str, most: int | None = None) -> int:
        """An unsigned integer of `width` bytes, at most `most`. Raises PacketError `bad_value` too."""
        at = self.at
        value = int.from_bytes(self.take(width, what), "little")
        if most is not None and value > most:
            raise PacketError(Fault.BAD_VALUE, f"{what} is {value}, at most {most}", at)
        return value

    def time(self, what: str) -> int:
        """A u64 of at most 2^62 - 1: a start, a generation or a logical time."""
        return self.number(8, what, TIME_MAX)

    def id(self, what: str) -> bytes:
        """A member's id, 32 bytes."""
        return self.take(ID_BYTES, what)

    def blob(self, most: int, what: str) -> bytes:
        """A u8 of length, and that many bytes; at most `most`. Raises PacketError `too_long` too."""
        at = self.at
        length = self.number(1, f"length of {what}")
        if length > most:
            raise PacketError(Fault.TOO_LONG, f"{what} has {length} bytes, at most {most}", at)
        return self.take(length, what)

    def text(self, most: int, what: str) -> str:
        """A blob that is UTF-8 and printable. Raises PacketError `bad_utf8` or `bad_value` too."""
        at = self.at
        try:
            text = self.blob(most, what).decode()
        except UnicodeDecodeError as error:
            raise PacketError(Fault.BAD_UTF8, f"{what}: {error.reason}", at + 1 + error.start) from None
        if not text.isprintable():
            raise PacketError(Fault.BAD_VALUE, f"{what} has characters that cannot be printed", at)
        return text

    def seal(self) -> bytes:
        """A seal: none, or 64 bytes. Raises PacketError `bad_value` too."""
        at = self.at
        seal = self.blob(SEAL_BYTES, "seal")
        if len(seal) not in (0, SEAL_BYTES):
            raise PacketError(Fault.BAD_VALUE, f"a seal of {len(seal)} bytes, expected {SEAL_BYTES} or none", at)
        return seal

    def fail(self, fault: Fault, detail: str, back: int = 0) -> PacketError:
        """An error at the current position, or `back` bytes before it."""
        return PacketError(fault, detail, self.at - back)

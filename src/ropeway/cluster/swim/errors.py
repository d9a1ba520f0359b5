"""Every way in which a packet of membership can be wrong, by name and number, and the exception that carries them."""

from __future__ import annotations

from enum import IntEnum


class Fault(IntEnum):
    """What is wrong with a packet (docs/membership.md). The numbers travel in a refusal."""

    TRUNCATED = 1
    TOO_LONG = 2
    BAD_MAGIC = 3
    BAD_VERSION = 4
    BAD_KIND = 5
    BAD_FLAGS = 6
    WRONG_CLUSTER = 7
    RESERVED_NOT_ZERO = 8
    BAD_VALUE = 9
    BAD_UTF8 = 10
    TRAILING = 11
    BAD_SEAL = 12
    WRONG_SENDER = 13
    LABEL_TAKEN = 14
    CLUSTER_FULL = 15

    @property
    def label(self) -> str:
        """Its name in messages and documents, such as `wrong_sender`."""
        return self.name.lower()


class PacketError(Exception):
    """A packet that breaks docs/membership.md; nothing of it has been applied.

    `detail` is for people: the field and what it was. `at` is the offset of the field in the packet, or 0.
    """

    def __init__(self, fault: Fault, detail: str, at: int = 0) -> None:
        super().__init__(fault, detail, at)
        self.fault = fault
        self.detail = detail
        self.at = at

    def __str__(self) -> str:
        return f"{self.fault.label}: {self.detail}"

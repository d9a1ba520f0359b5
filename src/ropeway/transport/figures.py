"""What a ring counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Waits:
    """How long the caller has waited for rows, and for a free send buffer, in nanoseconds since bring-up; it grows."""

    rows_ns: int = 0
    send_ns: int = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes on all connections since bring-up, headers included."""

    sent_bytes: int
    received_bytes: int

"""What a ring counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Waits:
    """How long the caller has waited for rows, and for a free send buffer, in seconds since bring-up; it grows."""

    rows_s: float = 0.0
    send_s: float = 0.0

    @property
    def rows_ns(self) -> int:
        """The wait for rows in nanoseconds, as a done frame has it."""
        return int(self.rows_s * 1e9)

    @property
    def send_ns(self) -> int:
        """The wait for a send buffer in nanoseconds, as a done frame has it."""
        return int(self.send_s * 1e9)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes on all connections since bring-up, headers included."""

    sent_bytes: int
    received_bytes: int

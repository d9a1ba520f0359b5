"""What a plan sends over an edge of the ring: the frames, in order, with the very bytes of their headers.

Both ends of an edge work this out from the plan, so a receiver knows the size of a frame before it comes, and that a
header is right when its 32 bytes are the expected ones. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ropeway.types import SamplerAt
from ropeway.wire import Header, Kind, Plan, encode_header

TOKENS_BYTES: Final = 8
"""Fixed part of a tokens payload (wire.md 8)."""
TOKEN_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame that a plan implies. `header` is its 32 bytes; `frame_bytes` are header and payload."""

    kind: Kind
    round: int
    part: int
    rows: int
    payload_bytes: int
    frame_bytes: int
    header: bytes

    def __str__(self) -> str:
        if self.kind is Kind.TOKENS:
            return f"the tokens of round {self.round}"
        return f"part {self.part} of round {self.round} ({self.rows} rows, {self.payload_bytes} bytes)"


def frame(kind: Kind, round_: int, part: int, rows: int, payload_bytes: int) -> Frame:
    """A frame with its header's bytes."""
    header = encode_header(Header(kind, round_, rows, part, payload_bytes))
    return Frame(kind, round_, part, rows, payload_bytes, len(header) + payload_bytes, header)


def frames_ahead(round_: int, plan: Plan, row_bytes: int) -> list[Frame]:
    """The frames from a rank to the next one: one a part."""
    sizes = [stop - start for start, stop in plan.part_ranges()]
    return [frame(Kind.ROWS, round_, part, rows, rows * row_bytes) for part, rows in enumerate(sizes)]


def frames_back(round_: int, plan: Plan, row_bytes: int, sampler: SamplerAt) -> list[Frame]:
    """The frames from the last rank to rank 0: the rows that return, or a token for each stream that returns one."""
    if sampler is SamplerAt.FIRST:
        sizes = plan.returned_frames()
        return [frame(Kind.ROWS, round_, part, rows, rows * row_bytes) for part, rows in enumerate(sizes)]
    streams = sum(plan.returns_for(index) > 0 for index in range(len(plan.entries)))
    return [frame(Kind.TOKENS, round_, 0, 0, TOKENS_BYTES + TOKEN_BYTES * streams)] if streams else []

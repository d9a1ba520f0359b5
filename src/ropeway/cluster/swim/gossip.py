"""News to pass on inside packets: each piece a bounded number of times, the least told first, as room allows."""

from __future__ import annotations

from dataclasses import dataclass

Subject = bytes | str
"""A member's id, or a name: newer news of a subject take the place of older."""


@dataclass(slots=True)
class _Piece:
    raw: bytes
    told: int
    order: int


class GossipQueue:
    """Encoded records by subject. `fresh`: something was put in, until the owner has seen it."""

    __slots__ = ("_order", "_pieces", "fresh")

    def __init__(self) -> None:
        self.fresh = False
        self._pieces: dict[Subject, _Piece] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._pieces)

    def put(self, subject: Subject, raw: bytes) -> None:
        """Take in news of a subject."""
        self.fresh = True
        self._order -= 1
        self._pieces[subject] = _Piece(raw, 0, self._order)

    def take(self, room: int, most_told: int, most: int) -> list[bytes]:
        """Records of at most `room` bytes and `most` in number, told once more by this; gone at `most_told`.

        The least told come first, the newest of them before older ones; what does not fit is passed over.
        """
        taken: list[bytes] = []
        if not self._pieces:
            return taken
        for subject, piece in sorted(self._pieces.items(), key=lambda item: (item[1].told, item[1].order)):
            if len(taken) >= most:
                break
            if len(piece.raw) > room:
                continue
            room -= len(piece.raw)
            taken.append(piece.raw)
            piece.told += 1
            if piece.told >= most_told:
                del self._pieces[subject]
        return taken

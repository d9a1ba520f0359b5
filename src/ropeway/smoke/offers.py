"""Which offers to take: the cheapest first, no two of one machine, all of them together within a price. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ropeway.launch.provider import Offer


class Walk(Iterator[Offer]):
    """The offers to try, in their order; offers go stale, so each may have gone when it is tried.

    `count` are needed, for at most `max_price` dollars an hour together; None: whatever they cost. An offer is left out
    where there is not enough behind it, or where it and the cheapest of that would cost more.
    """

    def __init__(self, offers: Sequence[Offer], count: int, max_price: float | None = None) -> None:
        self._offers = sorted(offers, key=lambda offer: (offer.price, offer.id))
        self._needed = count
        self._left = max_price
        self._at = 0
        self._used: set[int] = set()

    def __next__(self) -> Offer:
        while self._at < len(self._offers):
            offer = self._offers[self._at]
            self._at += 1
            if offer.machine not in self._used and self._fits(offer):
                return offer
        raise StopIteration

    def take(self, offer: Offer) -> None:
        """This one is rented."""
        self._used.add(offer.machine)
        self._needed -= 1
        if self._left is not None:
            self._left -= offer.price

    def cheapest(self) -> list[Offer]:
        """What would be taken if nothing went stale; nothing where there are not enough, or none so cheap."""
        walk = Walk(self._offers, self._needed, self._left)
        taken: list[Offer] = []
        for offer in walk:
            if len(taken) == self._needed:
                break
            walk.take(offer)
            taken.append(offer)
        return taken

    def _fits(self, offer: Offer) -> bool:
        price, machines = offer.price, {*self._used, offer.machine}
        missing = self._needed - 1
        for other in self._offers[self._at :]:
            if missing <= 0:
                break
            if other.machine not in machines:
                machines.add(other.machine)
                price += other.price
                missing -= 1
        return missing <= 0 and (self._left is None or price <= self._left + 1e-9)

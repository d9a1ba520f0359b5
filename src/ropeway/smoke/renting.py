"""What a run rents: each machine once, watched while it is needed, and given back whatever happens.

A create is repeated only where the service certainly did nothing. After an unclear one the instance is looked for by
its label, which only that create carries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from ropeway.launch.provider import (
    Denied,
    Instance,
    NotDone,
    Offer,
    Order,
    Provider,
    ProviderError,
    Refused,
    State,
    Unclear,
)
from ropeway.smoke.clock import elapsed
from ropeway.smoke.ledger import Ledger
from ropeway.smoke.offers import Walk
from ropeway.smoke.steps import Deadline, StepFailed

T = TypeVar("T")

LONGEST_PAUSE_S: Final = 20.0
CREATE_TRIES: Final = 6
MOST_POLLS: Final = 60
FORGOTTEN: Final = 6
"""Looks at which an instance may be unknown to the service before it has been known once."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the service is asked, in seconds."""

    poll_s: float = 10.0
    """Between two looks at the instances."""
    retry_s: float = 1.0
    """The first pause after a refusal for now; doubled each time."""
    reconcile_s: float = 30.0
    """How long an instance may take to be listed after a create that was not answered."""


@dataclass(slots=True)
class Lease:
    """A machine that this run has rented. Times are those of `elapsed`; `price` is dollars an hour."""

    id: int
    stage: int
    price: float
    since: float
    until: float | None = None
    """When it was known to be gone."""
    known: bool = False
    """The service has answered for it."""
    unknown_looks: int = 0

    def dollars(self, now: float) -> float:
        """What it has cost so far, at its price."""
        return self.price * max(0.0, (self.until if self.until is not None else now) - self.since) / 3600.0


@dataclass(frozen=True, slots=True)
class Terms:
    """What a run may cost: `max_price` dollars an hour together, `budget` dollars were it to last `longest_s`."""

    max_price: float | None = None
    budget: float | None = None
    longest_s: float = 0.0

    @property
    def most(self) -> float | None:
        """Dollars an hour, by both."""
        limits = [] if self.max_price is None else [self.max_price]
        if self.budget is not None:
            limits.append(self.budget * 3600.0 / self.longest_s)
        return min(limits, default=None)

    def check(self, price: float) -> None:
        """Raise StepFailed where machines for `price` dollars an hour together cost more."""
        worst = price * self.longest_s / 3600.0
        if self.max_price is not None and price > self.max_price + 1e-6:
            raise StepFailed(f"the machines cost ${price:.4f} an hour together, and --max-price is ${self.max_price:g}")
        if self.budget is not None and worst > self.budget + 1e-6:
            raise StepFailed(f"the budget is ${self.budget:g}, and {self.longest_s:g} s could cost ${worst:.4f}")


def patiently(call: Callable[[], T], deadline: Deadline, pause_s: float, waiting_for: str) -> T:
    """An idempotent call, again after 429, 5xx or no answer, with pauses that double. Raises StepFailed."""
    while True:
        try:
            return call()
        except Refused as error:
            raise StepFailed(str(error)) from error
        except ProviderError as error:
            deadline.pause(pause_s, f"{waiting_for}: {error}; nothing better came")
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


class Rental:
    """The leases of one run. For one thread; `told` hears what happens, in words for people."""

    def __init__(
        self,
        provider: Provider,
        ledger: Ledger | None,
        pace: Pace,
        hold: Callable[[], AbstractContextManager[None]],
        told: Callable[[str], None],
        terms: Terms,
    ) -> None:
        self.leases: list[Lease] = []
        self.announced = 0
        """Creates that were sent."""
        self.unclear: dict[str, float] = {}
        """Labels of creates whose outcome is not known, and when each was sent and not answered (by `elapsed`)."""
        self._provider = provider
        self._ledger = ledger
        self._pace = pace
        self._hold = hold
        self._told = told
        self._terms = terms
        self._looked_at = time.monotonic()

    def rent(self, walk: Walk, orders: Sequence[Order], deadline: Deadline) -> None:
        """A machine for each order. Raises StepFailed."""
        for stage, order in enumerate(orders):
            self._rent_one(walk, stage, order, deadline)

    def _rent_one(self, walk: Walk, stage: int, order: Order, deadline: Deadline) -> None:
        why = "there are no more offers within the price"
        for offer in walk:
            try:
                instance = self._create(offer, order, stage, deadline)
            except Denied as error:
                raise StepFailed(str(error)) from error
            except ProviderError as error:
                why = str(error)
                self._told(f"stage {stage}: {why}")
                continue
            walk.take(offer)
            self._told(f"stage {stage}: instance {instance}, {offer.gpu}, {offer.location}, ${offer.price:.3f} an hour")
            return
        raise StepFailed(f"no machine for stage {stage}: {why}")

    def _create(self, offer: Offer, order: Order, stage: int, deadline: Deadline) -> int:
        """One create. Raises ProviderError where no instance came of it, as far as can be told; StepFailed."""
        pause_s = self._pace.retry_s
        for _ in range(CREATE_TRIES):
            deadline.check(f"offer {offer.id} could not be rented")
            try:
                with self._hold():
                    return self._send(offer, order, stage)
            except NotDone as error:
                self._told(f"{error}; again in {pause_s:g} s")
                deadline.pause(pause_s, f"{error}; it was never rented")
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            except Unclear as error:
                self._told(f"{error}; looking for its label")
                return self._reconcile(offer, order, stage, deadline, error)
        raise NotDone(f"renting offer {offer.id}: too many requests, {CREATE_TRIES} times")

    def _send(self, offer: Offer, order: Order, stage: int) -> int:
        """One request, with its outcome written down before a signal may raise. Raises ProviderError, StepFailed."""
        self._announce(offer)
        try:
            instance = self._provider.create(offer, order)
        except (Refused, NotDone):
            self._note_refusal()
            raise
        except Unclear:
            self.unclear[order.label] = elapsed()
            raise
        self._took(instance, offer, stage)
        return instance

    def _announce(self, offer: Offer) -> None:
        self.announced += 1
        if self._ledger is None:
            return
        try:
            self._ledger.creating(offer.id)
        except OSError as error:
            raise StepFailed(f"the ledger cannot be written, so nothing is rented: {error}") from error

    def _note_refusal(self) -> None:
        if self._ledger is not None:
            with suppress(OSError):  # the file then has one create more to look for
                self._ledger.refused()

    def _took(self, instance: int, offer: Offer, stage: int) -> None:
        self.leases.append(Lease(instance, stage, offer.price, elapsed()))
        if self._ledger is not None:
            self._ledger.created(instance)

    def _reconcile(self, offer: Offer, order: Order, stage: int, deadline: Deadline, error: Unclear) -> int:
        """Find the instance of a create that was not answered. Raises that error where there is none."""
        give_up = time.monotonic() + self._pace.reconcile_s
        pause_s = self._pace.retry_s
        run = order.label.rpartition("/")[0]
        while True:
            try:
                for found in self._provider.list_run(run):
                    if found.label == order.label:
                        with self._hold():
                            self._took(found.id, offer, stage)
                            del self.unclear[order.label]
                        return found.id
            except (NotDone, Unclear) as again:
                self._told(str(again))
            if time.monotonic() + pause_s > give_up:
                raise error
            deadline.pause(pause_s, f"{error}; its instance could not be looked for")
            pause_s = min(2 * pause_s, self._pace.poll_s)

    def adopt(self, instance: Instance) -> None:
        """Count one that is listed as this run's, whether or not a create's answer has named it, at its price."""
        lease = next((lease for lease in self.leases if lease.id == instance.id), None)
        if lease is None:
            since = self.unclear.get(instance.label, elapsed())
            lease = Lease(instance.id, int(instance.label.rpartition("/")[2]), 0.0, since)
            self.leases.append(lease)
        if instance.price is not None:
            lease.price = instance.price

    def await_running(self, deadline: Deadline) -> None:
        """Until every instance runs. Raises StepFailed, naming the first that does not."""
        pause_s = self._pace.poll_s
        for _ in range(MOST_POLLS):
            waiting, again_s = [], self._pace.poll_s
            for lease in self.leases:
                try:
                    instance = self._look(lease)
                except (NotDone, Unclear) as error:
                    self._told(str(error))
                    again_s = min(2 * pause_s, max(60.0, self._pace.poll_s))
                    instance = None
                if instance is None or instance.state is not State.RUNNING:
                    waiting.append((lease, instance))
            if not waiting:
                return
            lease, instance = waiting[0]
            status = "not listed yet" if instance is None else instance.status or "being provisioned"
            what = f"instance {lease.id} (stage {lease.stage}) is {status}: it did not run"
            pause_s = again_s
            try:
                deadline.pause(pause_s, what)
            except StepFailed as error:
                raise StepFailed(str(error), lease.id) from None
        raise StepFailed(f"{what} after {MOST_POLLS} looks", lease.id)

    def check(self) -> None:
        """Look at the instances where it is time to. Raises StepFailed once one has ended."""
        now = time.monotonic()
        if now - self._looked_at < self._pace.poll_s:
            return
        self._looked_at = now
        for lease in self.leases:
            try:
                self._look(lease)
            except (NotDone, Unclear):
                continue  # the service is busy; a machine that has gone is noticed by the cluster too

    def _look(self, lease: Lease) -> Instance | None:
        """One instance's status. Raises StepFailed where it has ended, NotDone or Unclear."""
        try:
            instance = self._provider.status(lease.id)
        except Refused as error:
            raise StepFailed(str(error)) from error
        who = f"instance {lease.id} (stage {lease.stage})"
        if instance is None:
            lease.unknown_looks += 1
            if lease.known or lease.unknown_looks > FORGOTTEN:
                raise StepFailed(f"{who} has vanished", lease.id)
            return None
        lease.known = True
        if instance.price is not None and instance.price != lease.price:
            self._told(f"{who} costs ${instance.price:.4f} an hour, and its offer said ${lease.price:.4f}")
            lease.price = instance.price
        self._terms.check(sum(each.price for each in self.leases))
        if instance.state is State.ENDED:
            said = f": {instance.message}" if instance.message else ""
            raise StepFailed(f"{who} is {instance.status or 'stopped'}{said}", lease.id)
        return instance

"""Who rents machines out, as a run sees it: six calls, and errors by what they leave behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

LOG_LINES = 100
"""Lines of an instance's log that are worth showing."""


class ProviderError(Exception):
    """The service did not do what was asked; the text is for people and never holds the key."""


class Refused(ProviderError):
    """It said no: nothing was done, and asking the same again is of no use."""


class Denied(Refused):
    """It does not accept the key, or what the key may do: no other request will fare better."""


class NotDone(ProviderError):
    """It did not get to it (too many requests, no connection): nothing was done, and it may be asked again."""


class Unclear(ProviderError):
    """No answer, or one that says nothing: it may or may not have been done."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an offer must be. `gpu` is the card's name, empty for any; prices are dollars an hour, all machines."""

    count: int
    gpu: str = ""
    min_reliability: float = 0.99
    min_mbits: float = 100.0
    min_cuda: float = 12.6
    disk_gb: int = 40


@dataclass(frozen=True, slots=True)
class Offer:
    """One machine that can be rented now; `price` is dollars an hour with its disk."""

    id: int
    machine: int
    price: float
    gpu: str = ""
    location: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """What to run on a machine. `environment` may hold secrets of the run, never the account's key."""

    image: str
    disk_gb: int
    label: str
    environment: Mapping[str, str] = field(repr=False)


class State(Enum):
    """What an instance is to a run."""

    COMING = auto()
    RUNNING = auto()
    ENDED = auto()
    """It will not run (again) by itself; it costs money all the same."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine that is rented. `status` is the service's own word, `message` what else it says."""

    id: int
    label: str
    state: State
    status: str = ""
    message: str = ""
    price: float | None = None
    """Dollars an hour, where the service says."""


def stage_label(run: str, stage: int) -> str:
    """The label of a stage's instance."""
    return f"{run}/{stage}"


def is_of_run(label: str, run: str) -> bool:
    """Whether an instance's label is one of a run's."""
    head, slash, stage = label.rpartition("/")
    return bool(slash) and head == run and stage.isascii() and stage.isdigit()


class Provider(Protocol):
    """A service. Every call raises ProviderError and has a time limit of its own; one thread a call."""

    @property
    def name(self) -> str: ...
    @property
    def server(self) -> str:
        """Where it is, for a later `--cleanup`; empty where nothing outlives the process."""
        ...

    def search(self, wanted: Wanted) -> tuple[Offer, ...]:
        """Offers that are what is wanted, the cheapest first; there may be fewer than wanted."""
        ...

    def create(self, offer: Offer, order: Order) -> int:
        """Rent a machine; its id. Never to be repeated after Unclear: look for its label instead."""
        ...

    def status(self, instance: int) -> Instance | None:
        """How an instance is; None where there is none of that id."""
        ...

    def logs(self, instance: int) -> str:
        """The last lines of what it has written; control characters are gone."""
        ...

    def destroy(self, instance: int) -> None:
        """Give it back. Does nothing where there is none of that id."""
        ...

    def list_run(self, label: str) -> tuple[Instance, ...]:
        """Every instance of a run: those whose label is `stage_label` of any stage."""
        ...

    def destroy_command(self, instance: object) -> str:
        """What a person can type to destroy an instance; its id may be a place to fill in."""
        ...

    def close(self) -> None:
        """Let connections go."""
        ...

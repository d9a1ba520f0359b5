"""The shapes of vast.ai's REST API, version 0: bodies that are sent and replies that are read. Pure.

Written from the vendor's public pages (docs.vast.ai), not tried on the service: what is read is taken only where it has
the documented type, and everything else is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ropeway.launch.provider import Instance, Offer, Order, State, Wanted

LIMIT = 64
"""Offers asked for."""
_COMING = frozenset({"", "loading", "created", "rebooting", "recycling", "scheduling", "unknown"})


def search_body(wanted: Wanted) -> dict[str, object]:
    """The body of POST /bundles/."""
    body: dict[str, object] = {
        "verified": {"eq": True},
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "num_gpus": {"eq": 1},
        "reliability2": {"gte": wanted.min_reliability},
        "inet_down": {"gte": wanted.min_mbits},
        "cuda_max_good": {"gte": wanted.min_cuda},
        "order": [["dph_total", "asc"]],
        "type": "on-demand",
        "limit": LIMIT,
        "allocated_storage": wanted.disk_gb,
    }
    if wanted.gpu:
        body["gpu_name"] = {"eq": wanted.gpu}
    return body


def create_body(order: Order) -> dict[str, object]:
    """The body of PUT /asks/{id}/. `args` leaves the image its own entry point."""
    return {
        "client_id": "me",
        "image": order.image,
        "env": dict(order.environment),
        "disk": order.disk_gb,
        "label": order.label,
        "runtype": "args",
        "cancel_unavail": True,
    }


def read_offers(value: Mapping[str, Any], wanted: Wanted) -> tuple[Offer, ...]:
    """The offers of a reply that are what is wanted, the cheapest first. Raises ValueError for another shape.

    The service's own filter is not trusted: an offer that says otherwise of itself is left out.
    """
    offers = value.get("offers")
    if not isinstance(offers, list):
        raise ValueError("no list of offers")
    found = [offer for entry in offers if isinstance(entry, dict) and (offer := _read_offer(entry, wanted))]
    return tuple(sorted(found, key=lambda offer: (offer.price, offer.id)))


def _read_offer(entry: Mapping[str, Any], wanted: Wanted) -> Offer | None:
    number, machine, price = _integer(entry.get("id")), _integer(entry.get("machine_id")), _real(entry.get("dph_total"))
    if number is None or machine is None or price is None or price < 0:
        return None
    location = _text(entry.get("geolocation"))
    reliability = _real(entry.get("reliability2", entry.get("reliability")))
    at_least = (
        (reliability, wanted.min_reliability),
        (_real(entry.get("inet_down")), wanted.min_mbits),
        (_real(entry.get("cuda_max_good")), wanted.min_cuda),
    )
    gpus = _integer(entry.get("num_gpus"))
    if not location or entry.get("rented") is True or entry.get("rentable") is False or gpus not in (None, 1):
        return None
    if any(value is not None and value < least for value, least in at_least):
        return None
    return Offer(number, machine, price, _text(entry.get("gpu_name")), location)


def read_created(value: Mapping[str, Any]) -> int | None:
    """The id of a new instance; None where the service refused. Raises ValueError where it says neither."""
    number = _integer(value.get("new_contract"))
    if value.get("success") is True and number is not None:
        return number
    if value.get("success") is False:
        return None
    raise ValueError("neither a contract nor a refusal")


def read_instance(value: Mapping[str, Any]) -> Instance | None:
    """The instance of GET /instances/{id}/, None for null. Raises ValueError for another shape."""
    entry = value.get("instances", "")
    if entry is None or entry == []:
        return None
    if isinstance(entry, list) and len(entry) == 1:
        entry = entry[0]
    if not isinstance(entry, dict) or (read := _read_instance(entry)) is None:
        raise ValueError("no instance and not null")
    return read


def read_instances(value: Mapping[str, Any]) -> tuple[Instance, ...]:
    """The instances of GET /instances/. Raises ValueError where the shape is another, or one has no id."""
    entries = value.get("instances")
    if not isinstance(entries, list):
        raise ValueError("no list of instances")
    found = [_read_instance(entry) if isinstance(entry, dict) else None for entry in entries]
    if any(instance is None for instance in found):
        raise ValueError("an instance without an id")
    return tuple(instance for instance in found if instance is not None)


def _read_instance(entry: Mapping[str, Any]) -> Instance | None:
    number = _integer(entry.get("id"))
    if number is None:
        return None
    status, message = _text(entry.get("actual_status")), _text(entry.get("status_msg"))
    state = _state(status, _text(entry.get("intended_status")), message)
    return Instance(number, _text(entry.get("label")), state, status, message, _real(entry.get("dph_total")))


def _state(status: str, intended: str, message: str) -> State:
    """A container that cannot start stays in `loading`, with a message that begins with Error."""
    if intended == "stopped" or (status != "running" and message.lower().startswith("error")):
        return State.ENDED
    if status == "running":
        return State.RUNNING
    return State.COMING if status in _COMING else State.ENDED


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _real(value: object) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""

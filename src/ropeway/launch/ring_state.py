"""What a running server tells of its ring over GET /v1/ring, as placement needs it. What it says is checked."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ropeway.placement.cost import Spot
from ropeway.placement.inventory import Inventory

TIMEOUT_S: Final = 10.0
MOST_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Running:
    """A running layout by the nodes' names, and each stage's milliseconds for a round of `rows` rows at `depth`."""

    layout: tuple[Spot, ...]
    stages_ms: tuple[float, ...]
    rows: int
    depth: int


def running_layout(url: str, inventory: Inventory) -> Running:
    """Ask a server. Its stages are matched to nodes by the name it was placed with, by address, or by their order.

    Raises ValueError where it cannot be asked, has not decoded yet, or has other stages than the file has nodes.
    """
    state = _get(f"{url.rstrip('/')}/v1/ring")
    stages = state.get("stages")
    if not isinstance(stages, list) or not stages or not all(isinstance(stage, dict) for stage in stages):
        raise ValueError(f"from: the ring of {url} is not up, so it has no times")
    times_of = _times(state, len(stages))
    by_address = {address: name for name, address in inventory.addresses.items()}
    order = [node.name for node in inventory.fleet.nodes]
    layout, times = [], []
    for rank, stage in enumerate(stages):
        name = times_of[rank].get("node") or by_address.get(str(stage.get("address")))
        if name is None:
            if len(order) != len(stages):
                raise ValueError(f"from: stage {rank} of {url} is on none of the file's nodes")
            name = order[rank]
        inventory.fleet.node(str(name))
        ms = times_of[rank].get("decode_ms")
        if not isinstance(ms, (int, float)) or not 0 < ms < 1e9:
            raise ValueError(f"from: stage {rank} of {url} has not decoded enough lately; ask while it replies")
        layout.append(Spot(str(name), _count(stage, "first", url), _count(stage, "end", url)))
        times.append(float(ms))
    section = state["prediction"]
    return Running(tuple(layout), tuple(times), _count(section, "rows", url), _count(section, "depth", url))


def _count(value: Mapping[str, Any], field: str, url: str) -> int:
    found = value.get(field)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 1 << 31:
        raise ValueError(f"from: {field} of {url} is {found!r}, expected a whole number")
    return found


def _times(state: Mapping[str, Any], world: int) -> list[Mapping[str, Any]]:
    section = state.get("prediction")
    found = section.get("stages") if isinstance(section, dict) else None
    if not isinstance(found, list) or len(found) != world or not all(isinstance(one, dict) for one in found):
        return [{}] * world
    return found


def _get(url: str) -> Mapping[str, Any]:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"from: {url!r} is not a URL")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            value = json.loads(answer.read(MOST_BYTES))
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise ValueError(f"from: {url}: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"from: {url} does not give a ring's state")
    return value

"""The nodes file: TOML or JSON text to nodes, links and what may be added, and a node back to JSON. Pure.

[[node]]
name = "mac"
limit_gb = 36                  # what a model may use (or limit_bytes)
decode_ms = 0.42               # a layer and token; or a table by kind of layer
prompt_row_ms = 0.004          # a layer and row of a prompt; or a table by kind
head_ms = 1.1

[[node]]
file = "gb10.json"             # what `ropeway calibrate MODEL --out gb10.json` wrote there
spare = true                   # only with --what-if

[[link]]
between = ["mac", "gb10"]      # both ways; or from = "mac", to = "gb10"
round_trip_ms = 0.3
gbit = 10
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ropeway.placement.facts import Cost, Costs, Fleet, Link, Node

_PLAIN: Final = {
    "backend": str,
    "engine": str,
    "overhead_bytes": int,
    "spare_layers": int,
    "cut_every": int,
    "rested": float,
    "hop_ms": float,
    "drafter_ms": float,
    "slower": float,
    "spread": float,
}
_KNOWN: Final = {
    *_PLAIN,
    *("name", "limit_bytes", "limit_gb", "file", "spare", "address", "model", "devices", "about"),
    *("layers", "stage", "embed", "head", "decode_ms", "prompt_row_ms", "head_ms", "embed_ms"),
}
_LINK_KNOWN: Final = {"between", "from", "to", "round_trip_ms", "latency_ms", "gbit", "bytes_per_s"}

Value = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Inventory:
    """A nodes file. `spare` are nodes that are used only when asked for; `models` the checkpoint each was measured on.

    `addresses` are where ranks on the nodes are dialled.
    """

    fleet: Fleet
    spare: frozenset[str]
    addresses: Mapping[str, str]
    models: Mapping[str, str]


def read_inventory(text: str, read: Callable[[str], str], *, is_json: bool = False) -> Inventory:
    """Parse a nodes file; `read` gives the text of a node's own file. Raises ValueError that names the field."""
    value = _parse(text, is_json)
    unknown = sorted(set(value) - {"node", "link", "links"})
    if unknown:
        raise ValueError(f"nodes: {unknown[0]} is not a field of a nodes file")
    entries = [_merged(entry, read) for entry in _tables(value, "node")]
    if not entries:
        raise ValueError("nodes: the file has no [[node]]")
    nodes = tuple(node_from(entry) for entry in entries)
    default = value.get("links")
    fleet = Fleet(
        nodes,
        _links(_tables(value, "link"), {node.name for node in nodes}),
        _link(_table(default, "links"), "links") if default is not None else Link(),
    )
    named = list(zip(nodes, entries, strict=True))
    return Inventory(
        fleet,
        frozenset(node.name for node, entry in named if _flag(entry, "spare")),
        {node.name: _text(entry, "address") for node, entry in named if "address" in entry},
        {node.name: _text(entry, "model") for node, entry in named if "model" in entry},
    )


def node_from(entry: Value) -> Node:
    """One node's entry. Raises ValueError that names the node and the field."""
    name = _text(entry, "name")
    where = f"node {name}"
    if unknown := sorted(set(entry) - _KNOWN):
        raise ValueError(f"{where}: {unknown[0]} is not a field of a node")
    devices = entry.get("devices", [])
    kinds = {str(device).partition(":")[0] for device in devices} if isinstance(devices, list) else set()
    if len(kinds) > 1:
        raise ValueError(f"{where}: devices of one stage must be of one backend, not {' and '.join(sorted(kinds))}")
    plain = {field: _plain(entry, field, kind, where) for field, kind in _PLAIN.items() if field in entry}
    if "limit_bytes" in entry:
        limit = int(_number(entry, "limit_bytes", where))
    else:
        limit = round(_number(entry, "limit_gb", where) * 1e9)
    layers = _layers(entry, where)
    if not layers:
        raise ValueError(f"{where}: it has no times; give decode_ms and prompt_row_ms, or the file of its calibration")
    return Node(
        name=name,
        limit_bytes=limit,
        layers=layers,
        stage=_costs(entry["stage"], f"{where}: stage") if "stage" in entry else Costs(),
        embed=_cost(entry.get("embed", [0.0, _number(entry, "embed_ms", where, 0.0), 0.0]), f"{where}: embed"),
        head=_cost(entry.get("head", [_number(entry, "head_ms", where, 0.0), 0.0, 0.0]), f"{where}: head"),
        **plain,  # type: ignore[arg-type]
    )


def node_json(node: Node, model: str = "", about: Value | None = None) -> dict[str, object]:
    """A node as `node_from` reads it; `model` is the checkpoint that it was measured on."""
    found: dict[str, object] = {"name": node.name, "limit_bytes": node.limit_bytes}
    found |= {field: getattr(node, field) for field in _PLAIN}
    found |= {
        "layers": {kind: _costs_json(costs) for kind, costs in node.layers.items()},
        "stage": _costs_json(node.stage),
        "embed": _cost_json(node.embed),
        "head": _cost_json(node.head),
    }
    if model:
        found["model"] = model
    if about:
        found["about"] = dict(about)
    return found


def link_json(sender: str, receiver: str, link: Link) -> dict[str, object]:
    """A link as a nodes file has it."""
    return {"from": sender, "to": receiver, "latency_ms": link.latency_ms, "bytes_per_s": link.bytes_per_s}


def _parse(text: str, is_json: bool) -> Value:
    try:
        value = json.loads(text) if is_json else tomllib.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"nodes: {error}") from None
    return _table(value, "nodes")


def _merged(entry: Value, read: Callable[[str], str]) -> Value:
    """The entry over the file that it names."""
    if "file" not in entry:
        return entry
    name = _text(entry, "file")
    return {**_parse(read(name), name.endswith(".json")), **{k: v for k, v in entry.items() if k != "file"}}


def _layers(entry: Value, where: str) -> dict[str, Costs]:
    if "layers" in entry:
        table = _table(entry["layers"], f"{where}: layers")
        return {str(kind): _costs(value, f"{where}: layers.{kind}") for kind, value in table.items()}
    decode, prompt = _by_kind(entry, "decode_ms", where), _by_kind(entry, "prompt_row_ms", where)
    return {
        kind: Costs(Cost(decode.get(kind, decode.get("*", 0.0))), Cost(0.0, prompt.get(kind, prompt.get("*", 0.0))))
        for kind in {**decode, **prompt}
    }


def _by_kind(entry: Value, field: str, where: str) -> dict[str, float]:
    value = entry.get(field)
    if value is None:
        return {}
    table = value if isinstance(value, dict) else {"*": value}
    return {str(kind): _number(table, kind, f"{where}: {field}") for kind in table}


def _links(entries: list[Value], names: set[str]) -> dict[tuple[str, str], Link]:
    found: dict[tuple[str, str], Link] = {}
    for entry in entries:
        if unknown := sorted(set(entry) - _LINK_KNOWN):
            raise ValueError(f"link: {unknown[0]} is not a field of a link")
        between = entry.get("between", [entry.get("from"), entry.get("to")])
        if not isinstance(between, list) or len(between) != 2 or not all(name in names for name in between):
            raise ValueError(f"link: {between} are not two of the nodes {', '.join(sorted(names))}")
        one, other = between
        link = _link(entry, f"link between {one} and {other}")
        found[one, other] = link
        if "between" in entry:
            found[other, one] = link
    return found


def _link(entry: Value, where: str) -> Link:
    delay = _number(entry, "latency_ms", where) if "latency_ms" in entry else None
    if delay is None:
        delay = _number(entry, "round_trip_ms", where, 0.2) / 2
    if "bytes_per_s" in entry:
        return Link(delay, _number(entry, "bytes_per_s", where))
    # 115 MB/s of payload at 1 Gbit/s (the layer-range RFC, section 2).
    return Link(delay, _number(entry, "gbit", where, 1.0) * 115e6)


def _costs(value: object, where: str) -> Costs:
    table = _table(value, where)
    return Costs(_cost(table.get("decode", [0, 0, 0]), where), _cost(table.get("prompt", [0, 0, 0]), where))


def _cost(value: object, where: str) -> Cost:
    if not isinstance(value, list) or len(value) != 3 or not all(_is_number(item) for item in value):
        raise ValueError(f"{where}: {value!r} is not [fixed_ms, row_ms, depth_ms]")
    try:
        return Cost(*(float(item) for item in value))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _costs_json(costs: Costs) -> dict[str, object]:
    return {"decode": _cost_json(costs.decode), "prompt": _cost_json(costs.prompt)}


def _cost_json(cost: Cost) -> list[float]:
    return [cost.fixed_ms, cost.row_ms, cost.depth_ms]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(entry: Value, field: str, where: str, default: float | None = None) -> float:
    value = entry.get(field, default)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e18:
        raise ValueError(f"{where}: {field} is {value!r}, expected a number from 0 on")
    return float(value)


def _plain(entry: Value, field: str, kind: type, where: str) -> object:
    if kind is str:
        return _text(entry, field)
    value = _number(entry, field, where)
    if kind is int and value != int(value):
        raise ValueError(f"{where}: {field} is {value}, expected a whole number")
    return kind(value)


def _text(entry: Value, field: str) -> str:
    value = entry.get(field)
    if not isinstance(value, str) or not value:
        raise ValueError(f"node: {field} is {value!r}, expected a text")
    if not value.isprintable():
        raise ValueError(f"node: {field} is {value!r}, with characters that cannot be shown")
    return value


def _flag(entry: Value, field: str) -> bool:
    value = entry.get(field, False)
    if not isinstance(value, bool):
        raise ValueError(f"node: {field} is {value!r}, expected true or false")
    return value


def _table(value: object, where: str) -> Value:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {value!r} is not a table")
    return value


def _tables(value: Value, field: str) -> list[Value]:
    found = value.get(field, [])
    if not isinstance(found, list):
        raise ValueError(f"{field}: write [[{field}]], once for each")
    return [_table(item, field) for item in found]

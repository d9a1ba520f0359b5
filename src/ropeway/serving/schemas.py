"""JSON Schemas before they become grammars: bounded, and closed where they left it open which properties there are.

A schema that lists properties and says nothing of others lets a grammar invent any number of them, and small models do.
What a closed schema allows the open one allows too, so a reply still validates. Pure: the standard library alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_DEPTH: Final = 64
"""How deep a schema may nest."""

_MAPS: Final = ("properties", "$defs", "definitions")
_LISTS: Final = ("anyOf", "oneOf", "prefixItems")
_SINGLE: Final = ("items",)
_SPOKEN: Final = ("additionalProperties", "unevaluatedProperties", "patternProperties")
"""Keywords by which a schema says itself what else may be there."""

_JOINED: Final = ("anyOf", "oneOf", "allOf", "$ref", "if")
"""Keywords whose schemas describe the same object: closing one of them would shut out the others' properties."""

Schema = Mapping[str, object]


def depth(value: object) -> int:
    """Levels of nesting; breadth first, so that no depth of input can exhaust the stack."""
    levels, level = 0, [value]
    while level:
        levels += 1
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return levels


def closed(schema: Schema) -> Schema:
    """The schema with `additionalProperties: false` where it lists properties and does not speak of others.

    A schema that describes one object in several places is left as it is. At most MAX_DEPTH deep.
    """
    return schema if _joins(schema) else _close(schema)


def _joins(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    if "allOf" in schema or ("properties" in schema and any(key in schema for key in _JOINED)):
        return True
    return any(map(_joins, _inner(schema)))


def _close(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    out: dict[str, Any] = dict(schema)
    for key in _MAPS:
        if isinstance(out.get(key), Mapping):
            out[key] = {name: _close(inner) for name, inner in out[key].items()}
    for key in _LISTS:
        if isinstance(out.get(key), list):
            out[key] = [_close(inner) for inner in out[key]]
    for key in _SINGLE:
        out |= {key: _close(out[key])} if key in out else {}
    if out.get("properties") and not any(key in out for key in _SPOKEN):
        out["additionalProperties"] = False
    return out


def _inner(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas right inside a schema."""
    found: list[Any] = [schema[key] for key in _SINGLE if key in schema]
    for key in _MAPS:
        found += schema[key].values() if isinstance(schema.get(key), Mapping) else ()
    for key in _LISTS:
        found += schema[key] if isinstance(schema.get(key), list) else ()
    return found

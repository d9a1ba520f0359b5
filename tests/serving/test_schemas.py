"""Schemas closed where they were open, and only there."""

from __future__ import annotations

from typing import Any

import pytest

from ropeway.serving.schemas import closed, depth

A = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": "object"}, {"type": "object"}),
        ({}, {}),
        ({"properties": {}}, {"properties": {}}),
        ({"properties": {"a": A}}, {"properties": {"a": A}, "additionalProperties": False}),
        (
            {"properties": {"a": A}, "additionalProperties": True},
            {"properties": {"a": A}, "additionalProperties": True},
        ),
        (
            {"type": "array", "items": {"properties": {"properties": {"properties": {"a": A}}}}},
            {
                "type": "array",
                "items": {
                    "properties": {"properties": {"properties": {"a": A}, "additionalProperties": False}},
                    "additionalProperties": False,
                },
            },
        ),
        (
            {"anyOf": [{"properties": {"a": A}}, A]},
            {"anyOf": [{"properties": {"a": A}, "additionalProperties": False}, A]},
        ),
        (
            {"$defs": {"x": {"properties": {"a": A}}}, "$ref": "#/$defs/x"},
            {"$defs": {"x": {"properties": {"a": A}, "additionalProperties": False}}, "$ref": "#/$defs/x"},
        ),
        ({"const": {"properties": {"a": 1}}}, {"const": {"properties": {"a": 1}}}),
        ({"properties": 5, "items": 5, "anyOf": 5}, {"properties": 5, "items": 5, "anyOf": 5}),
    ],
)
def test_closed(schema: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert closed(schema) == wanted


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"properties": {"a": A}}, {"properties": {"b": A}}]},
        {"properties": {"a": A}, "anyOf": [{"properties": {"b": A}}, {}]},
        {"$defs": {"x": {"properties": {"a": A}}}, "$ref": "#/$defs/x", "properties": {"b": A}},
        {"items": {"properties": {"c": {"allOf": [{"properties": {"a": A}}]}}}},
    ],
)
def test_one_object_in_several_places_stays_open(schema: dict[str, Any]) -> None:
    assert closed(schema) == schema


def test_depth() -> None:
    value: Any = 1
    for _ in range(5000):
        value = [value]
    assert depth(value) == 5001
    assert depth({"a": {"b": 1}, "c": []}) == 3

"""The nodes file, good and bad."""

from __future__ import annotations

import json

import pytest

from ropeway.placement.facts import Cost, Costs, Link, Node
from ropeway.placement.inventory import Inventory, link_json, node_from, node_json, read_inventory

TEXT = """
[[node]]
name = "mac"
limit_gb = 36
backend = "metal"
decode_ms = 0.42
prompt_row_ms = 0.004
head_ms = 1.1
address = "10.0.0.2:9000"

[[node]]
file = "gb10.json"
spare = true
slower = 2

[[link]]
between = ["mac", "gb10"]
round_trip_ms = 0.3
gbit = 10

[links]
round_trip_ms = 1
gbit = 1
"""
GB10 = Node(
    "gb10", 100, {"attention": Costs(Cost(1, 2, 3), Cost(4, 5, 6)), "linear": Costs()}, Costs(Cost(0.5)), Cost(0.1),
    Cost(2), overhead_bytes=7, spare_layers=1, cut_every=4, spread=0.02,
)  # fmt: skip


def read(text: str, is_json: bool = False) -> Inventory:
    return read_inventory(text, lambda name: json.dumps(node_json(GB10, "abc")), is_json=is_json)


def test_a_nodes_file_by_hand_and_by_calibration() -> None:
    found = read(TEXT)
    mac, gb10 = found.fleet.nodes
    assert (mac.limit_bytes, mac.backend, mac.head) == (36_000_000_000, "metal", Cost(1.1))
    assert mac.costs_of("anything") == Costs(Cost(0.42), Cost(0.0, 0.004))
    assert (gb10.slower, gb10.layers, gb10.cut_every) == (2.0, GB10.layers, 4)
    assert gb10.scaled().layers["attention"].decode == Cost(2, 4, 6)
    assert found.spare == {"gb10"}
    assert found.addresses == {"mac": "10.0.0.2:9000"}
    assert found.models == {"gb10": "abc"}
    assert found.fleet.between("gb10", "mac") == Link(0.15, 1.15e9)
    assert found.fleet.between("mac", "elsewhere") == Link(0.5, 115e6)


def test_a_node_comes_back_as_it_was_written() -> None:
    assert node_from(json.loads(json.dumps(node_json(GB10)))) == GB10
    link = link_json("mac", "gb10", Link(0.25, 1e9))
    text = json.dumps({"node": [node_json(GB10), {**node_json(GB10), "name": "mac"}], "link": [link]})
    assert read(text, True).fleet.links == {("mac", "gb10"): Link(0.25, 1e9)}


NODE = '[[node]]\nname = "a"\nlimit_gb = 1\ndecode_ms = 1\n'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", r"has no \[\[node\]\]"),
        ("x", "nodes: "),
        ("cat = 1", "cat is not a field of a nodes file"),
        ("node = 3", r"write \[\[node\]\]"),
        ("[[node]]\nlimit_gb = 1", "name is None"),
        ('[[node]]\nname = "a"\nlimit_gb = 1', "node a: it has no times"),
        ('[[node]]\nname = "a"\ndecode_ms = 1', "node a: limit_gb is None"),
        (NODE + "speed = 1", "node a: speed is not a field"),
        (NODE + "spare_layers = true", "spare_layers is True"),
        (NODE + "slower = -1", "slower is -1"),
        (NODE + "head = [1]", "head: "),
        (NODE + "head = [nan, 0, 0]", "node a: head: fixed_ms: nan is not a time"),
        (NODE + "limit_bytes = inf", "limit_bytes is inf"),
        (NODE + "cut_every = 2.5", "cut_every is 2.5, expected a whole number"),
        (NODE.replace('"a"', r'"a\u001b[31m"'), "characters that cannot be shown"),
        (NODE + "[links]\ngbit = nan", "links: gbit is nan"),
        (NODE + "cut_every = 0", "cut_every: a has 0"),
        (NODE + "limit_bytes = nan", "limit_bytes is nan"),
        (NODE + 'devices = ["cuda:0", "metal:0"]', "must be of one backend, not cuda and metal"),
        (NODE + NODE, "a name occurs twice"),
        (NODE + '[[link]]\nbetween = ["a", "b"]', "are not two of the nodes a"),
        (NODE + '[[link]]\nbetween = ["a", "a"]\ngbit = 0', "cannot be"),
        (NODE + '[[link]]\nbetween = ["a", "a"]\nspeed = 0', "speed is not a field of a link"),
    ],
)
def test_what_is_wrong_is_named(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(text)


def test_devices_of_one_backend_make_one_node() -> None:
    assert read(NODE + 'devices = ["cuda:0", "cuda:1"]').fleet.nodes[0].name == "a"

"""What is read out of the service's replies, and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ropeway.launch.provider import Offer, Order, State, Wanted
from ropeway.launch.vastai_shapes import create_body, read_instance, read_offers, search_body

GOOD = {"id": 1, "machine_id": 2, "dph_total": 0.1, "geolocation": "SE"}


def test_offers_of_another_shape_are_left_out() -> None:
    bad: list[Any] = [7, None, {}, GOOD | {"id": "1"}, GOOD | {"id": True}, GOOD | {"dph_total": "free"}]
    bad += [GOOD | {"dph_total": -1}, GOOD | {"machine_id": None}, GOOD | {"geolocation": ""}]
    bad += [GOOD | {"dph_total": float("nan")}, GOOD | {"dph_total": float("inf")}]
    assert read_offers({"offers": [*bad, GOOD]}, Wanted(1)) == (Offer(1, 2, 0.1, "", "SE"),)


@pytest.mark.parametrize(
    "more",
    [
        {"reliability2": 0.9},
        {"reliability": 0.9},
        {"inet_down": 99.0},
        {"cuda_max_good": 12.5},
        {"num_gpus": 2},
        {"rented": True},
        {"rentable": False},
    ],
)
def test_the_services_own_filter_is_not_trusted(more: dict[str, object]) -> None:
    assert read_offers({"offers": [GOOD | more]}, Wanted(1)) == ()


def test_the_cheapest_comes_first() -> None:
    offers = [GOOD | {"id": number, "dph_total": price} for number, price in ((1, 0.3), (2, 0.1), (3, 0.2), (4, 0.1))]
    assert [offer.id for offer in read_offers({"offers": offers}, Wanted(1))] == [2, 4, 3, 1]


@pytest.mark.parametrize(
    ("entry", "state"),
    [
        ({"actual_status": None}, State.COMING),
        ({"actual_status": "loading"}, State.COMING),
        ({"actual_status": "created"}, State.COMING),
        ({"actual_status": "unknown"}, State.COMING),
        ({"actual_status": "running"}, State.RUNNING),
        ({"actual_status": "running", "status_msg": "Error: an old one"}, State.RUNNING),
        ({"actual_status": "loading", "status_msg": "Error response from daemon"}, State.ENDED),
        ({"actual_status": "running", "intended_status": "stopped"}, State.ENDED),
        ({"actual_status": "exited"}, State.ENDED),
        ({"actual_status": "stopped"}, State.ENDED),
        ({"actual_status": "offline"}, State.ENDED),
        ({"actual_status": "error"}, State.ENDED),
        ({"actual_status": "something new"}, State.ENDED),
    ],
)
def test_what_a_status_means(entry: dict[str, object], state: State) -> None:
    found = read_instance({"instances": {"id": 5, **entry}})
    assert found is not None
    assert found.state is state


@pytest.mark.parametrize("said", [{}, {"success": False, "error": "internal"}, {"instances": 7}, {"instances": [1, 2]}])
def test_only_null_means_that_there_is_no_instance(said: dict[str, object]) -> None:
    assert read_instance({"instances": None}) is None
    with pytest.raises(ValueError, match="no instance and not null"):
        read_instance(said)


def test_what_an_instance_costs_is_read() -> None:
    found = read_instance({"instances": {"id": 5, "dph_total": 0.25}})
    assert found is not None
    assert found.price == 0.25


def test_what_is_sent() -> None:
    body = search_body(Wanted(2, gpu="RTX 4090", disk_gb=20))
    assert body["gpu_name"] == {"eq": "RTX 4090"}
    assert (body["rentable"], body["num_gpus"], body["allocated_storage"]) == ({"eq": True}, {"eq": 1}, 20)
    assert "gpu_name" not in search_body(Wanted(2))
    sent = create_body(Order("some/image", 20, "run/1", {"STAGE": "1"}))
    assert (sent["label"], sent["env"], sent["disk"]) == ("run/1", {"STAGE": "1"}, 20)
    assert sent["runtype"] == "args", "which leaves the image its entry point"
    json.dumps([body, sent])

"""The formulas by worked examples: memberlist's and Lifeguard's."""

from __future__ import annotations

import math

import pytest

from ropeway.cluster.swim.suspicion import Health, Suspicion
from ropeway.cluster.swim.timing import LAN, WAN, Timing

A, B, C, D = b"A", b"B", b"C", b"D"


def test_suspicion_grows_with_the_logarithm_of_the_members() -> None:
    assert LAN.suspicion_min_s(1) == LAN.suspicion_min_s(10) == 4.0  # 4 x max(1, log10 n) x 1 s
    assert LAN.suspicion_min_s(100) == 8.0
    assert WAN.suspicion_min_s(5) == 30.0  # 6 x 1 x 5 s
    assert LAN.suspicion_max_s(100) == 48.0  # 6 times that
    assert WAN.suspicion_max_s(5) == 180.0


def test_confirmations_shorten_a_suspicion() -> None:
    assert LAN.confirmations(100) == 2  # 4 - 2
    assert LAN.suspicion_s(100, 0) == 48.0
    assert LAN.suspicion_s(100, 1) == pytest.approx(48 - 40 * math.log(2) / math.log(3))  # 22.76
    assert LAN.suspicion_s(100, 2) == pytest.approx(8.0)
    assert LAN.suspicion_s(100, 3) == 8.0
    assert WAN.confirmations(100) == 4  # 6 - 2


@pytest.mark.parametrize(("living", "k"), [(2, 0), (3, 0), (4, 2), (5, 2)])
def test_few_members_wait_the_shortest_time(living: int, k: int) -> None:
    assert LAN.confirmations(living) == k  # none where n - 2 < k
    assert (LAN.suspicion_s(living, 0) == LAN.suspicion_min_s(living)) == (k == 0)


def test_gossip_and_push_pull_scale() -> None:
    assert [LAN.retransmits(n) for n in (1, 9, 10, 99, 100)] == [4, 4, 8, 8, 12]  # 4 x ceil(log10(n + 1))
    assert [LAN.push_pull_s(n) for n in (32, 33, 64, 65)] == [30.0, 60.0, 60.0, 90.0]


def test_only_new_accusers_confirm() -> None:
    suspicion = Suspicion(100.0, LAN, 100, A)
    assert suspicion.ends_at() == 148.0
    assert not suspicion.confirm(A)
    assert suspicion.confirm(B)
    assert not suspicion.confirm(B)
    assert suspicion.confirm(C)
    assert suspicion.ends_at() == pytest.approx(108.0)
    assert not suspicion.confirm(D)
    suspicion.delay(5.0)
    assert suspicion.ends_at() == pytest.approx(113.0)


def test_a_death_elsewhere_leaves_the_shortest_time() -> None:
    suspicion = Suspicion(0.0, WAN, 10, A)
    assert suspicion.ends_at() == 180.0
    suspicion.make_sure()
    assert suspicion.ends_at() == 30.0


def test_health_stays_inside_its_range() -> None:
    health = Health(8)
    health.better()
    assert (health.score, health.factor) == (0, 1)
    health.worse(20)
    assert (health.score, health.factor) == (7, 8)
    health.better()
    assert health.score == 6


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("probe_timeout_s", 1.0),
        ("probe_timeout_s", 0.0),
        ("gossip_interval_s", 0.0),
        ("gossip_nodes", 0),
        ("suspicion_multiplier", 0),
        ("indirect_checks", -1),
        ("forget_s", 0.0),
    ],
)
def test_a_bad_value_names_its_field(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        Timing(**{field: value})  # type: ignore[arg-type]

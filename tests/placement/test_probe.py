"""Links measured on loopback over the real probe channel, and what is said where they cannot be."""

from __future__ import annotations

import errno
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ropeway.placement.probe import (
    address_hint,
    measure_link,
    probe_layout,
    probe_links,
    trouble,
)
from ropeway.transport import join, tcp
from ropeway.transport.config import RingConfig
from ropeway.transport.probing import MOST_BYTES, Prober, ProbeRefused, answering
from ropeway.wire import Channel
from transport.puppet import dial
from transport.rings import Place, place
from transport.rings import layout as ring_layout


def configs(here: Place) -> list[RingConfig]:
    return [here.config(rank, listen="") for rank in range(here.layout.world)]


def test_every_pair_is_measured_from_both_sides() -> None:
    with place(probe_layout(3)) as here, ThreadPoolExecutor(3) as pool:
        found = [future.result(60) for future in [pool.submit(probe_links, c, 30.0) for c in configs(here)]]
    for rank, links in enumerate(found):
        assert sorted(one.rank for one in links) == [other for other in range(3) if other != rank]
        for one in links:
            assert one.trouble == ""
            assert one.link is not None
            assert 0 < one.link.latency_ms * 2 == one.round_trip_ms
            assert one.link.bytes_per_s > 1e6


def test_a_ring_that_runs_answers_probes_too() -> None:
    with place(ring_layout(2)) as here, ThreadPoolExecutor(2) as pool:
        rings = [future.result(20) for future in [pool.submit(join, here.config(rank)) for rank in range(2)]]
        try:
            assert measure_link(here.config(1), 0).link is not None
            rings[0].check()
        finally:
            rings[0].stop()
            for ring in rings:
                ring.close()


def test_a_dead_port_is_told_with_what_to_do() -> None:
    with place(probe_layout(2)) as here:
        gone = here.addresses[1]
        here.listeners[1].close()
        found = probe_links(here.config(0), 0.3)
    assert found[0].link is None
    assert found[0].trouble.startswith(f"{gone}: nobody listens there: start `ropeway probe` on it")


def test_one_way_is_noticed() -> None:
    """Rank 1 answers, but never dials."""
    with place(probe_layout(2)) as here, answering(here.config(1), lambda _: None):
        found = probe_links(here.config(0), 0.5)
    assert found[0].link is not None
    assert "we reach it, and it has not reached us" in found[0].trouble


def test_another_key_or_ring_is_refused_by_name() -> None:
    with place(probe_layout(2)) as here, answering(here.config(1), lambda _: None):
        stranger = replace(here.config(0), key=os.urandom(32))
        found = probe_links(replace(stranger, listener=None, listen="127.0.0.1:0"), 1.0)
        assert "refuses us" in found[0].trouble
        other = replace(here.config(0), layout=ring_layout(2))
        with pytest.raises(ProbeRefused, match="refuses us: wrong_fingerprint"):
            Prober(other, 1, 5.0)


def test_a_silent_port_times_out() -> None:
    with place(probe_layout(2)) as here, pytest.raises(TimeoutError):
        Prober(here.config(0), 1, 0.2)


def test_only_probes_are_answered_where_there_is_no_ring() -> None:
    with place(probe_layout(2)) as here, answering(here.config(0), lambda _: None):
        with pytest.raises(ConnectionRefusedError, match="only links are measured here"):
            dial(here, Channel.CONTROL, 1, 0)
        assert measure_link(here.config(1), 0).link is not None


def test_a_probe_has_a_largest_size() -> None:
    with place(probe_layout(2)) as here, answering(here.config(1), lambda _: None), Prober(here.config(0), 1, 5) as one:
        assert one.echo_s(10) > 0
        with pytest.raises(ValueError, match="payload_bytes"):
            one.echo_s(MOST_BYTES + 1)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (socket.gaierror(-2, "unknown"), "the name is not known here"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "nobody listens there"),
        (TimeoutError("timed out"), "no answer at all: a firewall drops it"),
        (OSError(errno.ENETUNREACH, "unreachable"), "there is no route"),
        (OSError(errno.EHOSTUNREACH, "unreachable"), "there is no route"),
        (PermissionError(errno.EPERM, "no"), "own firewall"),
        (OSError(errno.EIO, "odd"), "odd"),
    ],
)
def test_what_an_error_means(error: OSError, says: str) -> None:
    assert says in trouble("10.0.0.1:9000", error)


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("172.17.0.1:9000", "container bridge"),
        ("127.0.0.1:9000", "loopback"),
        ("169.254.3.4:9000", "link-local"),
        ("10.0.0.4:9000", ""),
        ("somewhere:9000", ""),
    ],
)
def test_suspicious_addresses_are_named(address: str, hint: str) -> None:
    assert hint in address_hint(address)
    assert bool(hint) == bool(address_hint(address))
    tcp.parse_address(address)

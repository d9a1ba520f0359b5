"""Links measured over the probe channel: round trip and bandwidth to every other rank, or what is wrong.

Every machine runs the same command at about the same time; each measures what it sends, one after the other. Measures.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from statistics import median
from typing import Final

from ropeway.placement.facts import Link
from ropeway.placement.fit import spread
from ropeway.transport import tcp
from ropeway.transport.config import RingConfig
from ropeway.transport.door import Door
from ropeway.transport.probing import MOST_BYTES, Prober, ProbeRefused, answering
from ropeway.types import Boundary, Layout

SMALL: Final = 24
"""Small probes a link."""
LARGE_S: Final = 0.4
"""A large probe should take about so long: sizes double until it does."""
LARGE: Final = 3
STEP_S: Final = 5.0
"""Longest wait for one probe."""
RETRY_S: Final = 0.2
POLL_S: Final = 0.02
_CONTAINERS: Final = tuple(ipaddress.ip_network(net) for net in ("172.17.0.0/16", "172.18.0.0/15", "10.88.0.0/16"))
"""Where Docker and Podman put their bridges unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found out about the way to `rank`. `trouble` says what is wrong and what to do; then `link` is None.

    `link` counts half the median round trip as the delay of a way. `bytes_per_s` may be unknown where only large frames
    failed.
    """

    rank: int
    address: str
    link: Link | None
    round_trip_ms: float = 0.0
    spread: float = 0.0
    trouble: str = ""


def probe_layout(world: int) -> Layout:
    """What ranks agree on where there is no model yet: nothing but how many they are."""
    ranges = tuple((rank, rank + 1) for rank in range(world))
    return Layout(Boundary(1), sha256(b"ropeway probe").hexdigest(), world, ranges)


def probe_links(config: RingConfig, wait_s: float, said: Callable[[Measured], None] = lambda _: None) -> list[Measured]:
    """Measure the way to every other rank while answering theirs; stay until each has dialled us, or `wait_s` is over.

    A rank that is not up yet is dialled again until then. Raises ValueError or OSError where we cannot listen.
    """
    heard: set[int] = set()
    others = [(config.rank + step) % config.layout.world for step in range(1, config.layout.world)]
    deadline = time.monotonic() + wait_s
    found = []
    with answering(config, heard.add) as door:
        _wait(door, heard, set(range(config.rank)), deadline - wait_s / 2)
        for rank in others:
            found.append(_measure(config, rank, deadline))
            said(found[-1])
        _wait(door, heard, set(others), deadline)
        return [_one_way(one, config) if one.rank not in heard and one.link else one for one in found]


def _wait(door: Door, heard: set[int], ranks: set[int], deadline: float) -> None:
    """Wait until these ranks have come and gone: they are done with us then, and two at a time would share a link."""
    while (door.guests or not heard >= ranks) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def measure_link(config: RingConfig, rank: int) -> Measured:
    """The way to one rank. Raises OSError, ProbeRefused."""
    address = config.addresses[rank]
    with Prober(config, rank, STEP_S) as prober:
        trips = [prober.echo_s(0) for _ in range(SMALL)][SMALL // 4 :]
        trip_s = median(trips)
        size, took = 1 << 18, 0.0
        try:
            while (took := prober.echo_s(size)) < LARGE_S and size < MOST_BYTES:
                size *= 2
            took = min([took, *(prober.echo_s(size) for _ in range(LARGE - 1))])
        except TimeoutError:
            text = f"{address}: small frames pass and {size >> 10} KiB do not: a firewall or an MTU that is too large; "
            text += "try `ping -M do -s 1472` there, and lower the interface's MTU"
            return Measured(rank, address, None, trip_s * 1e3, spread(trips), text)
    link = Link(trip_s / 2 * 1e3, size / max(took - trip_s, 1e-9))
    return Measured(rank, address, link, trip_s * 1e3, spread(trips))


def _measure(config: RingConfig, rank: int, deadline: float) -> Measured:
    address = config.addresses[rank]
    while True:
        try:
            return measure_link(config, rank)
        except ProbeRefused as error:
            return Measured(rank, address, None, trouble=f"{address}: {error}")
        except OSError as error:
            if time.monotonic() + RETRY_S > deadline or not _may_come(error):
                return Measured(rank, address, None, trouble=trouble(address, error))
        time.sleep(RETRY_S)


def _may_come(error: OSError) -> bool:
    return isinstance(error, (ConnectionRefusedError, ConnectionResetError, TimeoutError))


def trouble(address: str, error: OSError) -> str:
    """What an error of connecting most likely means, and what to do about it."""
    hint = address_hint(address)
    if isinstance(error, socket.gaierror):
        what = "the name is not known here: use an address, or add it to the hosts file"
    elif isinstance(error, ConnectionRefusedError):
        what = "nobody listens there: start `ropeway probe` on it with the same --ring, or a firewall rejects the port"
    elif isinstance(error, TimeoutError):
        what = "no answer at all: a firewall drops it, the machine is off, or the address is on another network"
    elif error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        what = "there is no route: the two machines share no network, or the interface is down"
    elif error.errno in (errno.EACCES, errno.EPERM):
        what = "this machine's own firewall forbids it"
    else:
        what = error.strerror or str(error)
    return f"{address}: {what}{'; ' + hint if hint else ''}"


def address_hint(address: str) -> str:
    """What is suspicious about an address by itself; empty where nothing is."""
    host, _ = tcp.parse_address(address)
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if ip.is_loopback:
        return "this is a loopback address, which other machines cannot reach"
    if ip.is_link_local:
        return "this is a link-local address: use the interface's own address"
    if any(ip in net for net in _CONTAINERS):
        return "this looks like a container bridge: use the address of the machine's network interface"
    return ""


def _one_way(one: Measured, config: RingConfig) -> Measured:
    own = config.addresses[config.rank]
    text = f"{one.address}: we reach it, and it has not reached us at {own}: a firewall here, or an address that only "
    text += f"works here{'; ' + address_hint(own) if address_hint(own) else ''}"
    return Measured(one.rank, one.address, one.link, one.round_trip_ms, one.spread, text)


def rows(found: Sequence[Measured]) -> list[tuple[str, str, str, str]]:
    """The links for a table: rank, address, round trip, bandwidth."""
    return [
        (
            str(one.rank),
            one.address,
            f"{one.round_trip_ms:.3f} ms" if one.round_trip_ms else "-",
            f"{one.link.bytes_per_s * 8 / 1e9:.2f} Gbit/s" if one.link else "-",
        )
        for one in found
    ]

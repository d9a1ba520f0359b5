"""TCP for the ring: addresses, listening, one attempt to connect, and how a stream socket is set up.

Everything that is TCP's own is here; the rest of the room takes any stream socket. Knows nothing of frames or ranks.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
import time
from typing import Any, Final

BACKLOG: Final = 128
CONNECT_S: Final = 5.0
"""Longest wait for one address of a host name before the next one is tried."""


def parse_address(text: str) -> tuple[str, int]:
    """`host:port` or `[ipv6]:port` as (host, port). Raises ValueError that quotes the text."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise ValueError(f"address: {text!r} is not HOST:PORT (for IPv6 [HOST]:PORT) with a port of 0..65535")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host or "[" in host or "]" in host:
        raise ValueError(f"address: {text!r} has a colon in its host; write an IPv6 address as [HOST]:PORT")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """The inverse of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_listen(address: str) -> None:
    """Refuse, with ValueError, an address to listen at that means every interface (wire.md 1)."""
    host, _ = parse_address(address)
    if host in ("", "*"):
        raise ValueError(f"listen: {address!r} has no host, which means every interface; name the one the ring uses")
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        return  # a name: judged once it is resolved
    _refuse_wildcard(address, str(found[0][4][0]))


def _refuse_wildcard(address: str, ip: str, field: str = "listen") -> None:
    parsed = ipaddress.ip_address(ip.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    if parsed.is_unspecified or (mapped is not None and mapped.is_unspecified):
        raise ValueError(f"{field}: {address!r} is a wildcard and means every interface; name the one the ring uses")


def _resolve(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    """Every address of a host, in the system's order. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} is not a host name: {error}") from None
    return [(family, resolved) for family, _, _, _, resolved in found]


def check_listener(listener: socket.socket) -> None:
    """Refuse, with ValueError, a listener that was handed over and takes connections from every interface."""
    if listener.family in (socket.AF_INET, socket.AF_INET6):
        _refuse_wildcard(listening_address(listener), str(listener.getsockname()[0]), "listener")


def listen(address: str) -> socket.socket:
    """A listening socket at `host:port` (port 0: any free one). Raises ValueError (wildcard, syntax) or OSError."""
    check_listen(address)
    host, port = parse_address(address)
    family, resolved = _resolve(host, port)[0]
    _refuse_wildcard(address, str(resolved[0]))
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(resolved)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen at {address}: {error.strerror}") from error
    return listener


def listening_address(listener: socket.socket) -> str:
    """Where a listener can be dialled, the port that the system chose included."""
    host, port = listener.getsockname()[:2]
    return format_address(str(host), int(port))


def tune(sock: socket.socket) -> None:
    """Send small frames at once, and let the system notice a host that vanished without a word (about 15 s)."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "darwin":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPALIVE, 6)
    else:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 6)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def accepted(sock: socket.socket) -> str:
    """Tune a socket that a listener gave; the address of its other end, for messages. Raises OSError if it is gone."""
    host, port = sock.getpeername()[:2]
    tune(sock)
    return format_address(str(host), int(port))


def connect(address: str, timeout_s: float) -> socket.socket:
    """One attempt at every address that the host resolves to; a tuned socket. Raises OSError, ValueError (syntax)."""
    host, port = parse_address(address)
    give_up = time.monotonic() + timeout_s
    failure: OSError = TimeoutError("no time left to connect")
    for family, resolved in _resolve(host, port):
        left = give_up - time.monotonic()
        if left <= 0:
            break
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(min(left, CONNECT_S))
            sock.connect(resolved)
            if sock.getsockname() == sock.getpeername():
                # Nobody listens, and the system gave us that very port: TCP connects to itself.
                raise ConnectionRefusedError("connected to itself: nobody listens there")
            tune(sock)
        except OSError as error:
            sock.close()
            failure = error
        else:
            sock.setblocking(True)
            return sock
    raise failure

"""One iroh endpoint: bound on both address families, dialled under a deadline. Knows nothing of keys or frames."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from dataclasses import dataclass
from typing import Any, Final

from ropeway.transport import tcp
from ropeway.transport.iroh.binding import load

ALPN: Final = b"ropeway/node/1"
DIAL_S: Final = 5.0
"""Longest wait for one node to answer; the library itself would take 30 s."""
ADDRESS_BYTES: Final = 255
"""Longest address as text."""
ID_BYTES: Final = 32


class Unreachable(ConnectionError):
    """A node does not answer, or its connection broke."""


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a node may be reached: its relay's URL, if any, and IP:PORT candidates (UDP)."""

    direct: tuple[str, ...] = ()
    relay: str = ""

    def text(self) -> str:
        """One line of at most `ADDRESS_BYTES`; what does not fit is left out."""
        for count in range(len(self.direct), -1, -1):
            text = ",".join((self.relay, *self.direct[:count]))
            if len(text.encode()) <= ADDRESS_BYTES:
                return text
        return ""

    @classmethod
    def parse(cls, text: str) -> NodeAddress:
        """The inverse of `text`, for what a peer says. Raises ValueError."""
        if len(text.encode()) > ADDRESS_BYTES or not text.isprintable():
            raise ValueError("address: too long, or not printable")
        relay, *direct = text.split(",")
        for address in direct:
            host, _ = tcp.parse_address(address)
            ipaddress.ip_address(host)
        if relay and not relay.startswith(("https://", "http://")):
            raise ValueError(f"address: {relay!r} is no relay's URL")
        return cls(tuple(direct), relay)


def complete(bind: tuple[str, ...]) -> tuple[str, ...]:
    """Addresses to bind for both families: a family that is left out would be bound on every interface.

    Empty stays empty, which means every interface of both. Raises ValueError for what is no IP:PORT.
    """
    families = set()
    for address in bind:
        host, _ = tcp.parse_address(address)
        try:
            families.add(ipaddress.ip_address(host).version)
        except ValueError:
            raise ValueError(f"bind: {address!r} must begin with an IP address") from None
    if not bind:
        return ()
    missing = {4: "127.0.0.1:0", 6: "[::1]:0"}
    return bind + tuple(address for version, address in missing.items() if version not in families)


class Endpoint:
    """An endpoint that is bound; made by `bind`."""

    def __init__(self, iroh: Any, raw: Any) -> None:
        self._iroh = iroh
        self._raw = raw
        self.node = str(raw.id())
        """Its id: 64 hex digits of its public key."""

    @classmethod
    async def bind(cls, secret: bytes, bind: tuple[str, ...] = (), relays: str = "none") -> Endpoint:
        """Bind with a secret key of 32 bytes.

        `relays`: "default" (those that n0 runs, and its discovery), "none", or URLs with commas between. Raises
        ValueError where the extra is missing or a value is wrong, OSError where it cannot be bound.
        """
        iroh = load()
        builder = iroh.EndpointBuilder()
        try:
            if relays == "default":
                builder.apply_n0()
            else:
                builder.apply_minimal()
                urls = [] if relays == "none" else [url.strip() for url in relays.split(",")]
                mode = iroh.RelayMode
                builder.relay_mode(mode.custom_from_urls(urls) if urls else mode.disabled())
            builder.secret_key(secret)
            builder.alpns([ALPN])
            for address in complete(bind):
                builder.bind_addr(address)
            return cls(iroh, await builder.bind())
        except iroh.IrohError as error:
            raise OSError(f"cannot bind a node at {', '.join(bind) or 'any address'}: {error.message()}") from None

    def address(self) -> NodeAddress:
        """Where this node can be reached, as far as it knows by now."""
        address = self._raw.addr()
        relay = address.relay_url()
        return NodeAddress(tuple(str(one) for one in address.direct_addresses()), str(relay) if relay else "")

    async def dial(self, node: str, address: NodeAddress | None, limit_s: float = DIAL_S) -> Any:
        """A connection to `node`, which TLS has proved to be it. Raises Unreachable after `limit_s` at most."""
        iroh = self._iroh
        try:
            known = address or NodeAddress()
            target = iroh.EndpointAddr(iroh.EndpointId.from_string(node), known.relay or None, list(known.direct))
            return await asyncio.wait_for(self._raw.connect(target, ALPN), limit_s)
        except TimeoutError:
            raise Unreachable(f"node {node[:8]} did not answer within {limit_s:g} s") from None
        except iroh.IrohError as error:
            raise Unreachable(f"node {node[:8]} cannot be reached: {error.message()}") from None

    async def incoming(self) -> Any | None:
        """The next connection attempt; None once the endpoint is closed."""
        return await self._raw.accept_next()

    async def accept(self, incoming: Any, limit_s: float) -> Any:
        """Take an attempt: the connection once its handshake is done. Raises Unreachable."""
        try:
            accepting = await asyncio.wait_for(incoming.accept(), limit_s)
            return await asyncio.wait_for(accepting.connect(), limit_s)
        except TimeoutError:
            raise Unreachable(f"its handshake was not done within {limit_s:g} s") from None
        except self._iroh.IrohError as error:
            raise Unreachable(str(error.message())) from None

    async def refuse(self, incoming: Any) -> None:
        """Turn an attempt away; never raises."""
        try:
            await incoming.refuse()
        except self._iroh.IrohError:
            return

    @property
    def error(self) -> type[Exception]:
        """What the library raises."""
        kind: type[Exception] = self._iroh.IrohError
        return kind

    async def close(self) -> None:
        """Close every connection and the sockets."""
        await self._raw.close()


def node_bytes(node: str) -> bytes:
    """The 32 bytes of a node's id. Raises ValueError."""
    try:
        value = bytes.fromhex(node)
    except ValueError:
        value = b""
    if len(value) != ID_BYTES:
        raise ValueError("node: not an id of 64 hex digits")
    return value


def describe(connection: Any) -> str:
    """Where a connection comes from, for logs: the path that is used now."""
    paths = [path for path in connection.paths() if path.is_selected] or list(connection.paths())
    return json.dumps(paths[0].remote_addr) if paths else "an unknown address"

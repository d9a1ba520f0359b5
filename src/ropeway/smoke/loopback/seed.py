"""The orchestrator's end of a loopback cluster."""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
from typing import Any, Final, Self

from ropeway.cluster.client import AgentError, MemberView
from ropeway.cluster.messages import Message, decode_message, encode_message
from ropeway.smoke.loopback.link import PROOF_S, TICKET, Box, Link, addresses_of, prove
from ropeway.transport import tcp
from ropeway.transport.lines import LineError, read_line

_SEED: Final = "seed"


class Seed:
    """The orchestrator's end. As `cluster.Cluster`; it runs no rank."""

    node = _SEED

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._members: dict[str, MemberView] = {_SEED: MemberView(_SEED, "orchestrator", "alive", here=True)}
        self._links: dict[str, Link] = {}
        self._names: dict[str, str] = {}
        self._boxes: dict[str, Box] = {}
        self._listener = tcp.listen("127.0.0.1:0")
        threading.Thread(target=self._accept, name="loopback seed", daemon=True).start()

    def ticket(self) -> str:
        """As `Cluster`."""
        return f"{TICKET}{tcp.listening_address(self._listener)}:{self._key.hex()}"

    def members(self) -> list[MemberView]:
        """As `Cluster`."""
        with self._lock:
            return list(self._members.values())

    def names(self) -> dict[str, str]:
        """As `Cluster`."""
        with self._lock:
            return dict(self._names)

    def listen(self, name: str) -> Box:
        """As `Cluster`."""
        box = Box(name, lambda: self._forget(name, _SEED))
        with self._lock:
            self._boxes[name] = box
            self._names[name] = _SEED
        self._tell_all()
        return box

    def send(self, name: str, message: Message) -> None:
        """As `Cluster`."""
        error = self._route(name, encode_message(message))
        if error:
            raise AgentError(error)

    def rank_listener(self, ring: str, rank: int) -> socket.socket:
        """The seed runs no rank."""
        raise AssertionError("the orchestrator runs no rank")

    def rank_reach(self, ring: str) -> dict[str, Any]:
        """Plain TCP."""
        return {}

    def rank_addresses(self, world: int) -> tuple[str, ...]:
        """As `Cluster`."""
        return addresses_of(self.names(), world)

    def close(self) -> None:
        """End every connection."""
        self._listener.close()
        with self._lock:
            links = list(self._links.values())
        for link in links:
            link.send({"leave": True})
            link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), name="loopback member", daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        tcp.tune(sock)
        link = Link(sock)
        node = ""
        try:
            node = self._prove(link)
            if node:
                link.read(lambda line: self._take(node, link, line))
        finally:
            link.close()
            if node:
                self._lost(node, link)

    def _prove(self, link: Link) -> str:
        """Let a member in that has the key; its node id, empty where it is turned away."""
        ours = secrets.token_hex(16)
        link.send({"nonce": ours})
        try:
            line = read_line(link.sock, PROOF_S) or {}
        except (OSError, LineError, TimeoutError):
            return ""
        node, label, nonce, proof = (str(line.get(field, ""))[:200] for field in ("node", "label", "nonce", "proof"))
        if not hmac.compare_digest(proof.encode(), prove(self._key, "member", ours, nonce).encode()):
            link.send({"error": "the key of the ticket is another"})
            return ""
        with self._lock:
            known = self._members.get(node)
            if not node or (known is not None and known.state == "alive"):
                link.send({"error": f"there is a node {node} already"})
                return ""
            link.send({"proof": prove(self._key, "seed", ours, nonce)})  # before any view that another thread sends
            self._members[node] = MemberView(node, label, "alive")
            self._links[node] = link
        link.start()
        self._tell_all()
        return node

    def _take(self, node: str, link: Link, line: dict[str, Any]) -> None:
        name = str(line.get("name", ""))
        if line.get("leave") is True:
            self._leave(node, "left")
        elif "message" in line:
            error = self._route(name, line["message"])
            link.send({"sent": line.get("id"), "error": error})
        elif line.get("forget") is True:
            self._forget(name, node)
        elif name:
            with self._lock:
                self._names[name] = node
            self._tell_all()

    def _route(self, name: str, message: Any) -> str:
        """Pass a message on; why that could not be done, empty where it was."""
        with self._lock:
            node = self._names.get(name)
            box = self._boxes.get(name) if node == _SEED else None
            link = self._links.get(node or "")
        if box is not None:
            try:
                box.mail.put(decode_message(message if isinstance(message, dict) else {}))
            except ValueError as error:
                return str(error)
            return ""
        if link is None or not link.send({"name": name, "message": message}):
            return f"nobody has the name {name!r}"
        return ""

    def _forget(self, name: str, node: str) -> None:
        with self._lock:
            if self._names.get(name) == node:
                del self._names[name]
        self._tell_all()

    def _lost(self, node: str, link: Link) -> None:
        with self._lock:
            if self._links.get(node) is link:
                del self._links[node]
        self._leave(node, "dead")

    def _leave(self, node: str, state: str) -> None:
        with self._lock:
            member = self._members[node]
            if member.state == "alive":
                self._members[node] = MemberView(node, member.label, state)
            self._names = {name: owner for name, owner in self._names.items() if owner != node}
        self._tell_all()

    def _tell_all(self) -> None:
        with self._lock:
            links = list(self._links.values())
            view = {
                "members": [[m.node, m.label, m.state] for m in self._members.values()],
                "names": dict(self._names),
            }
        for link in links:
            link.send({"view": view})

"""A node's end of a loopback cluster."""

from __future__ import annotations

import hmac
import queue
import secrets
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Final, Self

from ropeway.cluster.client import AgentError, MemberView
from ropeway.cluster.messages import Message, decode_message, encode_message
from ropeway.smoke.loopback.link import PROOF_S, SILENCE_S, Box, Link, addresses_of, prove, read_ticket
from ropeway.transport import tcp
from ropeway.transport.lines import LineError, read_line

DIAL_S: Final = 0.2
"""Between two tries to reach the seed."""


class Member:
    """A node's end. As `cluster.Cluster`; made by `join`."""

    def __init__(self, link: Link, node: str, ticket: str, listener: socket.socket) -> None:
        self.node = node
        self._link = link
        self._ticket = ticket
        self._listener = listener
        self._lock = threading.Lock()
        self._members: list[MemberView] = []
        self._names: dict[str, str] = {}
        self._boxes: dict[str, Box] = {}
        self._sent: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._gone = False
        link.start()
        threading.Thread(target=self._read, name="loopback reader", daemon=True).start()

    def ticket(self) -> str:
        """As `Cluster`."""
        return self._ticket

    def members(self) -> list[MemberView]:
        """As `Cluster`."""
        self._check()
        with self._lock:
            return list(self._members)

    def names(self) -> dict[str, str]:
        """As `Cluster`."""
        self._check()
        with self._lock:
            return dict(self._names)

    def listen(self, name: str) -> Box:
        """As `Cluster`."""
        self._check()
        box = Box(name, lambda: self._forget(name))
        with self._lock:
            self._boxes[name] = box
        self._link.send({"name": name})
        return box

    def send(self, name: str, message: Message) -> None:
        """As `Cluster`. For one thread at a time."""
        self._link.send({"name": name, "message": encode_message(message), "id": 0})
        try:
            error = self._sent.get(timeout=SILENCE_S)
        except queue.Empty:
            error = "the orchestrator does not answer"
        if error is None:
            error = "the orchestrator has gone"
        if error:
            raise AgentError(error)

    def rank_listener(self, ring: str, rank: int) -> socket.socket:
        """As `Cluster`: the listener whose address is our node id."""
        return self._listener.dup()

    def rank_reach(self, ring: str) -> dict[str, Any]:
        """Plain TCP."""
        return {}

    def rank_addresses(self, world: int) -> tuple[str, ...]:
        """As `Cluster`."""
        return addresses_of(self.names(), world)

    def close(self) -> None:
        """Leave."""
        self._link.send({"leave": True})
        self._link.close()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._gone:
            raise AgentError("the orchestrator has gone")

    def _forget(self, name: str) -> None:
        self._link.send({"name": name, "forget": True})

    def _read(self) -> None:
        self._link.read(self._take)
        self._gone = True
        with self._lock:
            boxes = list(self._boxes.values())
        for box in boxes:
            box.mail.put(None)
        self._sent.put(None)

    def _take(self, line: dict[str, Any]) -> None:
        if "view" in line:
            view = line["view"]
            members = [MemberView(node, label, state, here=node == self.node) for node, label, state in view["members"]]
            with self._lock:
                self._members, self._names = members, dict(view["names"])
        elif "sent" in line:
            self._sent.put(str(line.get("error", "")))
        elif "message" in line:
            with self._lock:
                box = self._boxes.get(str(line.get("name")))
            if box is not None:
                with suppress(ValueError):
                    box.mail.put(decode_message(line["message"]))


def join(ticket: str, label: str, up_s: float) -> Member:
    """Join the seed of `ticket`, trying until `up_s` have passed. Raises AgentError; ValueError for no ticket."""
    address, key = read_ticket(ticket)
    deadline = time.monotonic() + up_s
    while True:
        try:
            sock = tcp.connect(address, max(deadline - time.monotonic(), 0.01))
            break
        except OSError as error:
            if time.monotonic() + DIAL_S >= deadline:
                raise AgentError(f"the orchestrator at {address} cannot be reached: {error}") from error
            time.sleep(DIAL_S)
    listener = tcp.listen("127.0.0.1:0")
    node = tcp.listening_address(listener)
    link = Link(sock)
    ours, theirs = secrets.token_hex(16), ""
    try:
        theirs = str((read_line(sock, PROOF_S) or {}).get("nonce", ""))
        link.send({"node": node, "label": label, "nonce": ours, "proof": prove(key, "member", theirs, ours)})
        answer = read_line(sock, PROOF_S) or {"error": "it ended the connection"}
    except (OSError, LineError) as error:
        answer = {"error": str(error)}
    proof = str(answer.get("proof", ""))
    if not hmac.compare_digest(proof.encode(), prove(key, "seed", theirs, ours).encode()):
        link.close()
        listener.close()
        raise AgentError(f"the orchestrator at {address}: {answer.get('error', 'it does not have the key')}")
    return Member(link, node, ticket, listener)

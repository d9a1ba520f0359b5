"""The agent on this machine, as other programs use it: members, names, messages to a name, streams to a node.

Blocking calls, for any thread. Whatever is held (a name, a job) is held by an open connection to the agent, so it ends
with the program that holds it, however that ends.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from ropeway.cluster.home import Home, Running
from ropeway.cluster.messages import Message, decode_message, encode_message
from ropeway.transport.lines import LineError, read_line, send_line
from ropeway.transport.switched import Switched, SwitchRefused, ask, listen

CALL_S: Final = 15.0
LOOK_S: Final = 0.1
"""How often a wait for the cluster looks."""


class AgentError(Exception):
    """There is no agent, or it says no. The text is for people."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """A node as the agent sees it. `state` is alive, suspect, dead or left; `label` is its name for people."""

    node: str
    label: str
    state: str
    draining: bool = False
    here: bool = False

    @property
    def usable(self) -> bool:
        """It can be given a stage."""
        return self.state == "alive" and not self.draining


class Talk:
    """A stream to a service of a node: lines both ways. `reply` is what it answered at first."""

    def __init__(self, sock: socket.socket, reply: dict[str, Any]) -> None:
        self.sock = sock
        self.reply = reply

    def send(self, value: dict[str, Any]) -> None:
        """One line. Raises AgentError where nobody listens any more."""
        try:
            send_line(self.sock, value)
        except OSError as error:
            raise AgentError(f"the node has gone: {error.strerror or error}") from error

    def receive(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """The next line; None once the other side has ended. Raises TimeoutError, AgentError."""
        try:
            return read_line(self.sock, timeout_s)
        except TimeoutError:
            raise
        except (OSError, LineError) as error:
            raise AgentError(f"the node has gone: {error}") from error

    def close(self) -> None:
        """End it, also for a thread that waits in `receive`; never raises."""
        with suppress(OSError):  # it has ended already
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Inbox:
    """A registered name and the messages that come to it. `name` is registered until `close`."""

    def __init__(self, name: str, talk: Talk) -> None:
        self.name = name
        self._talk = talk

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises TimeoutError, and AgentError once the agent has gone.

        A message that nobody can read is passed over: its sender has been told.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            line = self._talk.receive(None if deadline is None else max(deadline - time.monotonic(), 0.0))
            if line is None:
                raise AgentError("the agent has ended")
            try:
                return decode_message(line)
            except ValueError:
                continue

    def close(self) -> None:
        """Give the name up."""
        self._talk.close()


class Agent:
    """The agent of a home. Raises AgentError where none runs."""

    def __init__(self, home: Home) -> None:
        running = home.running()
        if running is None:
            raise AgentError(f"no agent runs in {home.directory} (ropeway up, or: ropeway node TICKET)")
        self.running: Running = running
        self.node = str(self.call("self")["node"])
        """This node's id, 64 hex digits."""

    # Streams

    def open(self, to: str, node: str = "", timeout_s: float = CALL_S, **fields: Any) -> Talk:
        """A stream to the service `to` of `node` (an id, the beginning of one, a label or a name; here by default).

        Raises AgentError.
        """
        try:
            return Talk(*ask(self.running.switch, {"to": to, "node": node, **fields}, timeout_s))
        except SwitchRefused as error:
            raise AgentError(str(error)) from error
        except TimeoutError as error:
            raise AgentError(f"{node or 'the agent'} did not answer within {timeout_s:g} s") from error
        except OSError as error:
            raise AgentError(f"the agent cannot be reached: {error.strerror or error}") from error

    def call(self, to: str, node: str = "", timeout_s: float = CALL_S, **fields: Any) -> dict[str, Any]:
        """Ask a service for one line. Raises AgentError."""
        with self.open(to, node, timeout_s, **fields) as talk:
            return talk.reply

    # The cluster

    def ticket(self) -> str:
        """What brings another node in. It holds the cluster's key: keep it as you keep one."""
        return str(self.call("ticket")["ticket"])

    def members(self) -> list[MemberView]:
        """Every node that the agent knows of, this one first."""
        found = self.call("members")["members"]
        fields = ("node", "label", "state", "draining", "here")
        return [MemberView(**{field: member[field] for field in fields}) for member in found]

    def wait_for_members(self, count: int, timeout_s: float, check: Callable[[], None] = lambda: None) -> None:
        """Wait until `count` nodes are alive; `check` may raise to end the wait. Raises AgentError at the end of it."""
        self._wait(
            lambda: sum(member.state == "alive" for member in self.members()) >= count,
            timeout_s,
            check,
            lambda: f"{sum(member.state == 'alive' for member in self.members())} of {count} nodes are alive",
        )

    def leave(self) -> None:
        """End the agent in good order; its ranks end with it."""
        self.call("leave")

    # Names

    def names(self) -> dict[str, str]:
        """Every registered name and the id of the node that has it."""
        return {str(name): str(node) for name, node in self.call("names")["names"].items()}

    def resolve(self, name: str, timeout_s: float = 0.0, check: Callable[[], None] = lambda: None) -> str:
        """The id of the node that has `name`, waited for. Raises AgentError."""
        self._wait(lambda: name in self.names(), timeout_s, check, lambda: f"nobody has the name {name!r}")
        node = self.names().get(name)
        if node is None:
            raise AgentError(f"nobody has the name {name!r} any more")
        return node

    def listen(self, name: str) -> Inbox:
        """Register `name` for this node, and take the messages that come to it. Raises AgentError.

        A name says that what it names is ready: register it last.
        """
        return Inbox(name, self.open("listen", name=name))

    @contextmanager
    def register(self, name: str) -> Iterator[None]:
        """`name` is this node's inside; nobody reads messages to it."""
        inbox = self.listen(name)
        try:
            yield
        finally:
            inbox.close()

    def send(self, name: str, message: Message, timeout_s: float = CALL_S) -> None:
        """Send a message to whoever has `name`; it has been taken when this returns. Raises AgentError."""
        self.call("message", name, timeout_s, name=name, message=encode_message(message))

    # Rings

    def switched(self, ring: str) -> Switched:
        """How a rank on this machine reaches the others of a ring; addresses are NODE:RANK."""
        return Switched(self.running.switch, ring)

    def listener(self, ring: str, rank: int) -> socket.socket:
        """Where a rank in this process listens, for `RingConfig.listener`. The caller closes it."""
        return listen(self.running.ring(ring, rank))

    def _wait(
        self, true: Callable[[], bool], timeout_s: float, check: Callable[[], None], why: Callable[[], str]
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while not true():
            check()
            if time.monotonic() >= deadline:
                raise AgentError(f"{why()} after {timeout_s:g} s")
            time.sleep(LOOK_S)

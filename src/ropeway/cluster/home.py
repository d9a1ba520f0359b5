"""A node's own directory: who it is, its cluster's key, how to find the cluster again, and where its agent listens.

Files of mode 0600 in a directory of mode 0700. The agent's sockets are in a short directory of their own, because the
path of a Unix socket has little room.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KEY_BYTES: Final = 32
SOCKETS: Final = "ropeway-"
"""What the names of the directories of agents' sockets begin with."""


def default_home() -> Path:
    """`ROPEWAY_HOME`, else `ropeway` in the state directory of the user."""
    given = os.environ.get("ROPEWAY_HOME")
    if given:
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "ropeway"


@dataclass(frozen=True, slots=True)
class Running:
    """The agent of a home that runs: its process, and the directory of its sockets."""

    pid: int
    sockets: Path

    @property
    def switch(self) -> Path:
        """Where programs on this machine reach the agent."""
        return self.sockets / "switch"

    def ring(self, ring: str, rank: int) -> Path:
        """Where a rank of a ring listens on this machine; the agent brings it the connections of other nodes."""
        return self.sockets / f"{ring}.{rank}"


class Home:
    """The directory of one node."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def make(self) -> None:
        """Make the directory. Raises ValueError where others can read it, or it cannot be made."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = self.directory.stat().st_mode
        except OSError as error:
            raise ValueError(f"home: {self.directory} cannot be made: {error.strerror}") from error
        if stat.S_IMODE(mode) & 0o077:
            raise ValueError(f"home: {self.directory} can be read by other users; run: chmod 700 {self.directory}")

    @property
    def node_key(self) -> Path:
        """The key that is this node's identity."""
        return self.directory / "node.key"

    @property
    def cluster_key(self) -> Path:
        """The key that every node of the cluster shares."""
        return self.directory / "cluster.key"

    def read_contacts(self) -> dict[str, str]:
        """The nodes that were there last time: their addresses by id."""
        try:
            value = json.loads(self._contacts.read_text())
            return {str(node): str(address) for node, address in value.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def write_contacts(self, contacts: dict[str, str]) -> None:
        """Remember how to find the cluster again. Raises OSError."""
        write_secret(self._contacts, json.dumps(contacts))

    @property
    def _contacts(self) -> Path:
        return self.directory / "contacts.json"

    def write_running(self, running: Running) -> None:
        """Say where the agent is. Raises OSError."""
        write_secret(self._running, json.dumps({"pid": running.pid, "sockets": str(running.sockets)}))

    def running(self) -> Running | None:
        """The agent, as it has said; it may have died since."""
        try:
            value = json.loads(self._running.read_text())
            return Running(int(value["pid"]), Path(value["sockets"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """This home is ours inside, and no other agent's: its lock goes with this process, however it ends.

        Clears up after an agent that was killed. Raises ValueError where one runs here now.
        """
        try:
            descriptor = os.open(self.directory / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ValueError(f"home: {self.directory} cannot be written: {error.strerror}") from error
        try:
            self._lock(descriptor)
            self._clear_up()
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            there = self.running()
            which = "is starting" if there is None else f"pid {there.pid}"
            raise ValueError(
                f"home: an agent runs here already ({which}); each node needs a --home of its own"
            ) from None
        except OSError as error:
            raise ValueError(f"home: {self.directory} cannot be locked: {error.strerror}") from error

    def _clear_up(self) -> None:
        """Remove what an agent has left that was killed; of a damaged note nothing is believed."""
        before = self.running()
        if before is not None and before.sockets.is_absolute() and before.sockets.name.startswith(SOCKETS):
            shutil.rmtree(before.sockets, ignore_errors=True)
        self.forget_running()

    def forget_running(self) -> None:
        """The agent leaves."""
        with contextlib.suppress(OSError):
            self._running.unlink()

    @property
    def _running(self) -> Path:
        return self.directory / "agent.json"


def write_secret(path: Path, text: str) -> None:
    """Write a file of mode 0600, whole or not at all, also where the machine then loses power. Raises OSError."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def read_secret(path: Path) -> bytes:
    """The 32 bytes that a file of ours holds as hex. Raises ValueError; its text never holds what the file holds."""
    try:
        mode, text = path.stat().st_mode, path.read_text(errors="replace").strip()
    except OSError as error:
        raise ValueError(f"{path.name}: {path} cannot be read: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise ValueError(f"{path.name}: {path} can be read by other users; run: chmod 600 {path}")
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) != KEY_BYTES:
        raise ValueError(f"{path.name}: {path} does not hold {2 * KEY_BYTES} hex digits")
    return secret


def own_secret(path: Path) -> bytes:
    """The 32 bytes in a file, made at random where there is none. Raises ValueError."""
    if not path.exists():
        try:
            write_secret(path, secrets.token_hex(KEY_BYTES))
        except OSError as error:
            raise ValueError(f"{path.name}: {path} cannot be written: {error.strerror}") from error
    return read_secret(path)

"""Our own voice: statements and entries of this member, sealed; and the judging of others' seals."""

from __future__ import annotations

from dataclasses import replace

from ropeway.cluster.names import Entry
from ropeway.cluster.swim.errors import Fault, PacketError
from ropeway.cluster.swim.records import entry_said, statement_said
from ropeway.cluster.swim.values import TIME_MAX, U32_MAX, Seal, Statement


class Voice:
    """Speaks for one member of one cluster. `statement` is the last that it made."""

    __slots__ = ("_cluster", "_seal", "statement")

    def __init__(self, cluster: bytes, statement: Statement, seal: Seal) -> None:
        self._cluster = cluster
        self._seal = seal
        self.statement = self._sealed(statement)

    def restate(self, above: int, *, address: bytes | None = None, left: bool = False) -> Statement:
        """State at an incarnation above `above`; with another address where one is given."""
        now = self.statement
        spoken = now.address if address is None else address
        if above >= U32_MAX:
            return self.live_again(now.start)
        self.statement = self._sealed(replace(now, incarnation=above + 1, address=spoken, left=left))
        return self.statement

    def live_again(self, after: int) -> Statement:
        """Begin another life, later than `after`."""
        start = min(after + 1, TIME_MAX)
        self.statement = self._sealed(replace(self.statement, start=start, incarnation=0))
        return self.statement

    def signed(self, entry: Entry) -> Entry:
        """An entry of our own with its seal."""
        return replace(entry, seal=self._seal.sign(entry_said(self._cluster, entry)))

    def check_statement(self, statement: Statement) -> None:
        """Raises PacketError `bad_seal`."""
        if not self._seal.holds(statement.member, statement_said(self._cluster, statement), statement.seal):
            raise PacketError(Fault.BAD_SEAL, f"not a statement of member {statement.member.hex()[:16]}")

    def check_entry(self, entry: Entry) -> None:
        """Raises PacketError `bad_seal`."""
        if not self._seal.holds(entry.node, entry_said(self._cluster, entry), entry.seal):
            raise PacketError(Fault.BAD_SEAL, f"name {entry.name!r} is not registered by {entry.node.hex()[:16]}")

    def _sealed(self, statement: Statement) -> Statement:
        return replace(statement, seal=self._seal.sign(statement_said(self._cluster, statement)))

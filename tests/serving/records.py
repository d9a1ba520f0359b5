"""Rounds written by hand: milliseconds here, nanoseconds there."""

from __future__ import annotations

from collections.abc import Mapping

from ropeway.serving.underway import RoundRecord
from ropeway.wire import Done

MS = 1_000_000
Dones = Mapping[int, tuple[int, int, int]]


def record(
    at: int, own: int, back: int, head: int, dones: Dones, *, parts: int = 1, waited: int = 0, number: int = 1
) -> RoundRecord:
    """A round launched at `at` ms, back `back` ms later (0: nothing came back).

    `dones` give (wait_rows, forward, wait_send) ms.
    """
    return RoundRecord(
        number=number,
        rows=parts,
        parts=parts,
        launched_ns=at * MS,
        sent_ns=(at + own) * MS,
        back_ns=(at + back) * MS if back else 0,
        landed_ns=(at + max(own, back) + head) * MS,
        own_ns=own * MS,
        head_ns=head * MS,
        wait_rows_ns=waited * MS,
        wait_send_ns=MS,
        dones={rank: Done(rank, (), *(value * MS for value in given)) for rank, given in dones.items()},
    )

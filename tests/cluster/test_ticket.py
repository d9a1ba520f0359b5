"""Tickets: one line there and back, in either case, and nothing of a damaged one."""

from __future__ import annotations

import pytest

from ropeway.cluster.ticket import MARK, Ticket, picture
from ropeway.transport.iroh.endpoint import NodeAddress

TICKET = Ticket(bytes(range(32)), "ab" * 32, NodeAddress(("10.0.0.7:4040", "[fd00::7]:4041"), "https://relay.test/"))


def test_a_ticket_survives_being_copied() -> None:
    text = TICKET.text()
    assert text.startswith(MARK)
    assert text.isalnum()
    for copied in (text, text.upper(), f"  {text[:40]}\n{text[40:]}\n"):
        assert Ticket.parse(copied) == TICKET


def test_a_ticket_tells_nobody_its_key() -> None:
    assert bytes(range(32)).hex() not in repr(TICKET)
    assert "key" not in repr(TICKET)


@pytest.mark.parametrize("damage", ["", "ropeway2", MARK, MARK + "abc", "x" * 2000, MARK + "1" * 200])
def test_what_is_no_ticket(damage: str) -> None:
    with pytest.raises(ValueError, match="ticket: ") as caught:
        Ticket.parse(damage)
    assert not damage or damage not in str(caught.value)


def test_every_single_wrong_letter_is_found() -> None:
    text = TICKET.text()
    for at in range(len(MARK), len(text)):
        wrong = text[:at] + ("b" if text[at] == "a" else "a") + text[at + 1 :]
        with pytest.raises(ValueError, match="ticket: "):
            Ticket.parse(wrong)


def test_addresses_that_are_too_many_are_left_out() -> None:
    many = NodeAddress(tuple(f"10.0.{i}.250:40000" for i in range(40)))
    kept = NodeAddress.parse(many.text()).direct
    assert kept == many.direct[: len(kept)]
    assert 10 <= len(kept) < 20


@pytest.mark.parametrize("text", ["ftp://x,1.2.3.4:5", ",host:5", ",1.2.3.4", ",1.2.3.4:99999", "x" * 300, "\x1b"])
def test_addresses_that_a_peer_may_not_say(text: str) -> None:
    with pytest.raises(ValueError):
        NodeAddress.parse(text)


def test_the_picture_is_a_square_of_blocks() -> None:
    pytest.importorskip("segno", reason="the iroh extra is not installed")
    lines = picture(TICKET.text()).split("\n")
    assert {len(line) for line in lines} == {len(lines[0])}
    assert len(lines[0]) in (2 * len(lines), 2 * len(lines) - 1)
    assert set("".join(lines)) <= set("█▀▄ ")

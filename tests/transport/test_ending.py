"""Which cause of an end is kept, and the words for it."""

from __future__ import annotations

import pytest

from ropeway.transport import RingLost, RingStopped
from ropeway.transport.ending import CutShort, Verdict, ended, failure, peer_failure, printable
from ropeway.wire import ErrorCode, Fate, FateKind, ProtocolError

FIRST = failure(ErrorCode.PEER_LOST, 1, "rank 1 was lost")
SECOND = failure(ErrorCode.PEER_LOST, 3, "rank 3 was lost")


def test_the_first_cause_is_kept() -> None:
    verdict = Verdict(grace_s=1.0)
    assert verdict.settle(FIRST)
    assert not verdict.settle(SECOND)
    assert verdict.settled == FIRST


def test_a_fate_within_the_grace_is_preferred_to_a_bare_end() -> None:
    verdict = Verdict(grace_s=1.0)
    verdict.suspect(FIRST, 10.0)
    assert verdict.ripe(10.9) is None
    assert verdict.settle(SECOND)
    assert verdict.ripe(12.0) is None
    assert verdict.settled == SECOND


def test_a_suspicion_becomes_ripe_and_the_first_one_counts() -> None:
    verdict = Verdict(grace_s=1.0)
    assert verdict.ripe(0.0) is None
    verdict.suspect(FIRST, 10.0)
    verdict.suspect(SECOND, 10.5)
    assert verdict.ripe(11.0) == FIRST


def test_exceptions_carry_code_rank_and_words() -> None:
    lost = ended(failure(ErrorCode.SILENCE, 2, "rank 2 (mac:7000) has said nothing for 6 s"))
    assert isinstance(lost, RingLost)
    assert (lost.code, lost.rank) == (ErrorCode.SILENCE, 2)
    assert str(lost).startswith("silence: rank 2 (mac:7000) has said nothing for 6 s. It is stopped")
    stopped = ended(Fate(FateKind.STOP, ErrorCode.NONE, 0, "rank 0 has stopped the ring"))
    assert isinstance(stopped, RingStopped)
    assert str(stopped) == "rank 0 has stopped the ring"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            ConnectionResetError(104, "Connection reset by peer"),
            ErrorCode.PEER_LOST,
            "was lost: Connection reset by peer.",
        ),
        (ConnectionError("it left"), ErrorCode.PEER_LOST, "was lost: it left."),
        (CutShort("3 bytes short"), ErrorCode.TRUNCATED, "was lost: 3 bytes short."),
        (ProtocolError(ErrorCode.BAD_MAGIC, "magic is 0"), ErrorCode.BAD_MAGIC, "broke the protocol: magic is 0."),
        (ProtocolError(ErrorCode.TRUNCATED, "a plan of 3 bytes"), ErrorCode.TRUNCATED, "broke the protocol"),
    ],
)
def test_what_a_peer_did(error: ProtocolError | OSError, code: ErrorCode, words: str) -> None:
    fate = peer_failure(2, "rank 2 (b:1)", error)
    assert (fate.error, fate.rank) == (code, 2)
    assert f"rank 2 (b:1) {words}" in fate.text


def test_every_failure_says_what_to_do() -> None:
    for code in ErrorCode:
        text = failure(code, 0, "It broke.").text
        assert text.startswith("It broke. ")
        assert text.endswith(".")


def test_control_characters_of_a_peer_are_not_printed() -> None:
    assert printable("a\x1b[31mb\nc\u202ed é") == "a?[31mb?c?d é"

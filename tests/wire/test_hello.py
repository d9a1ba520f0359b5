"""Who may dial whom, and proofs that cannot be reused."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from ropeway.wire import Channel, ErrorCode, Hello, ProtocolError, Side, check_proof, make_proof
from ropeway.wire.hello import judge_hello
from wire.golden_files import ACCEPTOR_NONCE, DIALER_NONCE, FINGERPRINT, KEY

DIALER = Hello(1, 2, Channel.CONTROL, FINGERPRINT, DIALER_NONCE).encode()
ACCEPTOR = Hello(0, 2, Channel.CONTROL, FINGERPRINT, ACCEPTOR_NONCE).encode()


def hello(rank: int, channel: Channel, world: int = 4) -> Hello:
    return Hello(rank, world, channel, FINGERPRINT, DIALER_NONCE)


@pytest.mark.parametrize(
    ("channel", "ours", "side", "welcome"),
    [
        (Channel.CONTROL, 0, Side.ACCEPTOR, {1, 2, 3}),
        (Channel.CONTROL, 2, Side.DIALER, {0}),
        (Channel.ROWS, 2, Side.ACCEPTOR, {1}),
        (Channel.ROWS, 0, Side.ACCEPTOR, {3}),
        (Channel.ROWS, 2, Side.DIALER, {3}),
        (Channel.ROWS, 3, Side.DIALER, {0}),
        (Channel.PROBE, 2, Side.ACCEPTOR, {0, 1, 2, 3}),
        (Channel.PROBE, 2, Side.DIALER, {0, 1, 2, 3}),
    ],
)
def test_each_channel_takes_its_ranks(channel: Channel, ours: int, side: Side, welcome: set[int]) -> None:
    for rank in range(6):
        if rank in welcome:
            judge_hello(hello(ours, channel), side, hello(rank, channel))
        else:
            with pytest.raises(ProtocolError) as caught:
                judge_hello(hello(ours, channel), side, hello(rank, channel))
            assert caught.value.code is ErrorCode.WRONG_RANK


def test_control_is_accepted_by_rank_0_only() -> None:
    with pytest.raises(ProtocolError) as caught:
        judge_hello(hello(1, Channel.CONTROL), Side.ACCEPTOR, hello(2, Channel.CONTROL))
    assert caught.value.code is ErrorCode.WRONG_CHANNEL


def test_hellos_are_judged_in_order() -> None:
    ours = hello(0, Channel.CONTROL)
    seen = []
    for peer in (
        Hello(9, 3, Channel.ROWS, bytes(32), DIALER_NONCE),
        Hello(9, 4, Channel.ROWS, bytes(32), DIALER_NONCE),
        Hello(9, 4, Channel.ROWS, FINGERPRINT, DIALER_NONCE),
        Hello(9, 4, Channel.CONTROL, FINGERPRINT, DIALER_NONCE),
    ):
        with pytest.raises(ProtocolError) as caught:
            judge_hello(ours, Side.ACCEPTOR, peer)
        seen.append(caught.value.code.label)
    assert seen == ["wrong_world", "wrong_fingerprint", "wrong_channel", "wrong_rank"]


def test_the_proof_is_the_pages_hmac() -> None:
    expected = hmac.new(KEY, b"TFSP proof 1" + b"d" + DIALER + ACCEPTOR, hashlib.sha256).digest()
    assert make_proof(KEY, Side.DIALER, DIALER, ACCEPTOR) == expected


def test_a_proof_serves_one_side_one_key_and_one_pair_of_hellos() -> None:
    proof = make_proof(KEY, Side.DIALER, DIALER, ACCEPTOR)
    check_proof(KEY, Side.DIALER, DIALER, ACCEPTOR, proof)
    other = Hello(0, 2, Channel.CONTROL, FINGERPRINT, bytes(32)).encode()
    for key, side, dialer, acceptor in (
        (bytes(32), Side.DIALER, DIALER, ACCEPTOR),
        (KEY, Side.ACCEPTOR, DIALER, ACCEPTOR),
        (KEY, Side.DIALER, DIALER, other),
        (KEY, Side.DIALER, other, ACCEPTOR),
    ):
        with pytest.raises(ProtocolError) as caught:
            check_proof(key, side, dialer, acceptor, proof)
        assert caught.value.code is ErrorCode.WRONG_KEY


@pytest.mark.parametrize(
    "broken",
    [
        Hello(-1, 2, Channel.CONTROL, FINGERPRINT, DIALER_NONCE),
        Hello(1, 1 << 32, Channel.CONTROL, FINGERPRINT, DIALER_NONCE),
        Hello(1, 2, Channel.CONTROL, bytes(31), DIALER_NONCE),
        Hello(1, 2, Channel.CONTROL, FINGERPRINT, bytes(33)),
    ],
)
def test_a_hello_that_does_not_fit_never_becomes_bytes(broken: Hello) -> None:
    with pytest.raises(ProtocolError) as caught:
        broken.encode()
    assert caught.value.code is ErrorCode.BAD_VALUE

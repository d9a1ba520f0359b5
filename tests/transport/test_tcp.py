"""Addresses, listening and connecting over TCP."""

from __future__ import annotations

import socket

import pytest

from ropeway.transport import tcp
from transport.rings import loopback_pair


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:7000", ("127.0.0.1", 7000)),
        ("mac.local:1", ("mac.local", 1)),
        ("[::1]:7000", ("::1", 7000)),
        ("[fe80::1%lo]:7000", ("fe80::1%lo", 7000)),
        (":7000", ("", 7000)),
    ],
)
def test_addresses_parse(text: str, parsed: tuple[str, int]) -> None:
    assert tcp.parse_address(text) == parsed
    assert tcp.format_address(*parsed) == text


@pytest.mark.parametrize(
    "text", ["", "host", "host:", "host:x", "host:-1", "host:65536", "::1:7000", "[::1]", "[::1:7000", "host:٣"]
)
def test_bad_addresses_are_quoted(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        tcp.parse_address(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:7000", "[::]:7000", ":7000", "*:7000", "0:7000", "0x0:7000", "[::ffff:0.0.0.0]:7000", "[::0]:0"],
)
def test_a_wildcard_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"listen: .*every interface"):
        tcp.check_listen(address)
    with pytest.raises(ValueError, match=r"listen: .*every interface"):
        tcp.listen(address)


def test_a_listener_that_was_handed_over_may_not_be_a_wildcard_either() -> None:
    with (
        socket.create_server(("", 0)) as listener,
        pytest.raises(ValueError, match=r"listener: .*every interface"),
    ):
        tcp.check_listener(listener)


def test_a_name_that_means_every_interface_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wildcard = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("0.0.0.0", 0))]

    def resolve(host: str, *_: object, flags: int = 0, **__: object) -> object:
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(host)
        return wildcard

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(ValueError, match="listen: 'everywhere:0' is a wildcard"):
        tcp.listen("everywhere:0")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_listen_and_connect(host: str) -> None:
    with tcp.listen(f"{host}:0") as listener:
        address = tcp.listening_address(listener)
        ours = tcp.connect(address, 5.0)
        theirs, _ = listener.accept()
        with ours, theirs:
            assert tcp.accepted(theirs) == tcp.format_address(*ours.getsockname()[:2])
            for sock in (ours, theirs):
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            ours.sendall(b"x")
            assert theirs.recv(1) == b"x"


def test_an_address_in_use_is_named() -> None:
    with tcp.listen("127.0.0.1:0") as listener:
        address = tcp.listening_address(listener)
        with pytest.raises(OSError, match=f"cannot listen at {address}"):
            tcp.listen(address)


def test_nobody_listens() -> None:
    with tcp.listen("127.0.0.1:0") as listener:
        address = tcp.listening_address(listener)
    with pytest.raises(ConnectionRefusedError):
        tcp.connect(address, 5.0)


@pytest.mark.parametrize("host", ["a" * 70, "a..b"])
def test_a_name_that_nobody_can_have(host: str) -> None:
    with pytest.raises(OSError, match=r"."):
        tcp.connect(f"{host}:1", 5.0)
    with pytest.raises(OSError, match=r"."):
        tcp.listen(f"{host}:1")


def test_a_connection_to_itself_counts_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """TCP connects to itself where the system gives a dialer the very port that it dials."""

    class Mirror(socket.socket):
        def connect(self, address: object) -> None:
            self.bind(("127.0.0.1", 0))
            super().connect(self.getsockname())

    monkeypatch.setattr(socket, "socket", Mirror)
    with pytest.raises(ConnectionRefusedError, match="itself"):
        tcp.connect("127.0.0.1:9", 5.0)


def test_other_stream_sockets_are_left_alone() -> None:
    one, other = socket.socketpair()
    with one, other:
        tcp.tune(one)


def test_loopback_pair_helper() -> None:
    one, other = loopback_pair()
    with one, other:
        one.sendall(b"y")
        assert other.recv(1) == b"y"

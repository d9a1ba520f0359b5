"""Lines over a blocking socket, and a switch that answers as an agent does."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from ropeway.transport.lines import LINE_BYTES, LineError, encode_line, read_line, send_line
from ropeway.transport.switched import Switched, SwitchRefused, ask, listen


def test_a_line_is_read_and_nothing_behind_it() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b'{"a":1}\n{"b":')
        assert read_line(ours, 5) == {"a": 1}
        theirs.sendall(b"2}\nTFSL")
        assert read_line(ours, 5) == {"b": 2}
        assert ours.recv(16) == b"TFSL"
        theirs.close()
        assert read_line(ours, 5) is None


def test_lines_that_cannot_be_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"nonsense\n")
        with pytest.raises(LineError, match="not JSON"):
            read_line(ours, 5)
        theirs.sendall(b"3\n")
        with pytest.raises(LineError, match="not a JSON object"):
            read_line(ours, 5)
        with pytest.raises(TimeoutError):
            read_line(ours, 0.01)
        theirs.sendall(b'{"cut')
        theirs.close()
        with pytest.raises(ConnectionError, match="middle of a line"):
            read_line(ours, 5)
    with pytest.raises(LineError, match="at most"):
        encode_line({"a": "x" * LINE_BYTES})


def answer(path: Path, reply: bytes, heard: list[Any]) -> threading.Thread:
    """A switch that answers one question."""
    listener = listen(path)

    def serve() -> None:
        with listener:
            sock, _ = listener.accept()
        with sock:
            heard.append(read_line(sock, 5))
            sock.sendall(reply)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def test_a_rank_is_asked_for_by_node_and_number(tmp_path: Path) -> None:
    heard: list[Any] = []
    thread = answer(tmp_path / "switch", b'{"ok":true}\nTFSL', heard)
    with Switched(tmp_path / "switch", "r1").connect("attic:2", 5) as sock:
        assert sock.recv(4) == b"TFSL"
    thread.join(5)
    assert heard == [{"to": "ring", "node": "attic", "ring": "r1", "rank": 2, "timeout_s": 5}]


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (b'{"error":"rank 2 of ring r1 is not here"}\n', SwitchRefused, "is not here"),
        (b"", ConnectionError, "closed the connection"),
        (b"what\n", ConnectionError, "not JSON"),
    ],
)
def test_refusals_are_told(tmp_path: Path, reply: bytes, error: type[Exception], words: str) -> None:
    thread = answer(tmp_path / "switch", reply, [])
    with pytest.raises(error, match=words):
        ask(tmp_path / "switch", {"to": "ring"}, 5)
    thread.join(5)
    with pytest.raises(OSError):
        ask(tmp_path / "nobody", {}, 5)


def test_an_accepted_connection_is_named_by_our_agent() -> None:
    switched = Switched(Path("unused"), "r1")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_line(theirs, {"from": "0123abcd"})
        assert switched.accepted(ours) == "0123abcd"
        theirs.sendall(b"\x80\n")
        with pytest.raises(ConnectionError, match="does not say"):
            switched.accepted(ours)
        theirs.close()
        with pytest.raises(ConnectionError, match="closed"):
            switched.accepted(ours)

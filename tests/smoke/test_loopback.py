"""The cluster of processes on one machine: who is in, who has which name, what gets through."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ropeway.cluster.client import AgentError
from ropeway.cluster.messages import ENTRY, ORCHESTRATOR, InferenceRequest, InferenceResponse, stage_name
from ropeway.smoke.loopback.link import prove
from ropeway.smoke.loopback.member import Member, join
from ropeway.smoke.loopback.seed import Seed
from ropeway.transport import tcp
from ropeway.transport.lines import read_line, send_line

LIMIT_S = 20.0


@pytest.fixture
def seed() -> Iterator[Seed]:
    with Seed() as made:
        yield made


def until(true: Callable[[], Any]) -> None:
    give_up = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def states(cluster: Seed | Member) -> dict[str, str]:
    return {member.label: member.state for member in cluster.members()}


def test_members_names_and_messages(seed: Seed) -> None:
    inbox = seed.listen(ORCHESTRATOR)
    with join(seed.ticket(), "stage-0", LIMIT_S) as first, join(seed.ticket(), "stage-1", LIMIT_S) as second:
        everybody = {"orchestrator": "alive", "stage-0": "alive", "stage-1": "alive"}
        until(lambda: all(states(cluster) == everybody for cluster in (seed, first, second)))
        box = first.listen(ENTRY)
        for stage, member in enumerate((first, second)):
            member.listen(stage_name(stage))
        until(lambda: all(len(cluster.names()) == 4 for cluster in (seed, first, second)))
        assert second.rank_addresses(2) == (first.node, second.node)

        seed.send(ENTRY, InferenceRequest(ORCHESTRATOR, "Say hello", 3, "1"))
        assert box.receive(LIMIT_S) == InferenceRequest(ORCHESTRATOR, "Say hello", 3, "1")
        first.send(ORCHESTRATOR, InferenceResponse("hello", (1, 2), "1"))
        assert inbox.receive(LIMIT_S) == InferenceResponse("hello", (1, 2), "1")
        second.send(ENTRY, InferenceRequest(ORCHESTRATOR, "and hello", 3, "2"))
        assert box.receive(LIMIT_S) == InferenceRequest(ORCHESTRATOR, "and hello", 3, "2")
        with pytest.raises(AgentError, match="nobody has the name 'pp-exit'"):
            second.send("pp-exit", InferenceRequest(ORCHESTRATOR, "hm", 3))


def test_a_rank_is_dialled_at_its_nodes_id(seed: Seed) -> None:
    with join(seed.ticket(), "stage-0", LIMIT_S) as member, member.rank_listener("ring", 0) as listener:
        assert tcp.listening_address(listener) == member.node
        tcp.connect(member.node, LIMIT_S).close()


def test_a_member_that_leaves_is_not_dead_and_one_that_breaks_off_is(seed: Seed) -> None:
    leaving, breaking = join(seed.ticket(), "leaving", LIMIT_S), join(seed.ticket(), "breaking", LIMIT_S)
    breaking.listen(ENTRY)
    until(lambda: ENTRY in seed.names())
    leaving.close()
    breaking._link.sock.shutdown(socket.SHUT_RDWR)
    until(lambda: states(seed) == {"orchestrator": "alive", "leaving": "left", "breaking": "dead"})
    assert ENTRY not in seed.names(), "its names go with it"
    until(lambda: breaking._gone)
    with pytest.raises(AgentError, match="has gone"):
        breaking.names()
    breaking.close()


def test_a_silent_member_is_dead(seed: Seed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropeway.smoke.loopback.link.SILENCE_S", 0.3)
    address, _, key = seed.ticket().removeprefix("tcp:").rpartition(":")
    with tcp.connect(address, LIMIT_S) as sock:
        nonce = str((read_line(sock, LIMIT_S) or {})["nonce"])
        proof = prove(bytes.fromhex(key), "member", nonce, "n")
        send_line(sock, {"node": "x", "label": "silent", "nonce": "n", "proof": proof})
        until(lambda: states(seed).get("silent") == "dead")


def test_the_seeds_end_is_noticed(seed: Seed) -> None:
    with join(seed.ticket(), "stage-0", LIMIT_S) as member:
        box = member.listen(ENTRY)
        seed.close()
        with pytest.raises(AgentError, match="has gone"):
            box.receive(LIMIT_S)
        with pytest.raises(AgentError, match="has gone"):
            member.send(ORCHESTRATOR, InferenceResponse("late"))


def test_another_key_is_refused(seed: Seed) -> None:
    ticket = seed.ticket()[:-1] + ("0" if seed.ticket()[-1] != "0" else "1")
    with pytest.raises(AgentError, match="the key of the ticket is another"):
        join(ticket, "stranger", LIMIT_S)
    assert states(seed) == {"orchestrator": "alive"}


def test_a_seed_without_the_key_is_not_believed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ticket = f"tcp:{tcp.listening_address(listener)}:{'00' * 32}"

        def answer() -> None:
            sock, _ = listener.accept()
            with sock:
                send_line(sock, {"nonce": "a"})
                read_line(sock, LIMIT_S)
                send_line(sock, {"proof": "guessed"})

        import threading

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(AgentError, match="does not have the key"):
            join(ticket, "stage-0", LIMIT_S)
        thread.join()


@pytest.mark.parametrize(
    "line", [b"\xff\xfe\n", b"[]\n", b'{"node": 7}\n', b"{" * 5000 + b"\n", b'{"proof":"\xc3\xa9"}\n']
)
def test_a_stranger_gets_nowhere(seed: Seed, line: bytes) -> None:
    address = seed.ticket().removeprefix("tcp:").rpartition(":")[0]
    with tcp.connect(address, LIMIT_S) as sock:
        read_line(sock, LIMIT_S)
        sock.sendall(line)
        sock.settimeout(LIMIT_S)
        while sock.recv(4096):
            pass
    assert states(seed) == {"orchestrator": "alive"}


@pytest.mark.parametrize("ticket", ["", "tcp:", "tcp:here:1", "tcp:127.0.0.1:1:xyz"])
def test_what_is_no_ticket_is_refused(ticket: str) -> None:
    with pytest.raises(ValueError, match="not a ticket"):
        join(ticket, "stage-0", 1.0)


def test_nobody_to_join_is_said_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = tcp.listening_address(listener)
    with pytest.raises(AgentError, match="cannot be reached"):
        join(f"tcp:{address}:{'00' * 32}", "stage-0", 0.3)

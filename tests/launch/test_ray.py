"""Rings on Ray: what is asked of its nodes, the ranks' hosts and their tethers, and a real cluster of four hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from end_to_end.processes import PROC, children, is_alive, wait_until
from namespaces import pytest_in_namespace
from ropeway.checkpoints.checkpoint import Checkpoint, open_checkpoint
from ropeway.launch.cluster_cuts import DoesNotFit
from ropeway.launch.placement import Options
from ropeway.launch.ray import RayOptions
from ropeway.launch.ray_actor import RankHost
from ropeway.launch.ray_nodes import PINCH, Demand, RayNode, living, seat
from ropeway.launch.ray_replica import rank_flags
from tiny_gguf import TinyModel, write_tiny

LAYERS = 6


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return open_checkpoint(write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf", TinyModel(layers=LAYERS)))


def options(stages: int = 2, cuts: tuple[int, ...] | None = None, threads: int = 0) -> Options:
    return Options("tiny", stages, cuts, context=256, chunk=64, threads=threads)


def node(name: str, cpus: float = 4, memory: float = 1e9, **more: float) -> RayNode:
    return RayNode(name * 4, f"10.0.0.{ord(name)}", {"CPU": cpus, "memory": memory, **more})


def names(checkpoint: Checkpoint, nodes: list[RayNode], demand: Demand, avoid: tuple[str, ...] = ()) -> str:
    return "".join(one.node.node[0] for one in seat(checkpoint, options(), nodes, demand, avoid).seats)


def test_layers_go_by_free_cpus(checkpoint: Checkpoint) -> None:
    plan = seat(checkpoint, options(), [node("a", 4), node("b", 8)], Demand())
    assert [(one.node.node, one.cpus) for one in plan.seats] == [("bbbb", 8), ("aaaa", 4)]
    assert plan.cuts == (4,)
    assert seat(checkpoint, options(), [node("a", 4), node("b", 8)], Demand(cpus=2)).cuts == (3,)


def test_a_rank_asks_for_its_cpus_its_memory_and_its_node(checkpoint: Checkpoint) -> None:
    first, last = seat(checkpoint, options(), [node("a"), node("b", 8)], Demand(cpus=2.5)).seats
    assert first.bundle.keys() == {"CPU", "memory", f"node:{first.node.address}"}
    assert (first.bundle["CPU"], first.bundle[f"node:{first.node.address}"]) == (2.5, PINCH)
    assert first.bundle["memory"] > last.bundle["memory"] > 0, "rank 0 has the embeddings and the head"
    weights = checkpoint.path.stat().st_size
    assert first.bundle["memory"] + last.bundle["memory"] > weights


def test_a_small_node_gets_what_it_can_hold(checkpoint: Checkpoint) -> None:
    even = seat(checkpoint, options(), [node("a"), node("b")], Demand()).seats[1].bundle["memory"]
    small = node("b", memory=even * 0.7)
    plan = seat(checkpoint, options(), [node("a"), small], Demand())
    assert plan.cuts > (3,)
    assert plan.seats[1].bundle["memory"] <= small.free["memory"]
    with pytest.raises(DoesNotFit, match="does not fit"):
        seat(checkpoint, options(), [node("a", memory=1e5), node("b", memory=1e5)], Demand())
    more = seat(checkpoint, options(), [node(name, memory=even * 0.98) for name in "abcd"], Demand())
    assert len(more.seats) > 2, "more nodes than were asked for, rather than none"


def test_gpus_are_asked_for_and_count_alike(checkpoint: Checkpoint) -> None:
    nodes = [node("a", 4), node("b", 64, GPU=1.0), node("c", 8, memory=1.0, GPU=2.0)]
    plan = seat(checkpoint, options(), nodes, Demand(cpus=1, gpus=1))
    assert sorted(one.node.node for one in plan.seats) == ["bbbb", "cccc"]
    assert plan.cuts == (3,)
    assert all(one.bundle["GPU"] == 1 and "memory" not in one.bundle for one in plan.seats)
    with pytest.raises(DoesNotFit, match="2 ranks need 2 nodes, and 1 of 3 have 1 free CPUs and 2 GPUs"):
        seat(checkpoint, options(), nodes, Demand(cpus=1, gpus=2))


def test_who_has_no_room_is_left_alone(checkpoint: Checkpoint) -> None:
    assert names(checkpoint, [node("a", 0.5), node("b"), node("c")], Demand()) == "bc"
    assert names(checkpoint, [node("a"), node("b"), node("c")], Demand(), ("aaaa",)) == "bc"
    assert sorted(names(checkpoint, [node("a"), node("b")], Demand(), ("aaaa",))) == ["a", "b"]
    with pytest.raises(DoesNotFit, match="and 1 of 2 have a free CPU"):
        seat(checkpoint, options(), [node("a", 0.5), node("b")], Demand())
    explicit = seat(checkpoint, options(cuts=(1, 2)), [node(name) for name in "abcd"], Demand())
    assert (len(explicit.seats), explicit.cuts) == (3, (1, 2))


def test_only_living_nodes_count() -> None:
    listed = [{"NodeID": name, "NodeManagerAddress": name.upper(), "Alive": name != "b"} for name in "abc"]
    assert living(listed, {"a": {"CPU": 1.0}, "b": {"CPU": 1.0}}) == [RayNode("a", "A", {"CPU": 1.0})]


def test_a_rank_uses_the_cpus_that_it_asked_for(checkpoint: Checkpoint) -> None:
    plan = seat(checkpoint, options(), [node("a", 4), node("b", 8)], Demand())
    words = rank_flags(options(), plan.cuts, plan.seats[0])
    assert words[words.index("--threads") + 1] == "8"
    assert words[words.index("--cuts") + 1] == "4"
    words = rank_flags(options(threads=3), plan.cuts, plan.seats[0])
    assert words[words.index("--threads") + 1] == "3"


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="stages"):
        RayOptions(options(1), 1)
    with pytest.raises(ValueError, match="stages"):
        RayOptions(options(2, ()), 1)
    with pytest.raises(ValueError, match="replicas"):
        RayOptions(options(), 0)
    with pytest.raises(ValueError, match="worker_cmd"):
        RayOptions(Options("tiny", worker_cmd="true"), 1)
    with pytest.raises(ValueError, match="ray-cpus"):
        Demand(cpus=-1.0)


SLEEP = (sys.executable, "-c", "import sys, time; print('up', flush=True); time.sleep(1000)")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)",
)


@pytest.fixture
def tethered() -> Iterator[list[subprocess.Popen[bytes]]]:
    """What a test has put on a tether; ended with it."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for one in started:
        one.kill()
        with one:
            pass


def tie(command: tuple[str, ...], started: list[subprocess.Popen[bytes]]) -> tuple[subprocess.Popen[bytes], int]:
    """A command on a tether, once it runs, and its process id."""
    tether = [sys.executable, "-m", "ropeway.launch.tether", *command]
    process = subprocess.Popen(tether, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process, next((child.pid for child in children(process.pid)), 0)


@pytest.mark.parametrize(("command", "number"), [(SLEEP, signal.SIGTERM), (STUBBORN, signal.SIGKILL)])
def test_a_tether_that_ends_ends_its_command(
    tethered: list[subprocess.Popen[bytes]], command: tuple[str, ...], number: signal.Signals
) -> None:
    process, child = tie(command, tethered)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == 128 + number
    assert not is_alive(child)


@pytest.mark.skipif(not PROC.exists(), reason="the system kills an orphan only on Linux")
def test_a_killed_tether_takes_a_stopped_command_along(tethered: list[subprocess.Popen[bytes]]) -> None:
    process, child = tie(SLEEP, tethered)
    os.kill(child, signal.SIGSTOP)
    process.kill()
    wait_until(lambda: not is_alive(child))


def test_a_tether_says_how_its_command_ended(tethered: list[subprocess.Popen[bytes]]) -> None:
    for text, status in (("raise SystemExit(7)", 7), ("import os; os.abort()", 128 + signal.SIGABRT)):
        process, _ = tie((sys.executable, "-c", f"print('up', flush=True); {text}"), tethered)
        assert process.wait(30) == status


@pytest.mark.skipif(not PROC.exists(), reason="argument lists are read from /proc")
def test_a_rank_gets_its_secrets_where_nobody_sees_them(checkpoint: Checkpoint) -> None:
    key = "5eed" * 16
    host = RankHost("127.0.0.1")
    ring = f"{host.reserve()},{host.reserve()}"
    words = ["stage", str(checkpoint.path), "--rank", "1", "--ring", ring, "--context", "64"]
    host.start([*words, "--key", "{key}"], {"key": key})
    try:
        wait_until(lambda: listened_at(int(ring.rpartition(":")[2])))
        family = [*children(os.getpid()), *(two for one in children(os.getpid()) for two in children(one.pid))]
        assert [one for one in family if "stage" in one.args and "/dev/fd/" in " ".join(one.args)]
        assert not [one for one in family if key in " ".join(one.args)]
        assert not [path for path in Path(tempfile.gettempdir()).glob("*") if path.is_file() and holds(path, key)]
    finally:
        host.stop()
    status, said = host.wait()
    assert (status, said.rpartition(": ")[2]) == (128 + signal.SIGTERM, "terminated")


def test_a_rank_says_why_it_ended(checkpoint: Checkpoint) -> None:
    host = RankHost("127.0.0.1")
    words = ["stage", str(checkpoint.path), "--rank", "1", "--ring", f"{host.reserve()},{host.reserve()}"]
    host.start([*words, "--key", "{key}"], {"key": "not-a-key"})
    status, said = host.wait()
    assert status == 2
    assert "is not a key file" in said
    assert "not-a-key" not in said
    host.stop()


def test_a_rank_that_nobody_holds_ends(checkpoint: Checkpoint) -> None:
    host = RankHost("127.0.0.1", lease_s=0.5)
    words = ["stage", str(checkpoint.path), "--rank", "1", "--ring", f"{host.reserve()},{host.reserve()}"]
    host.start([*words, "--key", "{key}"], {"key": "5eed" * 16})
    assert host.wait()[0] == 128 + signal.SIGTERM


def listened_at(port: int) -> bool:
    """Whether somebody listens at a port of this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port for row in rows)


def holds(path: Path, text: str) -> bool:
    """Whether a file that we may read has this."""
    try:
        return text.encode() in path.read_bytes()
    except OSError:
        return False


@pytest.mark.timeout(700)
def test_a_cluster_of_four_hosts() -> None:
    pytest.importorskip("ray", reason="the ray extra is not installed")
    assert pytest_in_namespace("tests/launch/ray_cases.py", limit_s=600.0) == 2

"""A worker's process: what it does wrong becomes an error by name, and it never outlives its stage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from engines.worker.commands import STUB, bad, config
from ropeway.engines.base import EngineError, Span
from ropeway.engines.worker.engine import WorkerEngine

ROWS = memoryview(bytearray(64))


@contextmanager
def worker(command: str, **waits: float) -> Iterator[WorkerEngine]:
    engine = WorkerEngine(config(command), **waits)
    with closing(engine):
        yield engine


def forward(engine: WorkerEngine) -> None:
    engine.forward([Span(0, 0, 1)], ROWS, memoryview(bytearray(64)))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(reached: threading.Event) -> None:
    assert reached.wait(20), "nothing was heard"


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("garbage", r"wrote b'Loading weights: 100%' where a reply is expected, which is not JSON"),
        ("list", r"which is no JSON object"),
        ("endless", r"wrote a line of over \d+ bytes: b'xxx"),
        ("another", r"sent a reply to request 2, expected 1"),
        ("two", r"wrote more than the one line that was asked for"),
        ("short", r"hidden_b64 has 3 bytes, expected 32"),
        ("rows", r"gave 5 rows, expected 1"),
        ("true", r"seq_len is True, expected an integer"),
        ("base64", r"hidden_b64 is not base64"),
        ("error", r"the worker refused: no memory"),
        ("killed", r"was killed by SIGKILL; its last words: loading a model / of no use / out of memory"),
        ("stopped", r"has been stopped for 0.5 s; its last words: loading a model / of no use"),
        ("closes", r"has closed its pipes"),
    ],
)
def test_what_it_does_wrong_is_named(mode: str, message: str) -> None:
    with worker(bad(mode), stopped_s=0.5) as engine, pytest.raises(EngineError, match=message):
        forward(engine)


def test_a_reply_that_comes_too_late() -> None:
    with worker(bad("late"), request_s=0.5) as engine:
        with pytest.raises(EngineError, match=r"has not answered within its deadline; its last words: loading"):
            forward(engine)
        assert not is_alive(engine.pid)


def test_a_request_that_is_not_taken() -> None:
    """More than a pipe holds, to a worker that does not read."""
    with worker(bad("deaf"), request_s=0.5) as engine:
        count = 4096
        rows = memoryview(bytearray(64 * count))
        with pytest.raises(EngineError, match="takes no more of a request within its deadline"):
            engine.forward([Span(0, 0, count)], rows, memoryview(bytearray(len(rows))))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (bad("no-start"), r"ended with exit status 2; its last words: .*there is no such model"),
        ("/no/such/program", r"cannot be started: .*No such file"),
        ("", r"needs its command: --worker-cmd"),
        (bad("eager"), r"more than the one line"),
    ],
)
def test_a_start_that_fails(command: str, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        WorkerEngine(config(command))


def test_a_worker_that_never_becomes_ready() -> None:
    with pytest.raises(EngineError, match="has not answered within its deadline"):
        WorkerEngine(config(bad("mute")), ready_s=0.5)


def test_no_shell_sees_the_command() -> None:
    with pytest.raises(EngineError, match="cannot be started"):
        WorkerEngine(config("/no/such/program; touch here"))
    with pytest.raises(EngineError, match=r"ended with exit status 2"):
        WorkerEngine(config(f"{STUB} $(exit 0)"))


def test_a_death_while_nobody_asks_is_told() -> None:
    heard: list[str] = []
    told = threading.Event()

    def call(text: str) -> None:
        heard.append(text)
        told.set()

    with worker(bad("idle-death", "0.1")) as engine:
        engine.on_death(call)
        wait_until(told)
        assert "has ended with exit status 7; its last words: " in heard[0]
        assert "the card has fallen off the bus" in heard[0]
        late = threading.Event()
        engine.on_death(lambda _: late.set())
        wait_until(late)
        with pytest.raises(EngineError, match="exit status 7"):
            forward(engine)


def test_an_end_that_we_bring_about_is_not_told() -> None:
    heard: list[str] = []
    with worker(STUB) as engine:
        engine.on_death(heard.append)
    assert heard == []
    assert not is_alive(engine.pid)


def test_one_that_ignores_the_end_of_its_input_and_sigterm_is_killed() -> None:
    with worker(bad("deaf")) as engine:
        assert engine._process.stop(wait_s=0.2) == -signal.SIGKILL


def test_its_children_end_with_it() -> None:
    mark = f"ropeway-test-{os.getpid()}-{time.monotonic_ns()}"
    with worker(bad("child", mark)):
        assert mark in processes()
    deadline = time.monotonic() + 10
    while mark in processes():
        assert time.monotonic() < deadline, "a child of the worker lives on"
        time.sleep(0.02)


def processes() -> str:
    return subprocess.run(["ps", "axwwo", "args"], capture_output=True, text=True, check=True).stdout


def test_no_worker_outlives_a_stage_that_was_killed() -> None:
    """The worker ignores everything, the stage can do nothing any more: the keeper ends it."""
    script = (
        "import sys; from engines.worker.commands import bad, config\n"
        "from ropeway.engines.worker.engine import WorkerEngine\n"
        "print(WorkerEngine(config(bad('deaf'))).pid, flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    stage = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    with stage:
        assert stage.stdout is not None
        pid = int(stage.stdout.readline())
        assert is_alive(pid)
        stage.kill()
    deadline = time.monotonic() + 20
    while is_alive(pid):
        assert time.monotonic() < deadline, "the worker lives on"
        time.sleep(0.05)


def test_the_tail_is_the_last_lines() -> None:
    with worker(bad("garbage")) as engine:
        deadline = time.monotonic() + 10
        while len(engine._process.tail) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert engine._process.tail == ("loading a model", "of no use")

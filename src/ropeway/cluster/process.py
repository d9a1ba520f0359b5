"""An agent as a child process of whoever needs a node for a while: `python -m ropeway.cluster.agent`.

Its settings, the ticket among them, go through standard input, and the end of that ends it. A busy parent does not
delay it: membership and the streams of rings go on.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ropeway.cluster.client import Agent, AgentError
from ropeway.cluster.home import Home
from ropeway.cluster.settings import AgentSettings

UP_S: Final = 60.0
LEAVE_S: Final = 5.0


@contextmanager
def running_agent(
    settings: AgentSettings, up_s: float = UP_S, environment: Mapping[str, str] | None = None
) -> Iterator[Agent]:
    """A node of a cluster for as long as the context lasts. What its agent says goes to our standard error.

    `environment` is the agent's; None: ours.
    Raises AgentError: it could not bind, join or prove itself within `up_s`; the text says which.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "ropeway.cluster.agent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=None if environment is None else dict(environment),
    )
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(settings.dump())
            process.stdin.flush()
        _await(process, up_s)
        yield Agent(Home(Path(settings.home)))
    finally:
        _end(process)


def _await(process: subprocess.Popen[bytes], up_s: float) -> None:
    """Read the one line that says how it went. Raises AgentError."""
    assert process.stdout is not None
    descriptor, deadline, said = process.stdout.fileno(), time.monotonic() + up_s, bytearray()
    while not said.endswith(b"\n"):
        if not select.select([descriptor], [], [], max(deadline - time.monotonic(), 0.0))[0]:
            raise AgentError(f"the agent is not up after {up_s:g} s")
        piece = os.read(descriptor, 4096)
        if not piece:
            raise AgentError(f"the agent has ended with exit status {process.wait()}")
        said += piece
    value = json.loads(said)
    if "error" in value:
        raise AgentError(str(value["error"]))


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(LEAVE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()

"""`--local`: the same provider calls, and what is rented are `pp-gpu-node` processes on this machine, for nothing.

They end with this process, however it ends: each holds the other end of a pipe to it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from ropeway.launch.provider import LOG_LINES, Instance, Offer, Order, Refused, State, Wanted, is_of_run
from ropeway.smoke.hidden import for_children

STOP_S: Final = 10.0
"""How long a node may take to end by itself after SIGTERM."""


class LocalProvider:
    """As `Provider`. `command` is what an instance runs; its environment is ours, without secrets, and the order's."""

    name = "local"
    server = ""

    def __init__(self, command: tuple[str, ...] = (sys.executable, "-m", "ropeway.cli.gpu_node")) -> None:
        self._command = command
        self._directory = tempfile.TemporaryDirectory(prefix="ropeway-smoke-")
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._labels: dict[int, str] = {}

    def search(self, wanted: Wanted) -> tuple[Offer, ...]:
        """As many offers as are wanted."""
        return tuple(Offer(number, number, 0.0, "this machine", "here") for number in range(wanted.count))

    def create(self, offer: Offer, order: Order) -> int:
        """Start a node; its process id."""
        environment = for_children(os.environ) | dict(order.environment) | {"END_WITH_STDIN": "1"}
        log = Path(self._directory.name, f"{offer.id}.log")
        try:
            with log.open("wb") as file:
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=file,
                    stderr=file,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise Refused(f"{self._command[0]}: {error.strerror}") from error
        log.rename(self._log(process.pid))
        self._processes[process.pid] = process
        self._labels[process.pid] = order.label
        return process.pid

    def status(self, instance: int) -> Instance | None:
        """Whether its process runs."""
        process = self._processes.get(instance)
        if process is None:
            return None
        status = process.poll()
        if status is None:
            return Instance(instance, self._labels[instance], State.RUNNING, "running")
        how = f"exit status {status}" if status >= 0 else f"signal {-status}"
        return Instance(instance, self._labels[instance], State.ENDED, "exited", how)

    def logs(self, instance: int) -> str:
        """The last lines of what it wrote."""
        with suppress(OSError):
            return "\n".join(self._log(instance).read_text(errors="replace").splitlines()[-LOG_LINES:])
        return ""

    def destroy(self, instance: int) -> None:
        """End the process, and forget it."""
        process = self._processes.get(instance)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        self._processes.pop(instance, None)

    def list_run(self, label: str) -> tuple[Instance, ...]:
        """The processes of a run."""
        found = [self.status(pid) for pid in list(self._processes) if is_of_run(self._labels[pid], label)]
        return tuple(instance for instance in found if instance is not None)

    def destroy_command(self, instance: object) -> str:
        """What ends the process."""
        return f"kill -9 {instance}"

    def close(self) -> None:
        """Remove the logs."""
        self._directory.cleanup()

    def _log(self, instance: int) -> Path:
        return Path(self._directory.name, f"instance-{instance}.log")

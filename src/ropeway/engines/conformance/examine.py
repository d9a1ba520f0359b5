"""Every rule of one role, and how a worker of it starts and ends."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ropeway.engines.base import EngineError
from ropeway.engines.conformance.rules import EXTENDED, PLAIN
from ropeway.engines.conformance.subject import Broken, Subject
from ropeway.engines.worker.messages import READY_BYTES
from ropeway.engines.worker.process import STOP_S, WorkerProcess
from ropeway.engines.worker.setting import EXIT_BAD, Role

SHORT_WAIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Result:
    """One rule, whether it was kept, and why not; `kept` is None where the worker does not declare the ability."""

    role: Role
    rule: str
    kept: bool | None
    why: str = ""


def _declared(s: Subject, ability: str) -> bool:
    return s.ready.extension.streams > 1 if ability == "streams" else ability in s.ready.extension.can


def examine(command: Sequence[str], role: Role, model: str, wait_s: float) -> Iterator[Result]:
    """Every rule of one role."""
    try:
        subject = Subject(command, role, model, wait_s)
    except EngineError as error:
        yield Result(role, "it starts and says that it is ready", False, str(error))
        return
    try:
        for rule, check in PLAIN:
            yield _judge(subject, rule, check)
        for ability, rule, check in EXTENDED:
            if _declared(subject, ability):
                yield _judge(subject, rule, check)
            else:
                yield Result(role, rule, None, f"it does not declare {ability!r}")
    finally:
        status = subject.process.finish(STOP_S)
        subject.process.stop()
    yield Result(role, "the end of its input ends it with status 0", status == 0, f"status {status}")
    yield _terminated(command, role, model, wait_s)
    yield from _bad_environment(command, role, model)


def _judge(subject: Subject, rule: str, check: Callable[[Subject], None]) -> Result:
    try:
        check(subject)
    except (Broken, EngineError) as error:
        return Result(subject.role, rule, False, str(error))
    return Result(subject.role, rule, True)


def _terminated(command: Sequence[str], role: Role, model: str, wait_s: float) -> Result:
    subject = Subject(command, role, model, wait_s)
    status = subject.process.stop()
    return Result(role, "SIGTERM ends it", status != -signal.SIGKILL, f"it took longer than {STOP_S:.0f} s")


def _bad_environment(command: Sequence[str], role: Role, model: str) -> Iterator[Result]:
    for stage, stages in (("x", "2"), ("2", "2"), ("", "2"), ("0", "0")):
        process = WorkerProcess(command, {"STAGE": stage, "NUM_STAGES": stages, "MODEL": model})
        with contextlib.suppress(EngineError):
            process.read_line(READY_BYTES, time.monotonic() + SHORT_WAIT_S)
        status = process.finish(STOP_S)
        process.stop()
        rule = f"STAGE={stage} NUM_STAGES={stages} ends it with status {EXIT_BAD}"
        yield Result(role, rule, status == EXIT_BAD, f"status {status}")

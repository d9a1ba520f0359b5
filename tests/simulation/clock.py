"""A simulated clock: tasks in threads, of which one runs at a time, and time that passes only while all of them wait.

So the order of things depends on nothing but the program, an hour takes no longer than a second, and what waits for
itself is found at once: nothing can run and no time is due.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

REAL_S: Final = 30.0
"""No task runs for so long without waiting."""


class Stuck(AssertionError):
    """Everybody waits, and for nothing that time brings."""


class _Over(BaseException):
    """The simulation has ended: leave whatever waits."""


class _Task:
    def __init__(self, name: str) -> None:
        self.name = name
        self.met: Callable[[], bool] = lambda: True
        self.what = "its start"
        self.due: float | None = None
        self.done = False
        self.error: BaseException | None = None
        self.go = threading.Semaphore(0)


class Clock:
    """`now` in seconds. `spawn` tasks that go on for ever, `run` one to its end; `close` ends all that are left."""

    def __init__(self) -> None:
        self.now = 0.0
        self._tasks: list[_Task] = []
        self._threads: list[threading.Thread] = []
        self._current: _Task | None = None
        self._back = threading.Semaphore(0)
        self._over = False

    @property
    def now_ns(self) -> int:
        """As time.perf_counter_ns would have it."""
        return round(self.now * 1e9)

    def spawn(self, name: str, work: Callable[[], None]) -> _Task:
        """Add a task; it begins with `run`."""
        task = _Task(name)
        self._tasks.append(task)
        thread = threading.Thread(target=self._live, args=(task, work), name=f"simulated {name}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return task

    def sleep(self, seconds: float) -> None:
        """In a task: let so much time pass."""
        due = self.now + seconds
        self._wait(lambda: self.now >= due, f"second {due:g}", due)

    def wait(self, met: Callable[[], bool], what: str) -> None:
        """In a task: until another one has brought this about."""
        self._wait(met, what, None)

    def run(self, name: str, work: Callable[[], None]) -> None:
        """One more task, and all of them until it has ended. Raises what a task raises, and Stuck."""
        main = self.spawn(name, work)
        while not main.done:
            task = next((task for task in self._tasks if not task.done and task.met()), None)
            if task is not None:
                self._switch(task)
                continue
            dues = [task.due for task in self._tasks if not task.done and task.due is not None]
            if not dues:
                raise Stuck("; ".join(f"{name} waits for {what}" for name, what in self.waiting_for().items()))
            self.now = min(dues)

    def settle(self) -> None:
        """Let the other tasks go on until nothing can happen any more."""
        while True:
            live = [task for task in self._tasks if not task.done]
            ready = next((task for task in live if task.met()), None)
            dues = [task.due for task in live if task.due is not None]
            if ready is not None:
                self._switch(ready)
            elif dues:
                self.now = min(dues)
            else:
                return

    def waiting_for(self) -> dict[str, str]:
        """What every task that has not ended waits for, by its name."""
        return {task.name: task.what for task in self._tasks if not task.done}

    def close(self) -> None:
        """End every task."""
        self._over = True
        for task, thread in zip(self._tasks, self._threads, strict=True):
            task.go.release()
            thread.join(REAL_S)
            assert not thread.is_alive()

    def _wait(self, met: Callable[[], bool], what: str, due: float | None) -> None:
        if met():
            return
        task = self._current
        assert task is not None, "only a task waits"
        task.met, task.what, task.due = met, what, due
        self._back.release()
        assert task.go.acquire(timeout=REAL_S)
        if self._over:
            raise _Over
        task.due = None

    def _switch(self, task: _Task) -> None:
        self._current = task
        task.go.release()
        assert self._back.acquire(timeout=REAL_S), f"{task.name} does not come back"
        self._current = None
        if task.error is not None:
            raise task.error

    def _live(self, task: _Task, work: Callable[[], None]) -> None:
        assert task.go.acquire(timeout=REAL_S)
        try:
            if not self._over:
                work()
        except _Over:
            return
        except BaseException as error:  # noqa: BLE001 (it is raised where the test waits)
            task.error = error
        task.done = True
        if not self._over:
            self._back.release()

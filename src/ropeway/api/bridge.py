"""From the serving loop's thread to the event loop: events posted there, handled here, one wake-up for many.

A generation is the sequences of one API request; it cancels what is still running when it is left, however it is left.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType

from ropeway.api.errors import from_service, ring_unavailable
from ropeway.serving.sequence import Finish
from ropeway.serving.service import (
    FailedEvent,
    GenerateEvent,
    GenerateRequest,
    PromptEvent,
    PromptTooLong,
    QueueFull,
    RingUnavailable,
    Service,
    TokenEvent,
    Unsupported,
)


class Bridge:
    """One for an event loop. `post` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._mail: deque[Callable[[], None]] = deque()
        self._woken = False

    def post(self, deliver: Callable[[], None]) -> None:
        """Have `deliver` called on the event loop, in the order of posting."""
        self._mail.append(deliver)
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        # In this order: what is appended from here on either is seen below or wakes us again.
        self._woken = False
        while self._mail:
            self._mail.popleft()()


class Generation:
    """Sequences under way. Use as `async with`; iterate `events()` once."""

    def __init__(self, service: Service, bridge: Bridge, requests: Sequence[GenerateRequest], param: str) -> None:
        self._service = service
        self._bridge = bridge
        self._requests = requests
        self._param = param
        self._ids: list[int] = []
        self._live: set[int] = set()
        self._inbox: asyncio.Queue[tuple[int, GenerateEvent]] = asyncio.Queue()

    async def __aenter__(self) -> Generation:
        """Queue all sequences. Raises ApiError: 429, 503, or 400 for a long prompt or a field that cannot be served."""
        try:
            for index, request in enumerate(self._requests):
                self._ids.append(self._service.submit(request, self._listener(index)))
                self._live.add(index)
        except BaseException as error:
            self._cancel()
            if isinstance(error, (RingUnavailable, QueueFull, PromptTooLong, Unsupported)):
                raise from_service(error, self._param) from None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cancel()

    async def events(self) -> AsyncIterator[tuple[int, PromptEvent | TokenEvent]]:
        """Each event with its sequence's number, until all have ended. Raises ApiError (503) when the ring is lost."""
        while self._live:
            index, event = await self._inbox.get()
            if index not in self._live:
                continue
            if isinstance(event, FailedEvent):
                self._live.discard(index)
                raise ring_unavailable(event.text)
            if isinstance(event, TokenEvent) and event.finish is not None:
                self._live.discard(index)
                if event.finish is Finish.CANCELLED:
                    raise ring_unavailable("The reply was cancelled by the server.")
            yield index, event

    def stop(self, index: int) -> None:
        """Enough of one sequence: it frees its slot, and its further events are dropped."""
        if index in self._live:
            self._live.discard(index)
            self._service.end(self._ids[index], Finish.STOP)

    def _cancel(self) -> None:
        for index in self._live:
            self._service.end(self._ids[index], Finish.CANCELLED)
        self._live.clear()

    def _listener(self, index: int) -> Callable[[GenerateEvent], None]:
        def heard(event: GenerateEvent) -> None:
            self._bridge.post(lambda: self._inbox.put_nowait((index, event)))

        return heard

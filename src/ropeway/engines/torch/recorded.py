"""Decode steps that are recorded once and then played, on devices that can (CUDA and ROCm, by CUDA graphs).

A forward with one row of each stream makes the same calls every time, but for those that look into a stream's own
state or choose experts. Such calls stand `Apart`: between two recorded pieces, run as ever, on the same buffers. A
forward of so many streams is recorded when it is first asked for. Played on a CPU by the tests; untried on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

from ropeway.engines.base import EngineError
from ropeway.engines.torch.batch import Batch

MOST_STREAMS: Final = 16
"""Forwards of more streams are not recorded."""
SWITCH: Final = "ROPEWAY_GRAPHS"
"""The environment variable that switches recording on, with the value on: off until a GPU is seen to keep bits."""
Play = Callable[[], None]


class Recorder(Protocol):
    """Records calls of torch; one piece after the other."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Around all pieces of a forward."""
        ...

    def begin(self) -> None:
        """Start a piece."""
        ...

    def end(self) -> Play:
        """The piece, which has run once by now; calling it runs it again, from and into the same memory."""
        ...


class CudaRecorder:
    """CUDA graphs that share their memory: they are played in the order in which they were recorded, or not at all."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)
        self._graph: torch.cuda.CUDAGraph | None = None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """On a stream of its own, as recording asks for."""
        torch.cuda.synchronize(self._device)
        with torch.cuda.stream(self._stream):
            yield
        torch.cuda.synchronize(self._device)

    def begin(self) -> None:
        """As `Recorder`. Other threads may go on using the device meanwhile."""
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")

    def end(self) -> Play:
        """As `Recorder`. Recording computes nothing, so the piece is played at once."""
        graph, self._graph = self._graph, None
        assert graph is not None
        graph.capture_end()
        graph.replay()
        play: Play = graph.replay
        return play


class Recording:
    """One forward's pieces, and the calls between them."""

    def __init__(self, recorder: Recorder, rows: Tensor, batch: Batch) -> None:
        self._recorder = recorder
        self._rows = rows.clone()
        self._positions = batch.positions.clone()
        self._tokens = None if batch.tokens is None else batch.tokens.clone()
        self._batch = batch
        self._steps: list[Play] = []
        self._output: Tensor | None = None

    def record(self, run: Callable[[Tensor, Batch], Tensor], apart: Apart) -> Tensor:
        """Run a forward, recording it. Raises EngineError where the device does not record it."""
        mine = Batch(self._batch.spans, self._batch.calls, self._positions, self._tokens, recorded=True)
        apart.recording = self
        try:
            with self._recorder.recording():
                self._recorder.begin()
                self._output = run(self._rows, mine)
                self._steps.append(self._recorder.end())
        except RuntimeError as error:
            why = str(error).splitlines()[0]
            raise EngineError(f"a decode step could not be recorded: {why}; without {SWITCH}=on none is") from error
        finally:
            apart.recording = None
        return self._output.clone()

    def play(self, rows: Tensor, batch: Batch) -> Tensor:
        """Run it again, over other rows of as many streams."""
        assert self._output is not None
        self._batch = batch
        self._rows.copy_(rows)
        self._positions.copy_(batch.positions)
        if self._tokens is not None and batch.tokens is not None:
            self._tokens.copy_(batch.tokens)
        for step in self._steps:
            step()
        return self._output.clone()

    def between(self, call: Callable[..., Tensor | None], tensors: tuple[Tensor, ...], *, keeps: bool) -> Tensor | None:
        """End a piece, make the call, and begin the next piece with what it gave."""
        self._steps.append(self._recorder.end())

        def made() -> Tensor | None:
            return call(self._batch, *(tensor.clone() for tensor in tensors) if keeps else tensors)

        found = made()
        held = None if found is None else found.clone()

        def again() -> None:
            found = made()
            if held is not None and found is not None:
                held.copy_(found)

        self._steps.append(again)
        self._recorder.begin()
        return held


class Apart:
    """Makes calls that must not be recorded. `call` gets the batch that runs now, and tensors."""

    def __init__(self) -> None:
        self.recording: Recording | None = None

    def __call__(
        self, call: Callable[..., Tensor], batch: Batch | None, *tensors: Tensor, keeps: bool = False
    ) -> Tensor:
        """What `call` gives. With `keeps` it may hold on to the tensors."""
        if self.recording is None:
            return call(batch, *tensors)
        found = self.recording.between(call, tensors, keeps=keeps)
        assert found is not None
        return found

    def run(self, call: Callable[..., None], batch: Batch, *tensors: Tensor) -> None:
        """A call that gives nothing and may hold on to the tensors."""
        if self.recording is None:
            call(batch, *tensors)
        else:
            self.recording.between(call, tensors, keeps=True)


class ApartModule(nn.Module):
    """A module of tensors alone whose calls depend on their values: experts that are hit or not."""

    def __init__(self, inner: nn.Module, apart: Apart) -> None:
        super().__init__()
        self.inner = inner
        self._apart = apart

    def forward(self, *tensors: Tensor) -> Tensor:
        """As the module's own."""

        def call(_batch: Batch | None, *given: Any) -> Tensor:
            output: Tensor = self.inner(*given)
            return output

        return self._apart(call, None, *tensors)


class Recordings:
    """Runs forwards: recorded ones where a recorder is there and every stream has one row, by the number of streams."""

    def __init__(self, run: Callable[[Tensor, Batch], Tensor], apart: Apart, recorder: Recorder | None) -> None:
        self._run = run
        self._apart = apart
        self._recorder = recorder
        self._recordings: dict[int, Recording] = {}

    def __call__(self, rows: Tensor, batch: Batch) -> Tensor:
        """Rows [1, n, planes * width] in and out."""
        recorder, count = self._recorder, len(batch.spans)
        # A stream's first row makes states, which no later one does.
        if recorder is None or count > MOST_STREAMS or any(s.rows > 1 or not s.first for s in batch.spans):
            return self._run(rows, batch)
        recording = self._recordings.get(count)
        if recording is not None:
            return recording.play(rows, batch)
        recording = Recording(recorder, rows, batch)
        output = recording.record(self._run, self._apart)
        self._recordings[count] = recording
        return output


def recorder_of(device: torch.device) -> Recorder | None:
    """What records on this device; None where nothing does, or where it is switched off."""
    return CudaRecorder(device) if device.type == "cuda" and os.environ.get(SWITCH) == "on" else None

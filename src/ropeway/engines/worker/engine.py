"""A worker process as an engine: one stage's layers behind a pipe (docs/worker.md). Any program can be one.

The worker is started when the engine is made, since what it can do stands in its ready line. Rows are converted here,
at the engine's own edge, where the worker's dtype is another than the boundary's.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from ropeway.engines.base import Capacities, EngineConfig, EngineError, Logits, Span
from ropeway.engines.rows import convert_rows
from ropeway.engines.worker.messages import (
    READY_BYTES,
    ReadyLine,
    decode_ready,
    decode_reply,
    encode_request,
    encoded,
    encoded_size,
    integer,
    payload,
)
from ropeway.engines.worker.process import STOPPED_S, WorkerProcess
from ropeway.types import Boundary, EngineKind, RowDtype

READY_S: Final = 1800.0
"""How long a worker may take to load; as long as a ring waits for any stage to."""
REQUEST_S: Final = 300.0
"""How long it may take to answer; as long as a ring waits inside a round."""
STATE_BYTES: Final = 1 << 32
"""A larger saved state is refused."""
_TOKEN: Final = np.dtype("<u4")


class WorkerEngine:
    """Layers first..end of whatever the worker has loaded. Raises EngineError where it does not start or suit.

    Between `embed` and `forward` of a first stage, a row's first four bytes are its token: the worker embeds.
    """

    kind = EngineKind.WORKER

    def __init__(
        self,
        config: EngineConfig,
        *,
        ready_s: float = READY_S,
        request_s: float = REQUEST_S,
        stopped_s: float = STOPPED_S,
    ) -> None:
        command = shlex.split(config.worker_cmd)
        if not command:
            raise EngineError("the engine worker needs its command: --worker-cmd 'PROGRAM ARGUMENTS'")
        self._config = config
        self._request_s = request_s
        self._number = 0
        self._positions: dict[int, int] = {}
        self._process = WorkerProcess(command, environment(config), stopped_s=stopped_s)
        try:
            line = self._process.read_line(READY_BYTES, time.monotonic() + ready_s)
            self._ready = ready = decode_ready(line)
            self._judge(ready)
        except EngineError:
            self._process.stop()
            raise
        told = ready.extension
        row_dtype = config.boundary.row_dtype if config.boundary is not None else told.row_dtype
        self.boundary = Boundary(ready.hidden, 1, row_dtype)
        self.backend = told.backend
        self.kv_dtype = told.kv_dtype
        self.weights_bytes = told.weights_bytes
        context = config.context if told.context is None else told.context
        chunk = config.chunk if told.chunk is None else told.chunk
        self.capacities = Capacities(chunk, max(context, chunk), told.streams, context, context * told.streams)
        self._row_bytes = ready.hidden * told.row_dtype.itemsize

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    def _judge(self, ready: ReadyLine) -> None:
        """What a description does not show: the layers that were loaded, and a head where one is needed."""
        config = self._config
        if (ready.first, ready.end) != (config.first, config.end):
            raise EngineError(
                f"the worker has loaded layers {ready.first}..{ready.end}, the layout gives this stage "
                f"{config.first}..{config.end}"
            )
        if config.boundary is not None and ready.hidden != config.boundary.hidden:
            raise EngineError(f"the worker's rows have {ready.hidden} values, the layout's {config.boundary.hidden}")
        if config.embed and config.head and "head" not in ready.extension.can:
            raise EngineError(
                "rank 0 has the head of this layout, and the worker's ready line does not list 'head'; "
                "use --sampler last, or another engine on rank 0"
            )

    def on_death(self, call: Callable[[str], None]) -> None:
        """Have `call` told when the worker ends by itself while nobody asks it anything."""
        self._process.on_end(call)

    def load(self) -> None:
        """Nothing: a worker that is ready has loaded."""

    def embed(self, tokens: Sequence[int], out: memoryview) -> None:
        """Note the tokens in their rows; the worker embeds them when they are run."""
        if not self._config.embed:
            raise EngineError("this stage was loaded without the embeddings")
        size = self.boundary.row_bytes()
        rows = np.zeros((len(tokens), size), np.uint8)
        rows[:, : _TOKEN.itemsize] = np.array(tokens, _TOKEN).reshape(-1, 1).view(np.uint8)
        out[:] = rows.data.cast("B")

    def forward(
        self, spans: Sequence[Span], rows: memoryview, out: memoryview, wanted: Sequence[int] | None = None
    ) -> None:
        """Run the layers, one request a span; `out` gets every row, or those `wanted`."""
        size = self.boundary.row_bytes()
        done = self._run(spans, rows)
        if wanted is not None:
            done = b"".join([done[row * size : (row + 1) * size] for row in wanted])
        out[:] = done

    def _run(self, spans: Sequence[Span], rows: memoryview) -> bytes:
        size = self.boundary.row_bytes()
        done = []
        at = 0
        for span in spans:
            given = rows[at * size : (at + span.rows) * size]
            done.append(self._first(span, given) if self._config.embed else self._middle(span, given))
            at += span.rows
        return b"".join(done)

    def _first(self, span: Span, rows: memoryview) -> bytes:
        ids = self._tokens(rows)
        if span.rows == 1 and span.first > 0:
            return self._rows("decode_step", span, {"token_id": ids[0]})
        return self._rows("embed_and_forward", span, {"tokens": ids})

    def _tokens(self, rows: memoryview) -> list[int]:
        """What `embed` noted."""
        words = np.frombuffer(rows, np.uint8).reshape(-1, self.boundary.row_bytes())[:, : _TOKEN.itemsize].copy()
        return [int(token) for token in words.view(_TOKEN)[:, 0]]

    def _middle(self, span: Span, rows: memoryview) -> bytes:
        return self._rows("forward_range", span, self._hidden(rows, span.rows))

    def _rows(self, op: str, span: Span, fields: dict[str, object]) -> bytes:
        """A request that gives rows, in the boundary's dtype."""
        size = span.rows * self._row_bytes
        reply = self._ask(op, {**self._place(span), **fields}, encoded_size(size))
        if integer(reply, "seq_len", 0) != span.rows:
            raise EngineError(f"the worker gave {reply['seq_len']} rows, expected {span.rows}")
        raw = payload(reply, "hidden_b64", size)
        return bytes(convert_rows(raw, self._ready.extension.row_dtype, self.boundary.row_dtype))

    def _hidden(self, rows: bytes | memoryview, count: int) -> dict[str, object]:
        own = convert_rows(rows, self.boundary.row_dtype, self._ready.extension.row_dtype)
        return {"hidden_b64": encoded(own), "seq_len": count}

    def _place(self, span: Span) -> dict[str, object]:
        """Where a span goes. A plain worker has one stream, and no word for its slot."""
        if span.slot >= self.capacities.parallel:
            raise EngineError(f"slot {span.slot}, and the worker has {self.capacities.parallel}")
        held = self._positions.get(span.slot, 0)
        if span.first != held and span.first != 0:
            raise EngineError(f"slot {span.slot} holds {held} positions, {span} follows")
        self._positions[span.slot] = span.first + span.rows
        return {"position": span.first, **self._slot(span.slot)}

    def _slot(self, slot: int) -> dict[str, object]:
        return {"slot": slot} if self.capacities.parallel > 1 else {}

    def forward_head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Layers and head. Where the worker only chooses tokens, a row has 0 at its token and -inf elsewhere."""
        if not self._config.head:
            raise EngineError("this stage was loaded without a head")
        if self._config.embed:
            return self._all_at_once(spans, rows, wanted)
        logits = np.empty((len(wanted), self._ready.vocabulary), np.float32)
        at = taken = 0
        for span in spans:
            stops = [row + 1 - at for row in wanted if at <= row < at + span.rows]
            first = 0
            for stop in sorted({*stops, span.rows}):
                piece = Span(span.slot, span.first + first, stop - first)
                size = self.boundary.row_bytes()
                row = self._last(piece, rows[(at + first) * size : (at + stop) * size])
                if stop in stops:
                    logits[taken] = row
                    taken += 1
                first = stop
            at += span.rows
        return logits

    def _all_at_once(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Embeddings, every layer and the head in one worker."""
        vocabulary, size = self._ready.vocabulary, self.boundary.row_bytes()
        logits = [np.empty((0, vocabulary), np.float32)]
        at = 0
        for span in spans:
            mine = [row - at for row in wanted if at <= row < at + span.rows]
            tokens = self._tokens(rows[at * size : (at + span.rows) * size])
            nbytes = len(mine) * vocabulary * 4
            fields = {**self._place(span), "tokens": tokens, "logits": mine}
            reply = self._ask("embed_and_forward", fields, encoded_size(nbytes))
            given = payload(reply, "logits_b64", nbytes)
            logits.append(np.frombuffer(given, np.float32).reshape(len(mine), vocabulary))
            at += span.rows
        return np.concatenate(logits)

    def _last(self, span: Span, rows: memoryview) -> Logits:
        """The logits of a span's last row."""
        vocabulary = self._ready.vocabulary
        fields = {**self._place(span), **self._hidden(rows, span.rows)}
        if "head" in self._ready.extension.can:
            reply = self._ask("forward_and_sample", {**fields, "logits": True}, encoded_size(vocabulary * 4))
            return np.frombuffer(payload(reply, "logits_b64", vocabulary * 4), np.float32)
        reply = self._ask("forward_and_sample", fields, encoded_size(0))
        chosen = np.full(vocabulary, -np.inf, np.float32)
        chosen[integer(reply, "token_id", 0, vocabulary - 1)] = 0.0
        return chosen

    def head(self, spans: Sequence[Span], rows: memoryview, wanted: Sequence[int]) -> Logits:
        """Norm and output matrix over the rows `wanted`, just those."""
        self._need("head", "has no head of its own")
        size = len(wanted) * self._ready.vocabulary * 4
        if not wanted:
            return np.empty((0, self._ready.vocabulary), np.float32)
        reply = self._ask("head", self._hidden(rows, len(wanted)), encoded_size(size))
        return np.frombuffer(payload(reply, "logits_b64", size), np.float32).reshape(len(wanted), -1)

    def keep(self, slot: int, length: int) -> None:
        """Forget the slot's positions from `length` on."""
        self._need("keep", "cannot roll a stream back; run without drafts")
        self._ask("keep", {"slot": slot, "length": length}, encoded_size(0))
        self._positions[slot] = length

    def release(self, slot: int) -> None:
        """Forget all of the slot: its next rows begin at position 0, which is how a worker knows."""
        self._positions.pop(slot, None)

    def save(self, slot: int) -> bytes:
        """The slot's state: its length, and what the worker makes of it."""
        self._need("save", "cannot save a stream's state")
        reply = self._ask("save", {"slot": slot}, encoded_size(STATE_BYTES))
        return self._positions.get(slot, 0).to_bytes(8, "little") + payload(reply, "state_b64")

    def restore(self, slot: int, state: bytes) -> None:
        """Put a saved state into an empty slot."""
        self._need("save", "cannot restore a stream's state")
        self._ask("restore", {"slot": slot, "state_b64": encoded(state[8:])}, encoded_size(0))
        self._positions[slot] = int.from_bytes(state[:8], "little")

    def close(self) -> None:
        """End the worker."""
        self._process.stop()

    def _need(self, ability: str, lack: str) -> None:
        if ability not in self._ready.extension.can:
            raise EngineError(f"the worker {lack} (its ready line does not list '{ability}')")

    def _ask(self, op: str, fields: dict[str, object], most_bytes: int) -> dict[str, object]:
        self._number += 1
        request = encode_request(self._number, op, fields)
        return decode_reply(self._process.exchange(request, most_bytes, self._request_s), self._number)


def environment(config: EngineConfig) -> dict[str, str]:
    """What a worker is told, beside our own environment (docs/worker.md)."""
    role = "first" if config.embed else "last" if config.head else "middle"
    return {
        "STAGE": str(config.rank),
        "NUM_STAGES": str(config.world),
        "MODEL": config.model,
        "ROLE": role,
        "LAYER_FIRST": str(config.first),
        "LAYER_END": str(config.end),
        "CONTEXT": str(config.context),
        "STREAMS": str(config.parallel),
        "CHUNK": str(config.chunk),
        "THREADS": str(config.threads),
        "HEAD": "1" if config.head else "0",
        "ROW_DTYPE": (config.boundary.row_dtype if config.boundary is not None else RowDtype.F32).label,
    }

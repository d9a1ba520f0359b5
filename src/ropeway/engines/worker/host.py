"""The worker's side of the process bridge: any engine of ours behind a pipe (docs/worker.md).

Reads requests on standard input and answers on standard output, one line each; a bad request is answered with an error
and changes nothing. What it is told at its start is in setting.py.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO, Protocol

from ropeway.engines.base import Engine, EngineError, Logits, Span
from ropeway.engines.rows import convert_rows
from ropeway.engines.worker.messages import ABILITIES, BRIDGE_VERSION, encoded
from ropeway.engines.worker.setting import Role, Setting

Fields = Mapping[str, object]


class Text(Protocol):
    """A tokenizer, which the plain bridge asks of the first and the last worker."""

    def tokenize(self, text: str) -> list[int]: ...
    def detokenize(self, tokens: Sequence[int]) -> str: ...


class BadRequest(Exception):
    """The asker's fault; the text is for it."""


class Host:
    """One loaded engine that answers requests. `vocabulary` and `layers` are the whole model's."""

    def __init__(
        self,
        engine: Engine,
        setting: Setting,
        *,
        vocabulary: int,
        layers: int,
        span: tuple[int, int],
        end_tokens: Sequence[int] = (),
        text: Text | None = None,
        lacks: frozenset[str] = frozenset(),
    ) -> None:
        self._engine, self._setting, self._text = engine, setting, text
        self._vocabulary, self._layers, self._span = vocabulary, layers, span
        self._end_tokens = tuple(end_tokens)
        self._own = engine.boundary.row_dtype
        self._hidden = engine.boundary.hidden
        self._positions: dict[int, int] = {}
        self._can = can = ABILITIES - lacks - (frozenset() if setting.head else frozenset({"head"}))
        by_role: dict[Role, dict[str, Callable[[Fields], Fields]]] = {
            Role.FIRST: {
                "tokenize": self._tokenize,
                "embed_and_forward": self._embed_and_forward,
                "decode_step": self._decode_step,
            },
            Role.MIDDLE: {"forward_range": self._forward_range},
            Role.LAST: {"forward_and_sample": self._forward_and_sample, "detokenize": self._detokenize},
        }
        self._known = {op for ops in by_role.values() for op in ops}
        self._ops = by_role[setting.role]
        extra: dict[str, dict[str, Callable[[Fields], Fields]]] = {
            "keep": {"keep": self._keep},
            "save": {"save": self._save, "restore": self._restore},
            "head": {"head": self._head},
        }
        for ability, ops in extra.items():
            self._known |= set(ops)
            if ability in can:
                self._ops |= ops

    def ready(self) -> Fields:
        """The ready line's fields."""
        capacities = self._engine.capacities
        return {
            "status": "ready",
            "pid": os.getpid(),
            "stage": self._setting.stage,
            "hidden_dim": self._hidden,
            "vocab_size": self._vocabulary,
            "total_blocks": self._layers,
            "layer_range": list(self._span),
            "eog_ids": list(self._end_tokens),
            "bridge": {
                "version": BRIDGE_VERSION,
                "row_dtype": self._setting.row_dtype.label,
                "streams": capacities.parallel,
                "context": capacities.context,
                "chunk": capacities.chunk,
                "backend": self._engine.backend.name.lower(),
                "kv_dtype": self._engine.kv_dtype.name.lower(),
                "weights_bytes": self._engine.weights_bytes,
                "can": sorted(self._can),
            },
        }

    def answer(self, line: bytes) -> Fields:
        """The reply to one request line. Raises nothing that a request can bring about."""
        number: object = None
        try:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                raise BadRequest("the request is not JSON") from None
            if not isinstance(value, dict):
                raise BadRequest("the request is no JSON object")
            number = value.get("request_id")
            if type(number) is not int:
                number = None
                raise BadRequest("request_id: expected an integer")
            op = value.get("op")
            call = self._ops.get(op) if isinstance(op, str) else None
            if call is None:
                known = isinstance(op, str) and op in self._known
                what = f"not for a {self._setting.role.value} worker with {sorted(self._can)}" if known else "unknown"
                raise BadRequest(f"op: {op!r} is {what}"[:200])
            return {"request_id": number, **call(value)}
        except (BadRequest, EngineError) as error:
            return {"request_id": number, "error": str(error)}

    def _tokenize(self, value: Fields) -> Fields:
        prompt = value.get("prompt")
        if not isinstance(prompt, str):
            raise BadRequest("prompt: expected a string")
        if self._text is None:
            raise BadRequest("tokenize: this worker has no tokenizer")
        return {"tokens": self._text.tokenize(prompt)}

    def _detokenize(self, value: Fields) -> Fields:
        tokens = self._tokens(value)
        if self._text is None:
            raise BadRequest("detokenize: this worker has no tokenizer")
        return {"text": self._text.detokenize(tokens)}

    def _embed_and_forward(self, value: Fields) -> Fields:
        tokens = self._tokens(value)
        wanted = value.get("logits")
        if wanted is None:
            return self._forward_tokens(value, tokens)
        if "head" not in self._can or self._span != (0, self._layers):
            raise BadRequest("logits: this worker does not hold every layer and the head")
        if not isinstance(wanted, list):
            raise BadRequest("logits: expected a list of rows")
        rows = [_number({"logits": row}, "logits", len(tokens) - 1) for row in wanted]
        span, given = self._place(value, len(tokens)), self._embedded(tokens)
        logits = self._engine.forward_head([span], given, rows)
        self._positions[span.slot] = span.first + span.rows
        return {"logits_b64": encoded(logits.tobytes())}

    def _decode_step(self, value: Fields) -> Fields:
        return self._forward_tokens(value, [_number(value, "token_id", self._vocabulary - 1)])

    def _forward_tokens(self, value: Fields, tokens: list[int]) -> Fields:
        return self._given(self._run(self._place(value, len(tokens)), self._embedded(tokens)))

    def _embedded(self, tokens: list[int]) -> memoryview:
        rows = memoryview(bytearray(len(tokens) * self._engine.boundary.row_bytes()))
        self._engine.embed(tokens, rows)
        return rows

    def _forward_range(self, value: Fields) -> Fields:
        rows, count = self._rows(value)
        return self._given(self._run(self._place(value, count), rows))

    def _forward_and_sample(self, value: Fields) -> Fields:
        rows, count = self._rows(value)
        span = self._place(value, count)
        logits = self._engine.forward_head([span], rows, [count - 1])
        self._positions[span.slot] = span.first + span.rows
        reply: dict[str, object] = {"token_id": int(logits[0].argmax())}
        if "head" in self._can and value.get("logits") is True:
            reply["logits_b64"] = encoded(logits.tobytes())
        return reply

    def _head(self, value: Fields) -> Fields:
        rows, count = self._rows(value)
        logits: Logits = self._engine.head([Span(0, 0, count)], rows, range(count))
        return {"logits_b64": encoded(logits.tobytes())}

    def _keep(self, value: Fields) -> Fields:
        slot = self._slot(value)
        held = self._positions.get(slot, 0)
        length = _number(value, "length", held)
        if length < 1:
            raise BadRequest(f"length: {length}, expected 1 to {held}")
        if length < held:
            self._engine.keep(slot, length)
        self._positions[slot] = length
        return {}

    def _save(self, value: Fields) -> Fields:
        slot = self._slot(value)
        if not self._positions.get(slot):
            raise BadRequest(f"slot: {slot} is empty")
        state = self._positions[slot].to_bytes(8, "little") + self._engine.save(slot)
        return {"state_b64": encoded(state)}

    def _restore(self, value: Fields) -> Fields:
        slot = self._slot(value)
        state = _raw(value, "state_b64")
        if len(state) < 8:
            raise BadRequest(f"state_b64: {len(state)} bytes")
        self._empty(slot)
        self._engine.restore(slot, state[8:])
        self._positions[slot] = int.from_bytes(state[:8], "little")
        return {}

    def _run(self, span: Span, rows: memoryview) -> bytes:
        out = memoryview(bytearray(span.rows * self._engine.boundary.row_bytes()))
        self._engine.forward([span], rows, out)
        self._positions[span.slot] = span.first + span.rows
        return bytes(out)

    def _place(self, value: Fields, count: int) -> Span:
        """Where the rows go: behind what the slot holds, or at 0, which begins it anew."""
        capacities = self._engine.capacities
        slot, position = self._slot(value), _number(value, "position", capacities.context)
        if not 1 <= count <= capacities.chunk:
            raise BadRequest(f"seq_len: {count} rows, expected 1 to {capacities.chunk}")
        if position + count > capacities.context:
            raise BadRequest(f"position: ends at {position + count}, at most {capacities.context}")
        held = self._positions.get(slot, 0)
        if position not in (0, held):
            raise BadRequest(f"position: {position}, the slot holds {held}")
        if position == 0:
            self._empty(slot)
        return Span(slot, position, count)

    def _empty(self, slot: int) -> None:
        if self._positions.pop(slot, 0):
            self._engine.release(slot)

    def _slot(self, value: Fields) -> int:
        return _number(value, "slot", self._engine.capacities.parallel - 1) if "slot" in value else 0

    def _rows(self, value: Fields) -> tuple[memoryview, int]:
        """The rows of a request in the engine's dtype, and how many."""
        count = _number(value, "seq_len", 1 << 24)
        raw = _raw(value, "hidden_b64")
        size = count * self._hidden * self._setting.row_dtype.itemsize
        if len(raw) != size or not count:
            raise BadRequest(f"hidden_b64: {len(raw)} bytes for {count} rows, expected {size}")
        return memoryview(convert_rows(raw, self._setting.row_dtype, self._own)).cast("B"), count

    def _given(self, rows: bytes) -> Fields:
        count = len(rows) // self._engine.boundary.row_bytes()
        return {"hidden_b64": encoded(convert_rows(rows, self._own, self._setting.row_dtype)), "seq_len": count}

    def _tokens(self, value: Fields) -> list[int]:
        tokens = value.get("tokens")
        if not isinstance(tokens, list) or not tokens:
            raise BadRequest("tokens: expected a list of ids")
        return [_number({"tokens": token}, "tokens", self._vocabulary - 1) for token in tokens]


def _number(value: Fields, name: str, most: int) -> int:
    """A natural number, which a boolean is not."""
    found = value.get(name)
    if type(found) is not int or not 0 <= found <= most:
        raise BadRequest(f"{name}: {found!r}, expected an integer from 0 to {most}"[:200])
    return found


def _raw(value: Fields, name: str) -> bytes:
    text = value.get(name)
    if not isinstance(text, str):
        raise BadRequest(f"{name}: expected base64")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"{name}: not base64") from None


def serve(host: Host, requests: BinaryIO, replies: BinaryIO) -> None:
    """Say that we are ready, then answer until the input ends."""
    _write(replies, host.ready())
    for line in requests:
        if line.strip():
            _write(replies, host.answer(line))


def _write(replies: BinaryIO, value: Fields) -> None:
    replies.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")
    replies.flush()


def own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Standard input, and the real standard output; what anything else prints goes to standard error from now on."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return sys.stdin.buffer, replies

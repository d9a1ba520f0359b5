"""A worker under test: started in a role, asked by hand, its replies compared."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ropeway.engines.base import EngineError
from ropeway.engines.rows import from_f32
from ropeway.engines.worker.messages import READY_BYTES, ReadyLine, decode_object, decode_ready, encoded, payload
from ropeway.engines.worker.process import WorkerProcess
from ropeway.engines.worker.setting import Role

PLACES: Final = {Role.FIRST: ("0", "2"), Role.MIDDLE: ("1", "3"), Role.LAST: ("1", "2")}
"""STAGE and NUM_STAGES that make a worker of each role."""
OWN_OPS: Final = {
    Role.FIRST: ("embed_and_forward", "decode_step", "tokenize"),
    Role.MIDDLE: ("forward_range",),
    Role.LAST: ("forward_and_sample", "detokenize"),
}
REPLY_BYTES: Final = 1 << 28


class Broken(Exception):
    """A rule that the worker does not keep."""


class Subject:
    """One worker under test."""

    def __init__(self, command: Sequence[str], role: Role, model: str, wait_s: float) -> None:
        stage, stages = PLACES[role]
        self.role, self._wait_s = role, wait_s
        settings = {
            "STAGE": stage,
            "NUM_STAGES": stages,
            "MODEL": model,
            "STREAMS": "2",
            "CONTEXT": "1024",
            "HEAD": "1",
        }
        self.process = WorkerProcess(command, settings)
        try:
            line = self.process.read_line(READY_BYTES, time.monotonic() + wait_s)
            self.ready: ReadyLine = decode_ready(line)
        except EngineError:
            self.process.stop()
            raise
        self._number = 0

    def say(self, line: str) -> dict[str, object]:
        """Whatever it answers to a line."""
        reply = self.process.exchange(line.encode() + b"\n", REPLY_BYTES, self._wait_s)
        return decode_object(reply, "a reply")

    def any(self, op: object, fields: Mapping[str, object]) -> dict[str, object]:
        """Its reply to a request, an error or not, which must bear the request's id."""
        self._number += 1
        reply = self.say(json.dumps({"op": op, "request_id": self._number, **fields}))
        if reply.get("request_id") != self._number:
            raise Broken(f"{op}: the reply has request_id {reply.get('request_id')!r}, expected {self._number}")
        return reply

    def ask(self, op: str, **fields: object) -> dict[str, object]:
        """Its reply, which must not be an error."""
        reply = self.any(op, fields)
        if "error" in reply:
            raise Broken(f"{op} was refused: {reply['error']!r}")
        return reply

    def refuses(self, op: object, fields: Mapping[str, object]) -> None:
        """An error for this request."""
        if "error" not in self.any(op, fields):
            raise Broken(f"{op!r} with {str(dict(fields))[:80]} was not refused")

    def hidden(self, rows: int, seed: int) -> dict[str, object]:
        """Made-up rows for a middle or last worker."""
        values = np.random.default_rng(seed).standard_normal(rows * self.ready.hidden).astype(np.float32)
        return {"hidden_b64": encoded(from_f32(values, self.ready.extension.row_dtype)), "seq_len": rows}

    def run(self, rows: int, position: int, seed: int, **slot: object) -> bytes:
        """Run made-up rows; what comes of them, as bytes to compare."""
        if self.role is Role.LAST:
            reply = self.ask("forward_and_sample", position=position, **self.hidden(rows, seed), **slot)
            token = reply.get("token_id")
            if type(token) is not int or not 0 <= token < self.ready.vocabulary:
                raise Broken(f"token_id is {token!r} of {self.ready.vocabulary}")
            return token.to_bytes(4, "little")
        if self.role is Role.FIRST:
            tokens = [int(t) for t in np.random.default_rng(seed).integers(0, self.ready.vocabulary, rows)]
            if rows == 1 and position:
                reply = self.ask("decode_step", position=position, token_id=tokens[0], **slot)
            else:
                reply = self.ask("embed_and_forward", position=position, tokens=tokens, **slot)
        else:
            reply = self.ask("forward_range", position=position, **self.hidden(rows, seed), **slot)
        if reply.get("seq_len") != rows or type(reply["seq_len"]) is not int:
            raise Broken(f"seq_len is {reply.get('seq_len')!r}, expected {rows}")
        size = rows * self.ready.hidden * self.ready.extension.row_dtype.itemsize
        raw = payload(reply, "hidden_b64", size)
        if not any(raw):
            raise Broken("every value is zero")
        return raw

    def story(self, seed: int, **slot: object) -> bytes:
        """A prompt of five rows and three single ones behind it."""
        return self.run(5, 0, seed, **slot) + b"".join(self.run(1, 5 + at, seed + at, **slot) for at in range(3))

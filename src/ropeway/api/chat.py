"""POST /v1/chat/completions, whole and as a stream."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from ropeway.api.bodies.chat import ChatBody
from ropeway.api.bridge import Generation
from ropeway.api.front import Front
from ropeway.api.jobs import Job, chat_job
from ropeway.api.logprobs import chat_logprobs
from ropeway.api.reading import read_body
from ropeway.api.replies import (
    Call,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatLogprobs,
    Delta,
    FinishReason,
    FunctionDelta,
    Message,
)
from ropeway.api.run import Progress, progress
from ropeway.api.sse import DONE, EventStream, event, until_hangup
from ropeway.api.tools.reader import CallArguments, CallBegan, Piece, Text
from ropeway.api.transcript import Transcript
from ropeway.serving.service import TokenEvent, TokenLogprob


async def chat(front: Front, request: Request) -> Response:
    """One conversation's next message."""
    arrived = time.monotonic()
    body = await read_body(request, ChatBody)
    job = await asyncio.to_thread(chat_job, front, body)
    reply = _Reply(front, body, job, arrived)
    if not body.stream:
        return await until_hangup(request, reply.whole())
    chunks = reply.chunks()
    return EventStream(await until_hangup(request, anext(chunks)), chunks, front.settings.ping_s)


@dataclass(frozen=True, slots=True)
class _Step:
    """What an event made certain of one choice."""

    pieces: list[Piece]
    logprobs: tuple[TokenLogprob, ...]
    finish: FinishReason | None


@dataclass(slots=True)
class _Choice:
    """What one of n replies has come to."""

    content: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: FinishReason = "stop"

    def take(self, step: _Step) -> None:
        """Add a step."""
        self.logprobs += step.logprobs
        self.finish = step.finish or self.finish
        for piece in step.pieces:
            match piece:
                case Text(text):
                    self.content.append(text)
                case CallBegan(_, name):
                    function: Call = {"id": _call_id(), "type": "function", "function": {"name": name, "arguments": ""}}
                    self.calls.append(function)
                case CallArguments(index, text):
                    self.calls[index]["function"]["arguments"] += text

    @property
    def message(self) -> Message:
        """The whole message; no content where there are calls and no text."""
        text = "".join(self.content)
        message: Message = {"role": "assistant", "content": None if self.calls and not text else text, "refusal": None}
        if self.calls:
            message["tool_calls"] = self.calls
        return message


class _Reader:
    """One choice's events as pieces of a message."""

    def __init__(self, front: Front, body: ChatBody, job: Job) -> None:
        self._tools = job.tool_reader(front)
        self._transcript = Transcript(front.service.tokenizer, body.stops, front.markers if self._tools else {})

    def push(self, event: TokenEvent) -> tuple[_Step, bool]:
        """The step, and whether the sequence must be ended because the reply is complete."""
        step = self._transcript.push(event)
        finish, enough = step.finish, step.stopped
        pieces: list[Piece] = [Text(step.text)] if step.text else []
        if self._tools is not None:
            pieces = self._tools.push(step.text)
            if self._tools.done:
                finish, enough = "stop", event.finish is None
            elif finish is not None:
                pieces += self._tools.flush()
            if finish == "stop" and self._tools.calls:
                finish = "tool_calls"
        return _Step(pieces, step.logprobs, finish), enough


class _Reply:
    """One request's reply. `whole` or `chunks`, once."""

    def __init__(self, front: Front, body: ChatBody, job: Job, arrived: float) -> None:
        self._front, self._body, self._job = front, body, job
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._fingerprint = front.service.fingerprint
        self._progress = Progress(front.metrics, job, arrived)

    async def whole(self) -> Response:
        """All of it as one JSON document."""
        choices = [_Choice() for _ in self._job.requests]
        async for index, step in self._steps():
            choices[index].take(step)
        listed: list[ChatChoice] = [
            {
                "index": index,
                "message": choice.message,
                "logprobs": self._logprobs(choice.logprobs),
                "finish_reason": choice.finish,
            }
            for index, choice in enumerate(choices)
        ]
        completion: ChatCompletion = {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._front.service.model_id,
            "choices": listed,
            "usage": self._progress.usage(),
            "system_fingerprint": self._fingerprint,
        }
        return Response(to_json(completion), media_type="application/json")

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Its events. The first comes with the first token."""
        begun: set[int] = set()
        waiting: dict[int, tuple[TokenLogprob, ...]] = {}
        async with aclosing(self._steps()) as steps:
            async for index, step in steps:
                if index not in begun:
                    begun.add(index)
                    yield self._chunk(index, {"role": "assistant", "content": "", "refusal": None})
                # Log-probabilities go out with the next delta, the last one with the finish reason at the latest.
                logprobs = (*waiting.pop(index, ()), *step.logprobs)
                for delta in map(_delta, step.pieces):
                    yield self._chunk(index, delta, self._logprobs(logprobs) if logprobs else None)
                    logprobs = ()
                if step.finish is not None:
                    yield self._chunk(index, {}, self._logprobs(logprobs) if logprobs else None, step.finish)
                elif logprobs:
                    waiting[index] = logprobs
        if self._body.wants_usage_chunk:
            yield event({**self._frame(), "choices": [], "usage": self._progress.usage()})
        yield DONE

    async def _steps(self) -> AsyncGenerator[tuple[int, _Step], None]:
        readers = [_Reader(self._front, self._body, self._job) for _ in self._job.requests]
        async with Generation(self._front.service, self._front.bridge, self._job.requests, "messages") as generation:
            async for index, token in progress(generation, self._progress):
                step, enough = readers[index].push(token)
                if enough:
                    generation.stop(index)
                if step.finish is not None:
                    self._progress.finished(index, step.finish)
                yield index, step

    def _frame(self) -> ChatChunk:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._front.service.model_id,
            "system_fingerprint": self._fingerprint,
            "choices": [],
        }

    def _chunk(
        self, index: int, delta: Delta, logprobs: ChatLogprobs | None = None, finish: FinishReason | None = None
    ) -> bytes:
        frame = self._frame()
        frame["choices"] = [{"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]
        if self._body.wants_usage_chunk:
            frame["usage"] = None
        return event(frame)

    def _logprobs(self, tokens: Iterable[TokenLogprob]) -> ChatLogprobs | None:
        return chat_logprobs(self._front.names, tokens) if self._body.logprobs else None


def _delta(piece: Piece) -> Delta:
    match piece:
        case Text(text):
            return {"content": text}
        case CallBegan(index, name):
            function: FunctionDelta = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": _call_id(), "type": "function", "function": function}]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _call_id() -> str:
    return f"call_{secrets.token_hex(12)}"

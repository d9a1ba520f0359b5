"""POST /v1/completions, whole and as a stream."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from ropeway.api.bodies.completions import CompletionBody
from ropeway.api.bridge import Generation
from ropeway.api.front import Front
from ropeway.api.jobs import Job, completion_job
from ropeway.api.logprobs import TextLogprobWriter
from ropeway.api.reading import read_body
from ropeway.api.replies import FinishReason, TextChoice, TextCompletion, TextLogprobs
from ropeway.api.run import Progress, progress
from ropeway.api.sse import DONE, EventStream, event, until_hangup
from ropeway.api.transcript import Transcript


async def completions(front: Front, request: Request) -> Response:
    """What follows one or several texts."""
    arrived = time.monotonic()
    body = await read_body(request, CompletionBody)
    job = await asyncio.to_thread(completion_job, front, body)
    reply = _Reply(front, body, job, arrived)
    if not body.stream:
        return await until_hangup(request, reply.whole())
    chunks = reply.chunks()
    return EventStream(await until_hangup(request, anext(chunks)), chunks, front.settings.ping_s)


@dataclass(slots=True)
class _Choice:
    """What one reply has come to."""

    text: list[str] = field(default_factory=list)
    logprobs: TextLogprobs | None = None
    finish: FinishReason = "stop"

    def take(self, part: TextChoice) -> None:
        """Add a part."""
        self.text.append(part["text"])
        self.finish = part["finish_reason"] or self.finish
        more = part["logprobs"]
        if more is None or self.logprobs is None:
            self.logprobs = more or self.logprobs
            return
        self.logprobs["tokens"] += more["tokens"]
        self.logprobs["token_logprobs"] += more["token_logprobs"]
        self.logprobs["top_logprobs"] += more["top_logprobs"]
        self.logprobs["text_offset"] += more["text_offset"]


class _Reply:
    """One request's reply. `whole` or `chunks`, once."""

    def __init__(self, front: Front, body: CompletionBody, job: Job, arrived: float) -> None:
        self._front, self._body, self._job = front, body, job
        self._id = f"cmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._fingerprint = front.service.fingerprint
        self._progress = Progress(front.metrics, job, arrived)
        self._offsets = [TextLogprobWriter(front.names) for _ in job.requests]

    async def whole(self) -> Response:
        """All of it as one JSON document."""
        choices = [_Choice() for _ in self._job.requests]
        async for part in self._parts():
            choices[part["index"]].take(part)
        completion = self._frame()
        completion["choices"] = [
            {
                "index": index,
                "text": "".join(choice.text),
                "logprobs": choice.logprobs,
                "finish_reason": choice.finish,
            }
            for index, choice in enumerate(choices)
        ]
        completion["usage"] = self._progress.usage(shown=self._body.limit > 0)
        return Response(to_json(completion), media_type="application/json")

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Its events. The first comes with the first token."""
        async with aclosing(self._parts()) as parts:
            async for part in parts:
                chunk = self._frame()
                chunk["choices"] = [part]
                if self._body.wants_usage_chunk:
                    chunk["usage"] = None
                yield event(chunk)
        if self._body.wants_usage_chunk:
            yield event({**self._frame(), "usage": self._progress.usage(shown=self._body.limit > 0)})
        yield DONE

    async def _parts(self) -> AsyncGenerator[TextChoice, None]:
        """The replies' parts, an echoed prompt first; a token that shows nothing yet makes none."""
        transcripts = [Transcript(self._front.service.tokenizer, self._body.stops) for _ in self._job.requests]
        async with Generation(self._front.service, self._front.bridge, self._job.requests, "prompt") as generation:
            async for index, token in progress(generation, self._progress):
                transcript = transcripts[index]
                if self._body.echo and not transcript.tokens:
                    yield self._echo(index)
                step = transcript.push(token)
                if step.stopped:
                    generation.stop(index)
                if step.finish is not None:
                    self._progress.finished(index, step.finish)
                if self._body.limit == 0:
                    yield {"index": index, "text": "", "logprobs": self._none(), "finish_reason": "length"}
                elif step.text or step.logprobs or step.finish is not None:
                    written = self._offsets[index].write(step.logprobs) if self._body.logprobs is not None else None
                    yield {"index": index, "text": step.text, "logprobs": written, "finish_reason": step.finish}

    def _echo(self, index: int) -> TextChoice:
        """The prompt as a part: the text as it was sent, or its tokens' text."""
        names, ids = self._front.names, self._job.requests[index].prompt
        given = self._body.prompt[index // self._body.choices]
        spelled = b"".join(map(names.bytes, ids)).decode("utf-8", "replace")
        text = given if isinstance(given, str) else spelled
        written = None
        if self._body.logprobs is not None:
            # Tokens may spell more than was sent: a beginning-of-text token, a blank before the first word.
            self._offsets[index].offset = len(text) - len(spelled) if spelled.endswith(text) else 0
            written = self._offsets[index].write(self._progress.prompts[index].logprobs, ids)
            self._offsets[index].offset = len(text)
        return {"index": index, "text": text, "logprobs": written, "finish_reason": None}

    def _none(self) -> TextLogprobs | None:
        return None if self._body.logprobs is None else TextLogprobWriter(self._front.names).write(())

    def _frame(self) -> TextCompletion:
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._front.service.model_id,
            "system_fingerprint": self._fingerprint,
            "choices": [],
        }

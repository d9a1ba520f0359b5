"""Short forms of what tests ask by the official client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from api.fake_service import FakeService
from api.live import Live

MODEL = FakeService.model_id


def ask(client: openai.OpenAI, content: str = "hi", **fields: Any) -> ChatCompletion:
    """A whole reply to one user message, or to `messages`."""
    create: Any = client.chat.completions.create
    reply = create(**{"model": MODEL, "messages": [{"role": "user", "content": content}], **fields})
    assert isinstance(reply, ChatCompletion)
    return reply


def stream(client: openai.OpenAI, content: str = "hi", **fields: Any) -> openai.Stream[ChatCompletionChunk]:
    """The same as a stream."""
    create: Any = client.chat.completions.create
    messages = [{"role": "user", "content": content}]
    events: openai.Stream[ChatCompletionChunk] = create(
        **{"model": MODEL, "messages": messages, "stream": True, **fields}
    )
    return events


def text_of(chunks: Iterable[ChatCompletionChunk], index: int = 0) -> str:
    """The text of one choice of a stream."""
    return "".join(c.delta.content or "" for chunk in chunks for c in chunk.choices if c.index == index)


def says(live: Live, text: str) -> None:
    """Have every reply be `text`."""
    live.service.reply = lambda _: live.service.tokenizer.ids(text)

"""One reply as it grows: token events in, text that may be shown out. Sans-IO.

Text and tokens stay together: a token is released with the last of its text, so that a log-probability never arrives
before its text and none arrives for text that a stop string took away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ropeway.api.replies import FinishReason
from ropeway.serving.sequence import Finish
from ropeway.serving.service import TokenEvent, Tokenizer, TokenLogprob
from ropeway.serving.text import StopMatcher, StreamDecoder


@dataclass(frozen=True, slots=True)
class Step:
    """What an event made certain. `stopped`: a stop string was met, and the caller should end the sequence."""

    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: FinishReason | None = None
    stopped: bool = False


@dataclass(slots=True)
class _Held:
    """A token whose text is not all out yet: characters start..end of the reply."""

    start: int
    end: int
    logprob: TokenLogprob | None


class Transcript:
    """The text of one reply. `shown` are control tokens whose text counts (markers of tool calls), with their bytes."""

    def __init__(
        self, tokenizer: Tokenizer, stops: Sequence[str] = (), shown: Mapping[int, bytes] | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._shown = shown or {}
        self._decoder = StreamDecoder()
        self._stops = StopMatcher(stops)
        self._decoded = 0
        self._released = 0
        self._held: deque[_Held] = deque()
        self.tokens = 0
        """Tokens made so far, end tokens included."""

    def push(self, event: TokenEvent) -> Step:
        """Take the next token. After a step with a finish it must not be called again."""
        self.tokens += 1
        ended_by_token = event.finish is Finish.STOP
        text = "" if ended_by_token else self._decoder.push(self._piece(event.token))
        if event.finish is not None:
            text += self._decoder.flush()
        if not ended_by_token:  # an end token gives no text, and its log-probability is not the reply's
            self._held.append(_Held(self._decoded, self._decoded + len(text), event.logprob))
        self._decoded += len(text)
        matched = self._stops.push(text) if text else None
        if matched is not None and matched.stop:
            logprobs = self._release(len(matched.text), cut=True)
            return Step(matched.text, logprobs, "stop", stopped=event.finish is None)
        out = matched.text if matched is not None else ""
        if event.finish is None:
            return Step(out, self._release(len(out)))
        out += self._stops.flush()
        return Step(out, self._release(len(out)), "stop" if ended_by_token else "length")

    def _piece(self, token: int) -> bytes:
        return self._shown.get(token) or self._tokenizer.piece(token)

    def _release(self, characters: int, *, cut: bool = False) -> tuple[TokenLogprob, ...]:
        """The tokens whose text is out now; at a stop those that gave any of it."""
        self._released += characters
        out: list[TokenLogprob] = []
        while self._held and (self._held[0].start < self._released if cut else self._held[0].end <= self._released):
            held = self._held.popleft()
            if held.logprob is not None:
                out.append(held.logprob)
        return tuple(out)


@dataclass(slots=True)
class TokenNames:
    """Tokens as text and as bytes, for log-probabilities: control tokens by name, broken characters as U+FFFD."""

    tokenizer: Tokenizer
    _known: dict[int, bytes] = field(default_factory=dict)

    def bytes(self, token: int) -> bytes:
        """The bytes of a token, of a control token's name."""
        if token not in self._known:
            self._known[token] = self.tokenizer.piece(token, special=True)
        return self._known[token]

    def text(self, token: int) -> str:
        """The same as text."""
        return self.bytes(token).decode("utf-8", "replace")

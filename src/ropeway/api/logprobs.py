"""Log-probabilities in OpenAI's two forms. A probability of zero is -9999.0, since JSON has no infinity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ropeway.api.replies import ChatLogprob, ChatLogprobs, TextLogprobs
from ropeway.api.transcript import TokenNames
from ropeway.serving.service import TokenLogprob

LOWEST: Final = -9999.0


def chat_logprobs(names: TokenNames, tokens: Iterable[TokenLogprob]) -> ChatLogprobs:
    """The newer form, of some tokens."""
    content: list[ChatLogprob] = [
        {
            "token": names.text(item.token),
            "logprob": finite(item.logprob),
            "bytes": list(names.bytes(item.token)),
            "top_logprobs": [
                {"token": names.text(token), "logprob": finite(logprob), "bytes": list(names.bytes(token))}
                for token, logprob in item.top
            ],
        }
        for item in tokens
    ]
    return {"content": content, "refusal": None}


@dataclass(slots=True)
class TextLogprobWriter:
    """The older form, in pieces: keeps the offset from one piece of a text to the next."""

    names: TokenNames
    offset: int = 0

    def write(self, tokens: Sequence[TokenLogprob | None], ids: Sequence[int] = ()) -> TextLogprobs:
        """The form of some tokens. None (a prompt's first) has no probability; `ids` then says which token it is."""
        out: TextLogprobs = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for at, item in enumerate(tokens):
            text = self.names.text(ids[at] if item is None else item.token)
            out["tokens"].append(text)
            out["token_logprobs"].append(None if item is None else finite(item.logprob))
            out["top_logprobs"].append(None if item is None else self._top(item))
            out["text_offset"].append(max(0, self.offset))
            self.offset += len(text)
        return out

    def _top(self, item: TokenLogprob) -> dict[str, float]:
        """By text, as the form has it; of tokens that read the same the likeliest counts."""
        top: dict[str, float] = {}
        for token, logprob in item.top:
            top.setdefault(self.names.text(token), finite(logprob))
        return top


def finite(logprob: float) -> float:
    """The probability as JSON can say it."""
    return max(LOWEST, logprob)

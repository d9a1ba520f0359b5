"""From bytes of tokens to text: characters never split, stop strings never shown.

Knows nothing of tokens or of models. Templates are in template.py and re-exported here.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass

from ropeway.serving.template import ChatTemplate, TemplateError

__all__ = ["ChatTemplate", "Matched", "StopMatcher", "StreamDecoder", "TemplateError"]


class StreamDecoder:
    """UTF-8 in any pieces to text, a character as soon as its last byte is there.

    What is not UTF-8 becomes U+FFFD, one for each longest piece that could have begun a character (the Unicode
    Standard, chapter 3, table 3-8), so that the text is what decoding all the bytes at once would give.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, piece: bytes) -> str:
        """The text that `piece` completes."""
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed, else nothing."""
        return self._decoder.decode(b"", final=True)


@dataclass(frozen=True, slots=True)
class Matched:
    """Text that may be shown, and the stop string that ended it (empty while there is none)."""

    text: str
    stop: str = ""


class StopMatcher:
    """Holds text back while it may still become a stop string; ends at the first one that is complete.

    The result does not depend on how the text is cut into pieces: the stop string that is complete first counts, the
    longest where several end at the same character, and the text ends where it begins. Raises ValueError for an empty
    stop string.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stops)
        if not all(self._stops):
            raise ValueError("stop: an empty string stops nothing")
        self._held = ""
        self._stopped = False

    @property
    def held(self) -> str:
        """The text that is held back: the longest end of it that begins a stop string."""
        return self._held

    def push(self, piece: str) -> Matched:
        """Take the next piece of text. After a stop it must not be called again."""
        assert not self._stopped, "text after the stop"
        text = self._held + piece
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            _, start, stop = min(found)
            self._held, self._stopped = "", True
            return Matched(text[:start], stop)
        keep = min((self._begun(text, stop) for stop in self._stops), default=len(text))
        self._held = text[keep:]
        return Matched(text[:keep])

    def flush(self) -> str:
        """What was held back, at the end of a reply that no stop string ended."""
        text, self._held = self._held, ""
        return text

    @staticmethod
    def _begun(text: str, stop: str) -> int:
        """Where the longest end of `text` that begins `stop` starts; the length of `text` where none does."""
        at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
        while at >= 0 and not stop.startswith(text[at:]):
            at = text.find(stop[0], at + 1)
        return len(text) if at < 0 else at

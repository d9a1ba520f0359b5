"""Text in and out of a loop: the checkpoint's tokenizer and chat template, and one reply at a time for the commands."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Items
from pathlib import Path

from ropeway.engines.base import Logits
from ropeway.serving import sampler
from ropeway.serving.loop import Loop
from ropeway.serving.rounds import Wanted
from ropeway.serving.sequence import Sequence
from ropeway.serving.template import ChatTemplate
from ropeway.serving.vocabulary import open_vocabulary, read_template


class Speech:
    """A checkpoint's tokenizer and chat template."""

    def __init__(self, path: Path) -> None:
        self.vocabulary = open_vocabulary(path)
        self.name = path.name if path.is_dir() else path.stem
        self.template_text = read_template(path)

    def prompt(self, user: str, *, raw: bool = False) -> list[int]:
        """Token ids of one user's turn through the chat template, or of the bare text (`raw`, or without a template).

        Raises TemplateError, EngineError.
        """
        if raw or not self.template_text:
            return self.vocabulary.tokenize(user, add_special=True, parse_special=False)
        template = ChatTemplate(self.template_text, self.vocabulary.bos, self.vocabulary.eos)
        text = template.render([{"role": "user", "content": user}], add_generation_prompt=True)
        return self.vocabulary.tokenize(text, add_special=False, parse_special=True)

    def close(self) -> None:
        """Free the vocabulary."""
        self.vocabulary.close()


class PlainChooser:
    """Chooses by each sequence's own parameters."""

    def choose(self, wanted: Wanted, logits: Logits) -> Items[int]:
        """The drafts that the model chooses itself, and the token after them."""
        sequence = wanted.sequence
        return sampler.verify(logits, wanted.drafts, sequence.params, len(sequence.produced), sequence.stop_ids)

    def prompt_rows(self, wanted: Wanted, offset: int, logits: Logits) -> None:
        """Nobody asked for the prompt's log-probabilities."""


def generate(loop: Loop, sequence: Sequence) -> Iterator[int]:
    """Run one sequence to its end, token by token. Raises RingLost, EngineError."""
    loop.scheduler.add(sequence)
    while not loop.scheduler.idle:
        for committed in loop.step():
            yield from committed.tokens

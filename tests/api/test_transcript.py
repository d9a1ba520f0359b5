"""Tokens to text with their log-probabilities, against what the whole text would give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from api.byte_tokenizer import TURN_END, ByteTokenizer
from ropeway.api.transcript import Step, Transcript
from ropeway.serving.sequence import Finish
from ropeway.serving.service import TokenEvent, TokenLogprob

TOKENIZER = ByteTokenizer()


def run(tokens: list[int], stops: list[str], ended: bool) -> list[Step]:
    """All steps: the last token is the end token, or the one that length cut."""
    transcript = Transcript(TOKENIZER, stops)
    events: list[tuple[int, Finish | None]] = [(token, None) for token in tokens]
    if ended:
        events.append((TURN_END, Finish.STOP))
    else:
        events[-1] = (events[-1][0], Finish.LENGTH)
    steps: list[Step] = []
    for token, finish in events:
        steps.append(transcript.push(TokenEvent(token, TokenLogprob(token, -1.0), finish)))
        if steps[-1].finish is not None:
            break
    assert transcript.tokens == len(steps)
    assert all(step.finish is None for step in steps[:-1])
    return steps


def bytes_of(steps: list[Step]) -> bytes:
    return b"".join(TOKENIZER.piece(item.token) for step in steps for item in step.logprobs)


@given(
    st.lists(st.sampled_from([*b"ab", *"é漢".encode(), *range(260, 268)]), min_size=1, max_size=20),
    st.lists(st.sampled_from(["ab", "STOP", "TO", "é", "b ", "漢a", " the hello", "bb"]), max_size=3),
    st.booleans(),
)
def test_text_and_tokens(tokens: list[int], stops: list[str], ended: bool) -> None:
    steps = run(tokens, stops, ended)
    shown = "".join(step.text for step in steps)
    whole = b"".join(map(TOKENIZER.piece, tokens)).decode("utf-8", "replace")
    first = min((at for stop in stops if (at := whole.find(stop)) >= 0), default=None)
    if first is None:
        assert shown == whole
        assert steps[-1].finish == ("stop" if ended else "length")
        assert bytes_of(steps) == b"".join(map(TOKENIZER.piece, tokens))
    else:
        assert whole.startswith(shown)
        assert not any(stop in shown for stop in stops)
        assert steps[-1].finish == "stop"
    # Tokens never come before their text.
    text, given_tokens = "", b""
    for step in steps:
        text += step.text
        given_tokens += bytes_of([step])
        if step.finish is None:
            assert len(given_tokens.decode("utf-8", "ignore")) <= len(text)


def test_a_stop_in_the_last_token_is_a_stop() -> None:
    steps = run(TOKENIZER.ids("abSTOP"), ["STOP"], ended=False)
    assert ("".join(step.text for step in steps), steps[-1].finish, steps[-1].stopped) == ("ab", "stop", False)


def test_a_marker_that_is_a_control_token_counts_as_text() -> None:
    transcript = Transcript(TOKENIZER, (), {259: b"<|python_tag|>"})
    assert transcript.push(TokenEvent(259)).text == "<|python_tag|>"
    assert transcript.push(TokenEvent(257)).text == ""

"""The rules of docs/worker.md that can be tried from outside, one function each; `Broken` says which was not kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ropeway.engines.conformance.subject import OWN_OPS, PLACES, Broken, Subject
from ropeway.engines.worker.messages import payload
from ropeway.engines.worker.setting import Role

LONG_ROWS: Final = 512


def _ready_line(s: Subject) -> None:
    if s.ready.pid != s.process.pid:
        raise Broken(f"pid is {s.ready.pid}, the process is {s.process.pid}")
    if s.ready.stage != int(PLACES[s.role][0]):
        raise Broken(f"stage is {s.ready.stage}, it was told {PLACES[s.role][0]}")


def _plain_split(s: Subject) -> None:
    stage, stages = map(int, PLACES[s.role])
    each = s.ready.layers // stages
    expected = (stage * each, s.ready.layers if stage == stages - 1 else (stage + 1) * each)
    if (s.ready.first, s.ready.end) != expected:
        raise Broken(f"layer_range is {s.ready.first}..{s.ready.end}, expected {expected[0]}..{expected[1]}")


def _runs(s: Subject) -> None:
    s.story(1)


def _same_again(s: Subject) -> None:
    if s.story(2) != s.story(2):
        raise Broken("the same rows from position 0 on gave something else")


def _differs(s: Subject) -> None:
    seeds = range(10, 26)
    if len({s.run(5, 0, seed) for seed in seeds}) == 1:
        raise Broken(f"{len(seeds)} different prompts gave the same")


def _other_roles(s: Subject) -> None:
    for role, ops in OWN_OPS.items():
        if role is not s.role:
            for op in ops:
                fields = {"position": 0, "tokens": [1], "token_id": 1, "prompt": "a", **s.hidden(1, 0)}
                s.refuses(op, fields)
    s.story(3)


def _unknown(s: Subject) -> None:
    for op in ("frobnicate", "", None, 7):
        s.refuses(op, {"position": 0})
    for line in ("this is no JSON {{{", "42", "[]", '{"request_id": 5}', "null"):
        if "error" not in s.say(line):
            raise Broken(f"{line!r} was not refused")
    s.story(4)


def _bad_fields(s: Subject) -> None:
    if s.role is Role.FIRST:
        good: dict[str, object] = {"tokens": [1, 2], "position": 0}
        op = "embed_and_forward"
        bad: list[dict[str, object]] = [
            {"tokens": []}, {"tokens": "12"}, {"tokens": [True]}, {"tokens": [-1]}, {"tokens": [1.0]},
            {"tokens": [s.ready.vocabulary]}, {"tokens": None},
        ]  # fmt: skip
    else:
        good = {**s.hidden(2, 0), "position": 0}
        op = "forward_range" if s.role is Role.MIDDLE else "forward_and_sample"
        three = s.hidden(3, 0)["hidden_b64"]
        bad = [
            {"hidden_b64": "!!!!"}, {"hidden_b64": 5}, {"hidden_b64": three}, {"seq_len": 3}, {"seq_len": True},
            {"seq_len": 0}, {"seq_len": "2"}, {"hidden_b64": None},
        ]  # fmt: skip
    bad += [{"position": True}, {"position": -1}, {"position": "0"}, {"position": None}]
    for wrong in bad:
        s.refuses(op, {name: value for name, value in {**good, **wrong}.items() if value is not None})
    s.story(5)


def _long(s: Subject) -> None:
    told = s.ready.extension
    rows = min(LONG_ROWS, told.chunk or LONG_ROWS, told.context or LONG_ROWS)
    s.run(rows, 0, 6)


def _text(s: Subject) -> None:
    if s.role is Role.FIRST:
        tokens = s.ask("tokenize", prompt="Say hello").get("tokens")
        if not isinstance(tokens, list) or not tokens or not all(type(token) is int for token in tokens):
            raise Broken(f"tokenize gave {tokens!r}")
    elif s.role is Role.LAST:
        text = s.ask("detokenize", tokens=[1, 2, 3]).get("text")
        if not isinstance(text, str):
            raise Broken(f"detokenize gave {text!r}")


def _slots(s: Subject) -> None:
    alone = s.story(7, slot=1)
    mixed = s.run(5, 0, 7, slot=1)
    s.run(5, 0, 40, slot=0)
    for at in range(3):
        mixed += s.run(1, 5 + at, 7 + at, slot=1)
        s.run(1, 5 + at, 50 + at, slot=0)
    if mixed != alone:
        raise Broken("a stream beside another gave something else than alone")
    s.refuses(_op(s), {**_one_row(s), "slot": s.ready.extension.streams, "position": 0})


def _keep(s: Subject) -> None:
    whole = s.story(8)
    s.run(1, 8, 99)
    s.ask("keep", slot=0, length=5)
    again = b"".join(s.run(1, 5 + at, 8 + at) for at in range(3))
    if not whole.endswith(again):
        raise Broken("rows behind a rollback differ from those behind the prompt")
    s.refuses("keep", {"slot": 0, "length": 10_000})
    s.refuses("keep", {"slot": 0, "length": True})


def _save(s: Subject) -> None:
    whole = s.story(9)
    s.run(5, 0, 9)
    state = s.ask("save", slot=0).get("state_b64")
    s.run(5, 0, 60)
    s.ask("restore", slot=0, state_b64=state)
    again = b"".join(s.run(1, 5 + at, 9 + at) for at in range(3))
    if not whole.endswith(again):
        raise Broken("rows behind a restored state differ from those behind the prompt")
    s.refuses("restore", {"slot": 0, "state_b64": "!!!"})


def _head(s: Subject) -> None:
    size = s.ready.vocabulary * 4
    two = payload(s.ask("head", **s.hidden(2, 12)), "logits_b64", 2 * size)
    if not np.isfinite(np.frombuffer(two, np.float32)).all():
        raise Broken("a logit is not finite")
    if s.role is Role.LAST:
        reply = s.ask("forward_and_sample", position=0, logits=True, **s.hidden(3, 13))
        row = np.frombuffer(payload(reply, "logits_b64", size), np.float32)
        if reply.get("token_id") != int(row.argmax()):
            raise Broken(f"token_id is {reply.get('token_id')!r}, the lowest likeliest is {int(row.argmax())}")


def _op(s: Subject) -> str:
    return OWN_OPS[s.role][0]


def _one_row(s: Subject) -> dict[str, object]:
    return {"tokens": [1]} if s.role is Role.FIRST else s.hidden(1, 0)


Rule = tuple[str, Callable[[Subject], None]]
PLAIN: Final[tuple[Rule, ...]] = (
    ("the ready line has its pid, stage and the model's shape", _ready_line),
    ("the layers are split evenly, the last takes the rest", _plain_split),
    ("a prompt and single rows behind it", _runs),
    ("position 0 begins anew: the same again", _same_again),
    ("other rows give something else", _differs),
    ("operations of other roles are refused", _other_roles),
    ("unknown operations and lines that are no request are refused", _unknown),
    ("bad fields are refused", _bad_fields),
    ("a long line", _long),
    ("text to tokens, tokens to text", _text),
)
EXTENDED: Final[tuple[tuple[str, str, Callable[[Subject], None]], ...]] = (
    ("streams", "streams do not touch one another", _slots),
    ("keep", "a rollback", _keep),
    ("save", "a saved and restored state", _save),
    ("head", "the head's logits", _head),
)

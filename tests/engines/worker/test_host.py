"""The worker's side of the pipe, without one: what its environment says, and answers to good and bad requests."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.engines.worker.host import Host, serve
from ropeway.engines.worker.messages import encoded
from ropeway.engines.worker.setting import Role, read_setting
from ropeway.engines.worker.stub import StubEngine, StubText
from ropeway.types import RowDtype

PLACE = {"STAGE": "1", "NUM_STAGES": "3"}


def make(**environment: str) -> Host:
    setting = read_setting({**PLACE, "CONTEXT": "32", "CHUNK": "8", "STREAMS": "2", **environment})
    engine = StubEngine(setting.config(8))
    return Host(engine, setting, vocabulary=32, layers=8, span=setting.layer_range(8), text=StubText())


def ask(host: Host, op: str, **fields: object) -> Any:
    return host.answer(json.dumps({"op": op, "request_id": 7, **fields}).encode())


ROW = encoded(bytes(32))


def test_the_layers_are_split_evenly_and_the_last_takes_the_rest() -> None:
    ranges = [read_setting({"STAGE": str(s), "NUM_STAGES": "3"}).layer_range(17) for s in range(3)]
    assert ranges == [(0, 5), (5, 10), (10, 17)]
    told = read_setting({**PLACE, "LAYER_FIRST": "2", "LAYER_END": "9"})
    assert told.layer_range(17) == (2, 9)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"STAGE": "3"}, "STAGE: '3' is not a number from 0 to 2"),
        ({"STAGE": "-1"}, "STAGE"),
        ({"STAGE": "٠"}, "STAGE"),
        ({"STAGE": ""}, "STAGE"),
        ({"NUM_STAGES": "0"}, "NUM_STAGES"),
        ({"ROLE": "boss"}, "ROLE: 'boss'"),
        ({"ROW_DTYPE": "f64"}, "ROW_DTYPE: 'f64'"),
        ({"CONTEXT": "0"}, "CONTEXT"),
        ({"LAYER_END": "x"}, "LAYER_END"),
    ],
)
def test_a_bad_environment_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_setting({**PLACE, **environment})


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"LAYER_FIRST": "5", "LAYER_END": "5"}, r"LAYER_FIRST: 5\.\.5 of 8"),
        ({"LAYER_END": "9"}, r"LAYER_FIRST: 2\.\.9 of 8"),
        ({"ROLE": "last", "LAYER_END": "7"}, r"LAYER_END: 7 of 8 layers for the last"),
        ({"NUM_STAGES": "9"}, r"NUM_STAGES: 9 for 8 layers"),
    ],
)
def test_layers_that_make_no_sense_are_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_setting({**PLACE, **environment}).layer_range(8)


def test_roles_follow_the_stage_unless_told() -> None:
    roles = [read_setting({"STAGE": str(s), "NUM_STAGES": "3"}).role for s in range(3)]
    assert roles == [Role.FIRST, Role.MIDDLE, Role.LAST]
    assert read_setting({"STAGE": "2", "NUM_STAGES": "3", "ROLE": "middle"}).role is Role.MIDDLE
    assert read_setting(PLACE).row_dtype is RowDtype.BF16


def test_it_goes_on_serving_after_every_error() -> None:
    lines = [b"{", b"[]", b'{"op":"forward_range"}', b'{"request_id":true,"op":"forward_range"}', b"",
             json.dumps({"op": "forward_range", "request_id": 1, "position": 0, "seq_len": 1, "hidden_b64": ROW}).encode()]  # fmt: skip  # noqa: E501
    replies = io.BytesIO()
    serve(make(), io.BytesIO(b"\n".join(lines) + b"\n"), replies)
    ready, *answers = map(json.loads, replies.getvalue().splitlines())
    assert ready["status"] == "ready"
    assert ready["layer_range"] == [2, 4]
    assert ready["bridge"]["can"] == ["keep", "save"]
    assert [("error" in answer, answer["request_id"]) for answer in answers] == [(True, None)] * 4 + [(False, 1)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"position": 1}, "position: 1, the slot holds 0"),
        ({"position": True}, "position: True"),
        ({"position": -1}, "position: -1"),
        ({"position": 30, "seq_len": 3, "hidden_b64": encoded(bytes(96))}, "position: ends at 33, at most 32"),
        ({"seq_len": 2}, "hidden_b64: 32 bytes for 2 rows, expected 64"),
        ({"seq_len": 0, "hidden_b64": ""}, "hidden_b64: 0 bytes for 0 rows"),
        ({"seq_len": 9, "hidden_b64": encoded(bytes(288))}, "seq_len: 9 rows, expected 1 to 8"),
        ({"hidden_b64": "%%%%"}, "not base64"),
        ({"hidden_b64": None}, "expected base64"),
        ({"slot": 2}, "slot: 2"),
    ],
)
def test_bad_fields_change_nothing(fields: dict[str, object], message: str) -> None:
    good = {"position": 0, "seq_len": 1, "hidden_b64": ROW}
    expected = ask(make(), "forward_range", **good)
    host = make()
    reply = ask(host, "forward_range", **good | fields)
    assert reply["request_id"] == 7
    assert message in reply["error"]
    assert ask(host, "forward_range", **good) == expected


def test_a_sampled_token_is_the_lowest_of_the_likeliest() -> None:
    host = make(STAGE="2")
    reply = ask(host, "forward_and_sample", position=0, seq_len=1, hidden_b64=ROW, logits=True)
    row = np.frombuffer(base64.b64decode(reply["logits_b64"]), np.float32)
    assert reply["token_id"] == int(np.flatnonzero(row == row.max())[0])


def test_text() -> None:
    tokens = ask(make(STAGE="0"), "tokenize", prompt="say hello")["tokens"]
    assert len(tokens) == 2
    assert ask(make(STAGE="2"), "detokenize", tokens=tokens)["text"].count("w") == 2
    assert "error" in ask(make(STAGE="0"), "tokenize", prompt=5)


@given(st.binary(max_size=200))
def test_no_bytes_end_it(line: bytes) -> None:
    reply = make().answer(line)
    assert isinstance(reply["error"], str)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from(["forward_range", "keep", "save", "restore", "head", "decode_step"]),
    st.dictionaries(st.sampled_from(["position", "seq_len", "hidden_b64", "slot", "length", "state_b64"]), JSON),
)
def test_no_request_ends_it(op: str, fields: dict[str, object]) -> None:
    reply = ask(make(), op, **fields)
    assert reply["request_id"] == 7
    assert "error" in reply

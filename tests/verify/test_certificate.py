"""A certificate: what is signed comes back, and any changed byte of it does not."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropeway.verify.certificate import (
    CertificateError,
    Json,
    canonical,
    identity,
    opened,
    read_certificate,
    sign,
    write_certificate,
)

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
BODY: dict[str, Json] = {
    "model": {"checkpoint": "ab" * 32, "layers": 30},
    "placement": {
        "stages": [{"first": 0, "end": 15, "engine": "llamacpp"}, {"first": 15, "end": 30, "engine": "torch"}]
    },
    "figures": {"kl_mean": 1.25e-05, "steps": 47, "first_parting": None, "same": True},
}
TEXT = json.dumps(sign(BODY, KEY)).encode()


def test_what_was_signed_comes_back(tmp_path: Path) -> None:
    name = write_certificate(tmp_path / "c.json", BODY, KEY)
    assert read_certificate(tmp_path / "c.json", KEY) == BODY
    assert name == identity(BODY) == json.loads((tmp_path / "c.json").read_text())["id"]
    assert KEY.hex() not in (tmp_path / "c.json").read_text()


def test_another_key_is_named_as_such() -> None:
    with pytest.raises(CertificateError, match="signed with another key"):
        opened(TEXT, OTHER)


@given(st.integers(0, len(TEXT) - 1), st.integers(1, 255))
def test_any_changed_byte_is_found(at: int, change: int) -> None:
    changed = bytearray(TEXT)
    changed[at] ^= change
    with pytest.raises(CertificateError):
        opened(bytes(changed), KEY)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["body"]["figures"].update(kl_mean=1.25e-06),
        lambda c: c["body"]["figures"].update(steps=48),
        lambda c: c["body"]["model"].update(checkpoint="ab" * 31 + "ac"),
        lambda c: c["body"]["placement"]["stages"].reverse(),
        lambda c: c["body"]["placement"]["stages"][1].update(engine="mlx"),
        lambda c: c["body"].update(more=1),
        lambda c: c["body"].pop("figures"),
        lambda c: c["signature"].update(value="0" * 64),
        lambda c: c["signature"].update(algorithm="none"),
        lambda c: c.update(id="0" * 16),
        lambda c: c.update(ropeway_certificate=2),
        lambda c: c.update(extra=1),
    ],
)
def test_a_changed_value_is_found(change: object) -> None:
    certificate = json.loads(TEXT)
    assert callable(change)
    change(certificate)
    with pytest.raises(CertificateError):
        opened(json.dumps(certificate).encode(), KEY)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000, b'{"body":{},"body":{}}', b" " * (2 << 20)]
)
def test_what_is_no_certificate_is_refused(text: bytes) -> None:
    with pytest.raises(CertificateError):
        opened(text, KEY)


def test_numbers_without_end_are_written_as_words() -> None:
    assert canonical({"a": math.inf, "b": [math.nan]}) == b'{"a":"inf","b":["nan"]}'
    assert opened(json.dumps(sign({"a": math.inf}, KEY)).encode(), KEY) == {"a": "inf"}


def test_a_file_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="cannot be read"):
        read_certificate(tmp_path / "none", KEY)
    with pytest.raises(CertificateError, match="cannot be written"):
        write_certificate(tmp_path / "no" / "c", BODY, KEY)

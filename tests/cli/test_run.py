"""`ropeway run`: what a reply that is cut off leaves behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ropeway.cli.app import app
from ropeway.transport import RingLost
from ropeway.wire import ErrorCode
from tiny_gguf import TinyModel, write_tiny

LOST = RingLost(ErrorCode.SILENCE, 1, "rank 1 (far:1) has said nothing for 6 s")


STOP = KeyboardInterrupt("stop")


@pytest.mark.parametrize(("error", "status", "said"), [(LOST, 70, str(LOST)), (STOP, 130, "stop")])
def test_json_has_what_had_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, said: str
) -> None:
    def cut_off(*_: object) -> Iterator[int]:
        yield from (75, 76, 77)
        raise error

    monkeypatch.setattr("ropeway.cli.reply.generate", cut_off)
    model = write_tiny(tmp_path / "tiny.gguf", TinyModel(layers=2))
    result = CliRunner().invoke(app, ["run", str(model), "hello", "--stages", "1", "--json"])
    assert result.exit_code == status
    value = json.loads(result.stdout)
    assert value["token_ids"] == [75, 76, 77]
    assert len(value["text"]) == 3
    assert value["finish"] == ""
    assert value["tokens_per_s"] > 0
    assert value["error"] == said
    assert said in result.stderr

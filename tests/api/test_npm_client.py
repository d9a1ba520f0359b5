"""The npm `openai` client against a live server. Runs where node finds the package (NODE_PATH, for one)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from api.fake_service import FakeService, noise
from api.live import Live
from ropeway.serving.service import GenerateRequest

NODE = shutil.which("node")


def _has_client() -> bool:
    if NODE is None:
        return False
    found = subprocess.run([NODE, "-e", "require.resolve('openai')"], capture_output=True, check=False, timeout=30)
    return found.returncode == 0


pytestmark = pytest.mark.skipif(not _has_client(), reason="node or the npm package openai is not installed")


@pytest.fixture
def said(live: Live) -> Any:
    """What the client printed."""

    def reply(request: GenerateRequest) -> Any:
        return [] if request.constraint is not None else noise(request)

    live.service.reply = reply
    assert NODE is not None
    script = Path(__file__).with_name("openai_client.cjs")
    run = subprocess.run([NODE, str(script), live.url], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_the_npm_client(said: Any) -> None:
    chat = said["chat"]["choices"][0]
    assert said["models"] == [FakeService.model_id]
    assert (chat["message"]["role"], chat["finish_reason"]) == ("assistant", "stop")
    assert "".join(item["token"] for item in chat["logprobs"]["content"]) == chat["message"]["content"]
    assert said["again"]["choices"][0]["message"] == chat["message"]
    assert len({choice["message"]["content"] for choice in said["several"]["choices"]}) == 3
    assert said["streamed"]["text"] == chat["message"]["content"]
    assert said["streamed"]["finish"] == ["stop"]
    assert said["streamed"]["usage"] == said["chat"]["usage"]
    assert said["stopped"]["choices"][0]["message"]["content"] == chat["message"]["content"][:4]
    assert said["completion"]["choices"][0]["text"].startswith("ab")
    assert said["completion"]["choices"][0]["logprobs"]["text_offset"] == list(range(6))
    assert isinstance(json.loads(said["schema"]["choices"][0]["message"]["content"])["age"], int)
    call = said["called"]["choices"][0]["message"]["tool_calls"][0]["function"]
    assert (call["name"], json.loads(call["arguments"])["zone"] in ("UTC", "CET")) == ("now", True)
    assert said["calling"] == {"text": "", "calls": [call], "finish": ["tool_calls"], "usage": None}
    assert (said["unknown"]["kind"], said["unknown"]["code"]) == ("NotFoundError", "model_not_found")
    assert (said["wrong"]["kind"], said["wrong"]["param"]) == ("BadRequestError", "temperature")

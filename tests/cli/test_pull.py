"""`ropeway pull`: what it fetches, what it says, and what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from checkpoints.fetch.web_server import Answer, Asked, Site, serving
from ropeway.checkpoints.slicing import slice_stage
from ropeway.cli.app import app
from tiny_gguf import TinyModel, write_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("m") / "tiny.gguf", TinyModel(layers=6, width=256, feed_forward=1024))


@pytest.fixture
def site(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("ROPEWAY_CACHE", str(tmp_path / "cache"))
    with serving(Site({"/tiny.gguf": model.read_bytes()})) as site:
        yield site


def pull(*args: str, expect: int = 0) -> tuple[list[str], str]:
    """The lines on standard output, and standard error."""
    result = CliRunner().invoke(app, ["pull", *args])
    assert result.exit_code == expect, result.output
    return result.stdout.splitlines(), result.stderr


def test_layers_from_a_url(site: Site, model: Path, tmp_path: Path) -> None:
    lines, said = pull(f"{site.url}/tiny.gguf", "--layers", "2:4")
    (path,) = lines
    assert slice_stage(path, 2, 4, False).read_bytes() == slice_stage(model, 2, 4, False, tmp_path / "cut").read_bytes()
    assert "MB came over the network" in said
    assert "checked: every file's size and header" in said
    assert "no digest of the weights" in said


def test_rank_0_from_a_path(site: Site, model: Path, tmp_path: Path) -> None:
    value = json.loads(pull(str(model), "--layers", "0:2", "--head", "--json")[0][0])
    names = [Path(file).name for file in value["files"]]
    assert [name.partition("-")[2] for name in names if "-" in name] == ["stage-0-2.gguf", "head-6-6.gguf"]
    assert value["network_bytes"] == 0
    assert Path(value["path"]).parent.name == "sampled-embed"


def test_a_whole_model(site: Site, model: Path) -> None:
    assert Path(pull(f"{site.url}/tiny.gguf")[0][0]).read_bytes() == model.read_bytes()
    assert pull(str(model))[0] == [str(model)]


def test_a_copy_for_another_engine(site: Site, model: Path) -> None:
    (path,) = pull(f"{site.url}/tiny.gguf", "--layers", "2:4", "--engine", "torch")[0]
    assert Path(path).parent.name == "sampled-2-4"
    assert Path(path).stat().st_size == model.stat().st_size


@pytest.mark.parametrize(
    ("args", "status", "match"),
    [
        (["URL", "--layers", "2-4"], 2, "layers: '2-4' is not a range such as 0:15"),
        (["URL", "--layers", "4:9"], 2, "layers: 4:9 is not within the model's 6 layers"),
        (["URL", "--head"], 2, "layers: --head and --engine are for a part of a model"),
        (["URL", "--layers", "0:1", "--cache-limit", "much"], 2, "cache-limit: 'much' is not a size such as 40GB"),
        (["URL", "--layers", "0:3", "--cache-limit", "100kB"], 1, "the cache may take 0.1 MB"),
        (["URL.gz"], 2, "names no .gguf"),
        (["hf:nobody"], 2, "is not hf:ORG/NAME"),
        (["nothing.gguf", "--layers", "0:1"], 1, "nothing.gguf: does not exist"),
    ],
)
def test_what_is_refused(site: Site, args: list[str], status: int, match: str) -> None:
    args = [arg.replace("URL", f"{site.url}/tiny.gguf") for arg in args]
    lines, said = pull(*args, expect=status)
    assert lines == []
    assert match in " ".join(said.split())
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("ROPEWAY_CACHE_LIMIT", "lots", "ROPEWAY_CACHE_LIMIT: 'lots' is not a size such as 40GB"),
        ("ROPEWAY_CACHE", __file__, "set ROPEWAY_CACHE to a place that can be written"),
        ("ROPEWAY_CACHE", "/dev/null/x", "set ROPEWAY_CACHE to a place that can be written"),
    ],
)
def test_environments_that_will_not_do(
    site: Site, monkeypatch: pytest.MonkeyPatch, name: str, value: str, match: str
) -> None:
    monkeypatch.setenv(name, value)
    lines, said = pull(f"{site.url}/tiny.gguf", "--layers", "0:2", expect=1)
    assert lines == []
    assert match in " ".join(said.split())


@pytest.mark.parametrize(("number", "status"), [("SIGKILL", -9), ("SIGINT", 130), ("SIGTERM", 143)])
def test_a_pull_that_is_ended_goes_on_where_it_was(
    site: Site, model: Path, tmp_path: Path, number: str, status: int
) -> None:
    """Not a byte that reached the disk is read again, though a killed process had no time for anything."""
    stop = 1_000_000

    def stall(asked: Asked) -> Answer | None:
        first, last = (int(n) for n in asked.headers["range"].removeprefix("bytes=").split("-"))
        return Answer(stall_after=max(0, stop - first)) if last >= stop else None

    site.faults.append(stall)
    command = [sys.executable, "-m", "ropeway", "pull", f"{site.url}/tiny.gguf"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert site.stalled.wait(60)
        part = next((tmp_path / "cache" / "fetched").glob("*/whole/*.part"))
        while part.stat().st_size < stop:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.Signals[number])
    assert process.returncode == status
    site.faults.clear()
    before = site.sent
    (path,) = pull(f"{site.url}/tiny.gguf")[0]
    assert Path(path).read_bytes() == model.read_bytes()
    assert site.sent - before == model.stat().st_size - stop + 16384


def test_a_list_of_digests(site: Site, model: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["digests", str(model)])
    assert result.exit_code == 0
    (tmp_path / "list.json").write_text(result.stdout)
    args = (f"{site.url}/tiny.gguf", "--layers", "2:4", "--digests", str(tmp_path / "list.json"))
    assert "checked: the SHA-256 of every header and tensor" in pull(*args)[1]
    raw = bytearray(model.read_bytes())
    raw[-3000] ^= 1
    site.files["/tiny.gguf"] = bytes(raw)
    _, said = pull(f"{site.url}/tiny.gguf", "--digests", str(tmp_path / "list.json"), expect=1)
    assert "with a wrong SHA-256" in said
    (tmp_path / "list.json").write_text("{}")
    assert "is not a list of digests" in pull(*args, expect=1)[1]

"""docker/Dockerfile, read and followed as far as that goes without Docker."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from ropeway.launch.provider import Wanted
from ropeway.smoke.health import STALE_S, VARIABLE, Pulse, is_well
from ropeway.smoke.hidden import SECRETS
from smoke.conftest import Runs

ROOT = Path(__file__).parents[2]


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (ROOT / "docker" / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]


def only(name: str) -> str:
    found = [rest for word, rest in instructions() if word == name]
    assert len(found) == 1, f"{name}: {found}"
    return found[0]


def image_environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for rest in [only("ENV")] for pair in shlex.split(rest))


def entry_point() -> list[str]:
    """The image's command, with the function that pyproject.toml names for it instead of the script pip would write."""
    command: list[str] = json.loads(only("ENTRYPOINT"))
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts[command[0]].split(":")
    return [sys.executable, "-c", f"from {module} import {function}\n{function}()", *command[1:]]


def test_its_base_has_cuda_and_offers_are_asked_for_that_much() -> None:
    base = only("FROM")
    found = re.fullmatch(r"nvidia/cuda:(\d+\.\d+)\.\d+-\w+-ubuntu\d+\.\d+", base)
    assert found, base
    assert float(found[1]) == Wanted(2).min_cuda


def test_it_holds_no_key_no_ticket_and_no_stage() -> None:
    baked = {*image_environment(), *(rest.partition("=")[0] for word, rest in instructions() if word == "ARG")}
    assert not baked & {*SECRETS, "STAGE", "NUM_STAGES", "MODEL", "CONTAINER_ID", "RUN_LABEL"}
    assert not [rest for _, rest in instructions() if re.search(r"api.?key|secret|token|password", rest, re.IGNORECASE)]
    sources = [shlex.split(rest)[:-1] for word, rest in instructions() if word == "COPY"]
    assert sources == [["pyproject.toml", "README.md", "LICENSE"], ["src"]]


def test_what_it_copies_and_installs_exists() -> None:
    for word, rest in instructions():
        if word == "COPY":
            assert all((ROOT / source).exists() for source in shlex.split(rest)[:-1])
    arguments = dict(rest.split("=", 1) for word, rest in instructions() if word == "ARG")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(arguments["EXTRAS"].split(",")) <= known.keys()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {"!pyproject.toml", "!README.md", "!LICENSE", "!src"} <= set(ignored)


def test_it_does_not_run_as_root() -> None:
    order = [word for word, _ in instructions()]
    assert only("USER") not in ("root", "0")
    assert order.index("USER") < order.index("ENTRYPOINT")


def test_its_entry_point_without_a_run_says_what_is_missing() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("STAGE", "NUM_STAGES")}
    environment |= {name: value for name, value in image_environment().items() if name != "PATH"}
    done = subprocess.run(entry_point(), env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "pp-gpu-node: NUM_STAGES: it is not set\n")
    done = subprocess.run(
        [*entry_point(), "--what"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2


def test_its_entry_point_runs_a_stage_and_its_health_check_sees_that(runs: Runs, small: str, tmp_path: Path) -> None:
    health = tmp_path / "health"
    # What `docker run` would do with each: the image's ENTRYPOINT and ENV, the order's environment over them.
    runs.moods(command=entry_point(), environment={"THREADS": "1", VARIABLE: str(health)})
    process = runs.start("--model", small, "--max-tokens", "8")
    runs.fake.until(lambda: health.exists() or not process.running)
    check = re.sub(r"^.*CMD ", "", only("HEALTHCHECK"))
    assert json.loads(check) == [*json.loads(only("ENTRYPOINT")), "--health"]
    command = [*entry_point(), "--health"]
    environment = os.environ | {VARIABLE: str(health)}
    assert subprocess.run(command, env=environment, timeout=60, check=False).returncode == 0
    value = runs.result(process, 0)
    assert len(value["token_ids"]) == 8
    os.utime(health, (time.time() - 2 * STALE_S,) * 2)
    assert subprocess.run(command, env=environment, timeout=60, check=False).returncode == 1


def test_a_pulse(tmp_path: Path) -> None:
    variables = {VARIABLE: str(tmp_path / "pulse")}
    assert not is_well(variables)
    Pulse(variables).beat()
    assert is_well(variables)
    assert not is_well({})
    Pulse({}).beat()


@pytest.mark.parametrize("word", ["HEALTHCHECK", "ENTRYPOINT"])
def test_its_commands_need_no_shell(word: str) -> None:
    assert isinstance(json.loads(only(word).rpartition("CMD ")[2]), list)

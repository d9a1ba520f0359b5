"""What `pp-gpu-node` takes from its environment, and what it says of what it does not take."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ropeway.smoke.environment import BadVariable, read_settings
from ropeway.smoke.hidden import for_children

GOOD = {"STAGE": "1", "NUM_STAGES": "3", "SEED_ADDR": "tcp:127.0.0.1:4:5ec2e7", "MODEL": "demo"}


def test_a_stage_of_a_run() -> None:
    settings = read_settings(GOOD | {"ENGINE": "llamacpp", "CONTAINER_ID": "77", "ORPHAN_S": "20"})
    assert (settings.stage, settings.num_stages, settings.model, settings.engine) == (1, 3, "demo", "llamacpp")
    assert (settings.container_id, settings.orphan_s, settings.end_with_stdin) == ("77", 20.0, False)
    assert read_settings(GOOD).orphan_s == 600.0
    assert "5ec2e7" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("STAGE", "", "not set"),
        ("STAGE", "3", "outside 0..2"),
        ("STAGE", "-1", "outside 0..2"),
        ("STAGE", "one", "not a whole number"),
        ("STAGE", "1.0", "not a whole number"),
        ("STAGE", "\u0661", "not a whole number"),
        ("NUM_STAGES", "0", "outside 1..64"),
        ("NUM_STAGES", "9999999999999", "not a whole number"),
        ("SEED_ADDR", "", "not set"),
        ("SEED_ADDR", "a\nb", "control characters"),
        ("SEED_ADDR", "a-5ec2e7", "no ticket"),
        ("SEED_ADDR", "tcp:127.0.0.1:5ec2e7", "not a ticket"),
        ("SEED_ADDR", "ropeway15ec2e7", "damaged"),
        ("MODEL", " ", "not set"),
        ("ENGINE", "magic", "none of"),
        ("CONTEXT", "0", "outside"),
        ("THREADS", "-1", "outside"),
        ("GPU_LAYERS", "all", "not a whole number"),
        ("RUN_LABEL", "a\x1b", "control characters"),
        ("WORKER_CMD", "a\x00", "control characters"),
        ("END_WITH_STDIN", "2", "outside"),
        ("RELAYS", "nearby", "neither default, none, nor a URL"),
        ("RELAYS", "https://one.example,two", "neither default, none, nor a URL"),
        ("ORPHAN_S", "0", "outside"),
        ("BIND", "everywhere", "not HOST:PORT"),
        ("BIND", "localhost:0", "must begin with an IP address"),
        ("VAST_URL", "http://example.org", "neither https"),
    ],
)
def test_a_bad_variable_is_refused_by_name(name: str, value: str, why: str) -> None:
    with pytest.raises(BadVariable, match=why) as caught:
        read_settings(GOOD | {name: value})
    assert caught.value.name == name
    assert str(caught.value).startswith(f"{name}: ")
    assert "5ec2e7" not in str(caught.value)


def test_children_get_no_secrets() -> None:
    assert for_children({**GOOD, "VAST_API_KEY": "k", "CONTAINER_API_KEY": "c"}) == {
        name: GOOD[name] for name in ("STAGE", "NUM_STAGES", "MODEL")
    }


def test_the_command_exits_with_2_and_the_variables_name() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in GOOD}
    done = subprocess.run(
        [sys.executable, "-m", "ropeway.cli.gpu_node"],
        env=environment | GOOD | {"STAGE": "seven"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "pp-gpu-node: STAGE: 'seven' is not a whole number\n"

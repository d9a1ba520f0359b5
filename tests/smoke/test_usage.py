"""What `pp-smoke-run` refuses before it rents anything, and that no refusal shows a key."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ropeway.cli import smoke_run
from ropeway.smoke.ledger import Ledger

KEY = "a-key-that-nobody-may-see"
RENT = ("--vastai", "--image", "some/image", "--server-url", "http://127.0.0.1:1")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROPEWAY_STATE", str(tmp_path))
    for name in ("VAST_API_KEY", "ROPEWAY_IMAGE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*flags: str, status: int = 2, **environment: str) -> str:
    done = CliRunner().invoke(smoke_run.app, list(flags), env=environment)
    assert done.exit_code == status, done.output
    assert KEY not in done.output
    return done.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--keep-on-failure",), "keep-on-failure: processes on this machine end with the run"),
        (("--vastai", "--local"), "local: --local and --vastai exclude each other"),
        (("--vastai", "--api-key", KEY), "image: --vastai needs --image"),
        (RENT, "api-key: --vastai needs"),
        ((*RENT, "--api-key", f"{KEY} "), "cluster: tcp"),
        ((*RENT, "--api-key", f"two words {KEY}"), "api-key: it is empty or has characters that no key has"),
        ((*RENT, "--api-key-file", "/nowhere/at/all"), "api-key-file: /nowhere/at/all cannot be read"),
        ((*RENT[:-1], "http://example.org", "--api-key", KEY), "server-url: 'http://example.org' is neither https"),
        (("--num-stages", "0"), "--num-stages"),
        (("--max-tokens", "0"), "--max-tokens"),
        (("--prompt", "  "), "prompt: it is empty"),
        (("--timeout", "0"), "timeout: 0 is not above 0"),
        (("--budget", "-1"), "budget: -1 is not above 0"),
        (("--max-price", "nan"), "max-price"),
        (("--limit", "lunch=3"), "limit: 'lunch' is none of search, node"),
        (("--limit", "search=soon"), "limit: 'search=soon' is not STEP=SECONDS"),
        (("--limit", "search=0"), "is not above 0"),
        (("--poll", "-1"), "--poll"),
        (("--request-timeout", "0"), "--request-timeout"),
        (("--cluster", "udp"), "cluster: 'udp' is none of tcp, iroh"),
        (("--label", "../up"), "label"),
        (("--relays", "nearby"), "relays: 'nearby' is neither default, none, nor a URL"),
        (("--engine", "magic"), "engine: 'magic' is none of"),
        (("--what",), "No such option"),
    ],
)
def test_usage(flags: tuple[str, ...], said: str, state: Path) -> None:
    if said == "cluster: tcp":
        flags = (*RENT[:-1], "https://example.org", "--cluster", "tcp", "--api-key", KEY)
    assert said in run(*flags)
    assert list(state.glob("**/*")) == [], "nothing was begun"


def test_a_key_may_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    for flags, environment in (
        (("--api-key-file", str(path)), {}),
        (("--api-key", KEY), {}),
        ((), {"VAST_API_KEY": KEY}),
    ):
        said = run(*RENT, *flags, "--limit", "search=0.2", status=1, **environment)
        assert "cannot be reached" in said


def test_a_cleanup_without_a_key_leaves_the_ledger(state: Path) -> None:
    ledger = Ledger.begin("vastai", "http://127.0.0.1:1", "left")
    ledger.creating(1)
    ledger.close(settled=False)
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    assert "api-key" in run("--cleanup")
    assert ledger.path.exists()


def test_a_run_that_was_killed_before_its_first_create_is_settled_without_a_key(state: Path) -> None:
    ledger = Ledger.begin("vastai", "http://127.0.0.1:1", "left")
    ledger.close(settled=False)
    run("--cleanup", status=0)
    assert not ledger.path.exists()


def test_nothing_to_clean_up() -> None:
    run("--cleanup", status=0)

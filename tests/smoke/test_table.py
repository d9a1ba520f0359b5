"""The table of docs/smoke-run.md: every test that it names is there, and those with a star run over iroh."""

from __future__ import annotations

import re
from pathlib import Path

from smoke import test_over_iroh

HERE = Path(__file__).parent
TABLE = (HERE.parents[1] / "docs" / "smoke-run.md").read_text().partition("| what goes wrong |")[2].partition("\n\n")[0]


def test_every_test_that_the_table_names_is_there() -> None:
    there = set(re.findall(r"^def (test_\w+)", "".join(path.read_text() for path in HERE.glob("*.py")), re.MULTILINE))
    named = re.findall(r"`(test_\w+)`", TABLE)
    assert len(named) > 20
    assert set(named) <= there


def test_stars_are_for_those_that_run_over_iroh() -> None:
    starred = set(re.findall(r"`(test_\w+)` \*", TABLE))
    run = {test.partition("::")[2].partition("[")[0] for test in test_over_iroh.TESTS}
    assert starred == run

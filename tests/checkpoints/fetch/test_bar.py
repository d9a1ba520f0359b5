"""How far a fetch is, where nobody sees a bar."""

from __future__ import annotations

import pytest

from ropeway.checkpoints.fetch.bar import LABEL, Lines, progress_bar, shortened


def test_a_line_now_and_then() -> None:
    now = [0.0]
    said: list[str] = []
    lines = Lines("Fetching it", said.append, lambda: now[0])
    for second in range(25):
        now[0] = float(second)
        lines(second * 10**6, 98 * 10**6)
    assert said == ["ropeway: Fetching it: 10 of 98 MB\n", "ropeway: Fetching it: 20 of 98 MB\n"]


def test_a_short_fetch_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with progress_bar("Fetching it") as progress:
        progress(5, 10)
    assert capfd.readouterr() == ("", "")


def test_a_label_leaves_room_for_the_bar() -> None:
    assert shortened("Fetching hf:org/name") == "Fetching hf:org/name"
    label = shortened("Fetching /a/long/way/down/to/a/model-Q4_K_M.gguf")
    assert label == "Fetching /…o/a/model-Q4_K_M.gguf"
    assert len(label) == LABEL

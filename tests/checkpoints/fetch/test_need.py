"""What a rank needs, as it is typed."""

from __future__ import annotations

import pytest

from ropeway.checkpoints.fetch.need import Need


def test_the_embeddings_go_with_the_first_layer() -> None:
    assert Need.parse("0:15") == Need(0, 15, embed=True)
    assert Need.parse("15:30", head=True) == Need(15, 30, head=True)
    assert Need.parse("0:15", embed=False) == Need(0, 15)
    assert Need.parse("30:30", head=True) == Need(30, 30, head=True)
    assert Need(0, 15, True, True).label == "0-15-embed-head"


@pytest.mark.parametrize("text", ["", "3", "3:", ":3", "a:b", "-1:3", "3:2", "3:3", "1:2:3", "٣:4"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"^layers: "):
        Need.parse(text)


def test_layers_beyond_the_model() -> None:
    Need(0, 5).check(5)
    with pytest.raises(ValueError, match="layers: 0:6 is not within the model's 5 layers"):
        Need(0, 6).check(5)

"""The ring as text."""

from __future__ import annotations

from ropeway.cli.picture import StageView, draw_ring


def view(rank: int, first: int, end: int, *, head: bool = False) -> StageView:
    return StageView(rank, first, end, "llamacpp", "cpu", 33_246_720, rank == 0, head)


def test_two_stages_side_by_side() -> None:
    assert draw_ring([view(0, 0, 15, head=True), view(1, 15, 30)], 2304, 80) == (
        "   ┌─────────────────┐           ┌─────────────────┐\n"
        "   │ rank 0          │           │ rank 1          │\n"
        "   │ embeddings      │           │ layers 15..30   │\n"
        "   │ layers 0..15    │  2,304 B  │ llamacpp on cpu │\n"
        "┌▶ │ head            │ ───────▶  │ 33.2 MB         │ ─┐\n"
        "│  │ llamacpp on cpu │           │                 │  │\n"
        "│  │ 33.2 MB         │           │                 │  │\n"
        "│  └─────────────────┘           └─────────────────┘  │\n"
        "└──────────────────────── rows ───────────────────────┘"
    )


def test_a_chain_sends_a_token_back() -> None:
    picture = draw_ring([view(0, 0, 15), view(1, 15, 30, head=True)], 2304, 80)
    assert picture.endswith("──── token ───────────────────────┘")


def test_one_below_the_other_where_columns_are_few() -> None:
    lines = draw_ring([view(0, 0, 10, head=True), view(1, 10, 20), view(2, 20, 30)], 2304, 40).split("\n")
    assert max(map(len, lines)) <= 40
    assert [line.count("rank") for line in lines].count(1) == 4
    assert sum("◀─┐" in line for line in lines) == sum("──┘" in line and "│ llama" in line for line in lines) == 1


def test_a_ring_of_one_is_a_box() -> None:
    assert "▶" not in draw_ring([view(0, 0, 30, head=True)], 2304, 80)

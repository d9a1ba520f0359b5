"""Rank 0's refusals of a description, each by its name and in the page's order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ropeway.types import Boundary, Layout, RowDtype
from ropeway.wire import Describe, ErrorCode, Expected, ProtocolError, Ready, check_description
from wire.golden_values import LLAMACPP

LAYOUT = Layout(Boundary(576, taps=(3, 20, 28)), "ab" * 32, 30, ((0, 15), (15, 30)))
EXPECTED = Expected(1, chunk=512, max_rows=4096, parallel=4, context=8192, draft_width=64, release="ropeway 0.1.0")
FITTING = replace(LLAMACPP, draft_width=64, taps=(20, 28))

REFUSED = [
    (40, "rank", replace(FITTING, rank=0)),
    (41, "world", replace(FITTING, world=3)),
    (42, "layers", replace(FITTING, first=14)),
    (42, "layers", replace(FITTING, end=31)),
    (43, "hidden", replace(FITTING, hidden=577)),
    (44, "planes", replace(FITTING, planes=2)),
    (45, "row_dtype", replace(FITTING, row_dtype=RowDtype.F16)),
    (46, "chunk", replace(FITTING, chunk=511)),
    (47, "max_rows", replace(FITTING, max_rows=4095)),
    (48, "parallel", replace(FITTING, parallel=3)),
    (49, "context", replace(FITTING, context=8191)),
    (50, "kv_rows", replace(FITTING, kv_rows=8191)),
    (51, "states", replace(FITTING, states=3)),
    (52, "draft_width", replace(FITTING, draft_width=0)),
    (53, "taps", replace(FITTING, taps=(20,))),
    (54, "release", replace(FITTING, release="ropeway 0.2.0")),
]


def test_a_fitting_description_passes() -> None:
    check_description(LAYOUT, EXPECTED, FITTING)


def test_capacities_may_exceed() -> None:
    check_description(
        LAYOUT, EXPECTED, replace(FITTING, chunk=513, max_rows=5000, parallel=9, context=9000, kv_rows=1 << 40)
    )
    check_description(LAYOUT, EXPECTED, replace(FITTING, states=4))


@pytest.mark.parametrize(("number", "label", "describe"), REFUSED)
def test_a_misfit_is_refused_by_name(number: int, label: str, describe: Describe) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_description(LAYOUT, EXPECTED, describe)
    assert caught.value.code == number
    assert caught.value.code.label == label
    assert "rank 1" in caught.value.detail


def test_the_first_misfit_is_named() -> None:
    wrong = Describe(
        rank=0,
        world=3,
        first=0,
        end=1,
        hidden=1,
        planes=9,
        row_dtype=RowDtype.BF16,
        kv_dtype=LLAMACPP.kv_dtype,
        backend=LLAMACPP.backend,
        engine=LLAMACPP.engine,
        chunk=0,
        max_rows=0,
        parallel=0,
        context=0,
        kv_rows=0,
        states=0,
        draft_width=0,
        taps=(),
        release="",
    )
    names = [
        "rank",
        "world",
        "first",
        "hidden",
        "planes",
        "row_dtype",
        "chunk",
        "max_rows",
        "parallel",
        "context",
        "kv_rows",
        "states",
        "draft_width",
        "taps",
        "release",
    ]
    seen = []
    for name in names:
        with pytest.raises(ProtocolError) as caught:
            check_description(LAYOUT, EXPECTED, wrong)
        seen.append(int(caught.value.code))
        wrong = replace(wrong, **{name: getattr(FITTING, name)})
        if name == "first":
            wrong = replace(wrong, end=FITTING.end)
    assert seen == list(range(40, 55))
    check_description(LAYOUT, EXPECTED, wrong)


@pytest.mark.parametrize(
    "describe",
    [
        replace(FITTING, rank=-1),
        replace(FITTING, kv_rows=1 << 64),
        replace(FITTING, planes=256),
        replace(FITTING, taps=(28, 20)),
        replace(FITTING, taps=(14,)),
        replace(FITTING, taps=(30,)),
        replace(FITTING, release="x" * 65536),
    ],
)
def test_a_description_that_does_not_fit_never_becomes_bytes(describe: Describe) -> None:
    with pytest.raises(ProtocolError) as caught:
        describe.encode()
    assert caught.value.code is ErrorCode.BAD_VALUE


def test_ready_fields_must_fit() -> None:
    with pytest.raises(ProtocolError) as caught:
        Ready(1, load_ms=1 << 32, warm_ms=0, weights_bytes=0).encode()
    assert caught.value.code is ErrorCode.BAD_VALUE

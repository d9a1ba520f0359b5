"""Names and numbers of errors, as wire.md 9 lists them."""

from __future__ import annotations

import re
from pathlib import Path

from ropeway.wire import ErrorCode, ProtocolError

PAGE = Path(__file__).parents[2] / "docs" / "wire.md"


def test_names_and_numbers_are_those_of_the_page() -> None:
    section = PAGE.read_text().partition("\n## 9.")[2].partition("\n## 10.")[0]
    table = dict(re.findall(r"\| (\d+) \| (\w+)(?= )", section))
    refusals = dict(re.findall(r"\b(\d\d) (\w+)", section.partition("40 to 59")[2].partition("\n\n")[0]))
    page = {int(number): name for number, name in (table | refusals).items()}
    assert page == {int(code): code.label for code in ErrorCode if code is not ErrorCode.NONE}
    assert len(page) == 35 + 15 + 4


def test_an_error_says_its_name_and_the_detail() -> None:
    error = ProtocolError(ErrorCode.REFUSED_ROW_DTYPE, "rank 1 describes f16, expected f32", 29)
    assert str(error) == "row_dtype: rank 1 describes f16, expected f32"
    assert (error.code, error.at) == (45, 29)

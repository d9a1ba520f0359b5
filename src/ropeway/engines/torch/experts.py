"""Experts of a mixture for invariant mode: the library's own loop, but an expert's lone row is padded to two.

So the bits of a row do not depend on whether another row happens to have chosen the same expert.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

NAME: Final = "ropeway_paired"


def register() -> str:
    """Make it known to transformers; the name to ask for."""
    ALL_EXPERTS_FUNCTIONS.register(NAME, paired_experts)
    return NAME


def paired_experts(module: Any, rows: Tensor, experts: Tensor, shares: Tensor) -> Tensor:
    """Rows [n, width], the experts that each has chosen and their shares, [n, k]; the experts' sum, [n, width]."""
    total = torch.zeros_like(rows)
    for expert in experts.unique().tolist():
        row, place = torch.where(experts == expert)
        given = rows[row]
        if len(row) == 1:
            given = given.repeat(2, 1)
        inside = module._apply_gate(_product(module, given, "gate_up_proj", expert))
        output = _product(module, inside, "down_proj", expert)[: len(row)]
        total.index_add_(0, row, (output * shares[row, place, None]).to(total.dtype))
    return total


def _product(module: Any, rows: Tensor, name: str, expert: int) -> Tensor:
    matrix = getattr(module, name)[expert]
    product: Tensor = rows @ matrix if module.is_transposed else functional.linear(rows, matrix)
    return product + getattr(module, f"{name}_bias")[expert] if module.has_bias else product

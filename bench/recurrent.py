"""Recurrent states over a long text: `python bench/recurrent.py`, rings of torch and mlx on a tiny Qwen3.5.

Five layers, four of them gated DeltaNets, random weights, f32: 2,048 tokens in parts of 64 through the ring and through
the whole model on torch, the same tokens into both. Then how far logits are apart, and each recurrent layer's state.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

sys.path.pop(0)  # bench/ has names that the folders of tests have too
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import numpy as np
import torch

from engines.mixed import Report, report, ring, whole_of
from engines.torch.tiny_models import LAYERS, write_model
from ropeway.engines.base import EngineConfig
from ropeway.types import Boundary, RowDtype
from tiny_gguf import VOCABULARY

TOKENS, PART, CUT = 2048, 64, 3
AT: Final = (64, 512, 1024, 2048)
SETTINGS: Final = {"torch": {"dtype": "f32", "device": "cpu"}, "mlx": {"device": "cpu"}}


def run(config: EngineConfig, engines: list[str]) -> Report:
    """One ring against torch's whole model."""
    tokens = np.random.default_rng(2).integers(3, VOCABULARY, TOKENS).tolist()
    with (
        closing(ring(config, engines, SETTINGS, [CUT] if len(engines) > 1 else [])) as split,
        closing(whole_of(config, "torch", SETTINGS["torch"])) as whole,
    ):
        return report(split, whole, tokens, PART, AT)


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"| stages | steps equal | KL largest | logits, most | top 1 | states at {', '.join(map(str, AT))} (most) |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = write_model(Path(folder) / "qwen3_5", "qwen3_5", torch.float32)
        config = EngineConfig(
            str(path), 0, LAYERS, True, True, context=TOKENS, parallel=1, chunk=PART, threads=1,
            boundary=Boundary(64, 1, RowDtype.F32),
        )  # fmt: skip
        for engines in (["torch", "torch"], ["mlx"], ["torch", "mlx"], ["mlx", "torch"]):
            found = run(config, engines)
            c = found.comparison
            states = ", ".join(f"{max(apart):.1e}" for apart in found.states.values())
            print(
                f"| {', '.join(engines)} | {c.equal_steps} of {c.steps} | {c.kl_max:.1e} | {c.max_abs_diff:.1e} "
                f"| {c.top1:.2%} | {states} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

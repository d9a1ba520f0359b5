"""Planted faults and the figures that they leave: `python bench/faults.py [MODEL]`, a line of a table each.

A ring of two llama.cpp stages on loopback, spoiled in one place, against the whole model. The limits named are those
that are meant for unlike engines; bits differ in every case.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.pop(0)  # bench/ has names that the folders of tests have too
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from ropeway.checkpoints.demo import resolve_model
from ropeway.engines.base import Engine
from ropeway.engines.llamacpp.engine import LlamaCppEngine
from ropeway.launch.drafting import DraftKind, DraftOptions, open_drafting
from ropeway.launch.placement import Options, place
from ropeway.verify.examine import Examined, examine, make_prompts
from ropeway.verify.limits import Limits
from ropeway.verify.reference import Reference
from ropeway.verify.repeat import Work
from serving.drafting.eager import free
from verify.faults import Rounded, Stale, altered, one_layer_less
from verify.real_ring import real_ring

Spoil = Callable[[int, Engine], Engine]


def run(options: Options, spoil: Spoil, *, drafts: bool) -> Examined:
    """One ring."""
    with real_ring(options, spoil) as rank0:
        prompts = make_prompts(rank0.placement, 1, 128)
        work = Work(prompts, 64, part=64, every_row=not drafts)
        kind = DraftKind.NGRAM if drafts else DraftKind.NONE
        with open_drafting(DraftOptions(kind), rank0.placement) as drafting:
            if drafting is not None:
                free(drafting)
            return examine(rank0, work, Reference("llamacpp"), Limits(), 1, drafting)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo")
    path = str(resolve_model(parser.parse_args().model))
    options = Options(path, 2, context=512, chunk=64, threads=1)
    placement = place(options)
    config = placement.engine_config(1)
    with tempfile.TemporaryDirectory() as folder:
        wrong = altered(Path(path), config.first + 2, 0.01, Path(folder) / "wrong.gguf")
        spoiled = replace(config, model=str(wrong))
        faults: list[tuple[str, Spoil, bool]] = [
            ("none", lambda _, engine: engine, False),
            ("one layer's matrices 1 % larger", lambda r, e: LlamaCppEngine(spoiled) if r else e, False),
            ("rows rounded to f16 on one boundary", lambda r, e: e if r else Rounded(e), False),
            ("one layer left out", lambda r, e: one_layer_less(config, LlamaCppEngine) if r else e, False),
            ("none, with drafts", lambda _, engine: engine, True),
            ("a stale state behind each rollback", lambda r, e: Stale(e) if r else e, True),
        ]
        print("| fault | steps equal | KL mean | 99 % | largest | logits, most | top 1 | top 5 | limits broken |")
        print("|---|---|---|---|---|---|---|---|---|")
        for name, spoil, drafts in faults:
            found = run(options, spoil, drafts=drafts)
            c = found.outcome.comparison
            figures = " | ".join(f"{value:.2g}" for value in (c.kl_mean, c.kl_p99, c.kl_max, c.max_abs_diff))
            broken = ", ".join(line.split(":")[0] for line in found.broken) or "none"
            equal = f"{c.equal_steps} of {c.steps}"
            print(f"| {name} | {equal} | {figures} | {c.top1:.1%} | {c.top5:.1%} | {broken} |", flush=True)


if __name__ == "__main__":
    main()

"""Rings of unlike engines against the whole model: `python bench/mixed.py [MODEL]`, a line of a table each.

Every ordered pair of engines that read a GGUF, and one ring of three kinds; each ring runs the same prompt ten times.
The reference is llama.cpp's whole model. What is not installed is left out and named.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from itertools import permutations

ENGINES = ("llamacpp", "torch", "tinygrad")
MODULES = {"torch": "torch", "tinygrad": "tinygrad"}


def check(model: str, engines: tuple[str, ...], prompt_tokens: int, steps: int, runs: int) -> dict[str, object]:
    """What `ropeway check` says of one ring."""
    argv = [
        sys.executable, "-m", "ropeway", "check", model, "--engines", ",".join(engines), "--reference", "llamacpp",
        "--stages", str(len(engines)), "--prompt-tokens", str(prompt_tokens), "--steps", str(steps), "--every-row",
        "--runs", str(runs), "--threads", "1", "--context", "512", "--part", "64", "--json",
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{','.join(engines)}: {done.stderr[-600:]}")
    value: dict[str, object] = json.loads(done.stdout)
    return value


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--engines", default="", help="one ring alone: llamacpp,tinygrad")
    a = parser.parse_args()
    here = [engine for engine in ENGINES if importlib.util.find_spec(MODULES.get(engine, "ropeway")) is not None]
    for engine in set(ENGINES) - set(here):
        print(f"{engine} is not installed: left out")
    rings: list[tuple[str, ...]] = [(engine, engine) for engine in here]
    rings += permutations(here, 2)
    rings += [tuple(here)] if len(here) == 3 else []
    if a.engines:
        rings = [tuple(a.engines.split(","))]
    print("| stages | steps equal | KL mean | 99 % | largest | logits, most | top 1 | top 5 | parts at | same bits |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for ring in rings:
        v = check(a.model, ring, a.prompt_tokens, a.steps, a.runs)
        figures = " | ".join(f"{float(str(v[name])):.2g}" for name in ("kl_mean", "kl_p99", "kl_max", "max_abs_diff"))
        shares = " | ".join(f"{float(str(v[name])):.1%}" for name in ("top1", "top5"))
        parts = "never" if v["first_parting"] is None else v["first_parting"]
        same = f"{v['runs']} of {v['runs']}" if v["same_bits"] else "no"
        print(
            f"| {', '.join(ring)} | {v['equal_steps']} of {v['steps']} | {figures} | {shares} | {parts} | {same} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

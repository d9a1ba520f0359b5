"""Rings of unlike engines against the whole model: `python bench/mixed.py [MODEL]`, a line of a table each.

Every ordered pair of engines that read a GGUF, one ring of three kinds, and every ordered pair of engines that read a
directory, on MODEL converted to one (converted.py, f32); each ring runs the same prompt ten times. The reference is
llama.cpp's whole model, or torch's. The worker is pp_tinygrad_worker.py. What is not installed is left out and named.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Final

Ring = tuple[str, ...]

GGUF: Final = ("llamacpp", "torch", "tinygrad", "worker")
DIRECTORY: Final = ("torch", "mlx")
MODULES: Final = {"torch": "torch", "tinygrad": "tinygrad", "worker": "tinygrad", "mlx": "mlx"}
WORKER: Final = shlex.join([sys.executable, "-m", "ropeway.engines.worker.pp_tinygrad_worker"])


def check(model: str, engines: Ring, reference: str, a: argparse.Namespace) -> dict[str, object]:
    """What `ropeway check` says of one ring."""
    argv = [
        sys.executable, "-m", "ropeway", "check", model, "--engines", ",".join(engines), "--reference", reference,
        "--stages", str(len(engines)), "--prompt-tokens", str(a.prompt_tokens), "--steps", str(a.steps), "--every-row",
        "--runs", str(a.runs), "--threads", "1", "--context", "512", "--part", "64", "--device", a.device, "--json",
        *(("--worker-cmd", WORKER) if "worker" in engines else ()),
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{','.join(engines)}: {done.stderr[-600:]}")
    value: dict[str, object] = json.loads(done.stdout)
    return value


def rings(engines: Sequence[str]) -> list[Ring]:
    """Each with itself, each ordered pair, and the first three together."""
    found: list[Ring] = sorted(product(engines, engines), key=lambda pair: pair[0] != pair[1])
    return found + [tuple(engines[:3])] * (len(engines) > 2)


def line(ring: Ring, v: dict[str, object]) -> str:
    """A line of the table."""
    figures = " | ".join(f"{float(str(v[name])):.2g}" for name in ("kl_mean", "kl_p99", "kl_max", "max_abs_diff"))
    shares = " | ".join(f"{float(str(v[name])):.1%}" for name in ("top1", "top5"))
    parts = "never" if v["first_parting"] is None else v["first_parting"]
    same = f"{v['runs']} of {v['runs']}" if v["same_bits"] else "no"
    return f"| {', '.join(ring)} | {v['equal_steps']} of {v['steps']} | {figures} | {shares} | {parts} | {same} |"


def main() -> None:
    """Print the table, and what each ring said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rings", nargs="*", default=[], help="these alone: llamacpp,tinygrad torch,mlx")
    parser.add_argument("--format", choices=["gguf", "directory", "both"], default="both")
    a = parser.parse_args()
    missing = {name for name, module in MODULES.items() if importlib.util.find_spec(module) is None}
    for name in sorted(missing):
        print(f"{name} cannot run here: left out")
    here = [name for name in GGUF if name not in missing]
    with tempfile.TemporaryDirectory() as folder:
        work = [(ring, a.model, "llamacpp") for ring in rings(here)] if a.format != "directory" else []
        if a.format != "gguf" and not missing & set(DIRECTORY):
            from converted import convert
            from ropeway.checkpoints.demo import resolve_model

            model = str(convert(resolve_model(a.model), Path(folder)))
            work += [(ring, model, "torch") for ring in rings(DIRECTORY)]
        work.sort(key=lambda item: "worker" in item[0])
        if a.rings:
            work = [item for item in work if ",".join(item[0]) in a.rings]
        print(
            "| stages | steps equal | KL mean | 99 % | largest | logits, most | top 1 | top 5 | parts at | same bits |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|")
        said = []
        for ring, model, reference in work:
            value = check(model, ring, reference, a)
            print(line(ring, value), flush=True)
            said.append(f"{', '.join(ring)}: {json.dumps(value['replies'])}")
    print("", *said, sep="\n")


if __name__ == "__main__":
    main()

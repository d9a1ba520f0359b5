"""One model on every engine here: decode and prefill in tokens a second, against transformers and the memory's speed.

    python bench/engines.py [--model demo] [--threads 1] [--depth 256] [--prompt 512] [--rounds 5] [--json]

All in this process, in turn, round after round; a window in which other processes had the machine is thrown away. The
bound of decode is the weights' bytes over the speed at which this machine reads memory with so many threads. What the
stage's code adds to a step is a lone ring's step without what its engine says that it took.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from harness import window
from results import Figure, Result
from ropeway.cli.session import place_local
from ropeway.engines.base import EngineConfig, Span, Whole
from ropeway.engines.registry import load_whole
from ropeway.engines.whole import EngineWhole
from ropeway.launch.placement import Options
from ropeway.launch.rank0 import open_alone
from ropeway.serving.sequence import Sequence
from ropeway.serving.speech import PlainChooser

STEPS = 16
READ_BYTES = 1 << 29


class Generate:
    """transformers' own model with the same weights, and its cache: what `generate` runs a step."""

    def __init__(self, config: EngineConfig, dtype: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        from ropeway.engines.torch.sources import open_source

        source = open_source(resolve(config.model))
        kind = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
        with torch.device("meta"):
            self._model: Any = AutoModelForCausalLM.from_config(source.config, dtype=kind, attn_implementation="sdpa")
        own = {name.removeprefix("model."): value for name, value in self._model.named_parameters()}
        weights = {name: source.tensor(name, value.shape).to(kind) for name, value in own.items()}
        self._model.load_state_dict(
            {name: weights[name.removeprefix("model.")] for name, _ in self._model.named_parameters()},
            assign=True,
            strict=False,
        )
        self._model.tie_weights()
        self._model.model.rotary_emb = type(self._model.model.rotary_emb)(source.config)
        self._model.eval()

    def generate(self, prompt: list[int], steps: int) -> float:
        """Seconds for a prompt and `steps` greedy tokens, by `generate` itself."""
        import torch

        ids = torch.tensor([prompt])
        started = time.perf_counter()
        with torch.inference_mode():
            self._model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=steps, min_new_tokens=steps, do_sample=False,
                pad_token_id=0,
            )  # fmt: skip
        return time.perf_counter() - started


def resolve(model: str) -> Any:
    """Where a model lies."""
    from ropeway.checkpoints.checkpoint import resolve_checkpoint

    return resolve_checkpoint(model)


def memory_speed(threads: int) -> float:
    """Bytes a second that this machine reads with so many threads: the best of a few sums over half a gigabyte."""
    from concurrent.futures import ThreadPoolExecutor

    pieces = np.array_split(np.ones(READ_BYTES // 8), threads)
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            started = time.perf_counter()
            list(pool.map(np.sum, pieces))
            best = max(best, READ_BYTES / (time.perf_counter() - started))
    return best


def whole_times(whole: Whole, depth: int, prompt: list[int]) -> tuple[float, float]:
    """Seconds of a decode step at `depth`, and of the prompt in one part."""
    whole.forward([Span(0, 0, depth)], prompt[:depth], [depth - 1])
    started = time.perf_counter()
    token = 5
    for step in range(STEPS):
        token = int(whole.forward([Span(0, depth + step, 1)], [token], [0])[0].argmax())
    decode = (time.perf_counter() - started) / STEPS
    whole.release(0)
    started = time.perf_counter()
    whole.forward([Span(0, 0, len(prompt))], prompt, [len(prompt) - 1])
    prefill = time.perf_counter() - started
    whole.release(0)
    return decode, prefill


def contestants(config: EngineConfig) -> dict[str, Callable[[], Whole]]:
    """What there is to measure, by name; made one after the other."""
    found: dict[str, Callable[[], Whole]] = {"llamacpp, as the file is": lambda: load_whole("llamacpp", config)}
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
        return found
    from ropeway.engines.torch.engine import TorchEngine

    def torch(
        dtype: str, *, invariant: bool = False, pack: bool = True, four_bit: bool = True, compact: bool = True
    ) -> Callable[[], Whole]:
        chosen = dataclasses.replace(config, dtype=dtype, boundary=None, invariant=invariant)
        return lambda: EngineWhole(TorchEngine(chosen, pack=pack, four_bit=four_bit, compact=compact))

    found["torch, 4 bits kept"] = torch("bf16")
    found["torch, 4 bits kept, library's layers"] = torch("bf16", compact=False)
    found["torch, 4 bits kept, --invariant"] = torch("bf16", invariant=True)
    found["torch bf16, packed"] = torch("bf16", four_bit=False)
    found["torch bf16, packed, library's layers"] = torch("bf16", four_bit=False, compact=False)
    found["torch bf16, packed, --invariant"] = torch("bf16", four_bit=False, invariant=True)
    found["torch bf16, plain, library's layers"] = torch("bf16", compact=False, pack=False)
    found["torch f32"] = torch("f32")
    return found


def stage_overhead(model: str, engine: str, threads: int, depth: int, dtype: str) -> list[float]:
    """Milliseconds a step of a lone ring beyond its engine's own."""
    options = Options(model, 1, threads=threads, context=depth + 128, engines=(engine,), dtype=dtype)
    with open_alone(place_local(options, None, None)) as rank0:
        loop = rank0.loop(PlainChooser())
        loop.scheduler.add(Sequence(0, tuple(5 + 7 * i % 1000 for i in range(depth)), 64))
        while not loop.scheduler.idle:
            loop.step()
        rounds = [record for record in loop.records if record.rows == 1]
        return [(record.landed_ns - record.launched_ns - record.own_ns) / 1e6 for record in rounds]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--depth", type=int, default=256)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(range(args.threads)))
    path = resolve(args.model)
    options = Options(args.model, 1, threads=args.threads, context=2 * args.prompt + args.depth, chunk=args.prompt)
    config = place_local(options, None, None).whole_config()
    prompt = [5 + 7 * i % 1000 for i in range(max(args.prompt, args.depth))]
    decode: dict[str, list[float]] = defaultdict(list)
    prefill: dict[str, list[float]] = defaultdict(list)
    thrown = 0
    for name, make in contestants(config).items():
        whole = make()
        whole_times(whole, args.depth, prompt)
        for _ in range(args.rounds):
            with window([os.getpid()]) as seen:
                step, read = whole_times(whole, args.depth, prompt)
            if seen.quiet:
                decode[name].append(1 / step)
                prefill[name].append(len(prompt) / read)
            else:
                thrown += 1
        whole.close()
    if len(contestants(config)) > 1:
        for dtype in ("bf16", "f32"):
            name = f"transformers generate, {dtype}"
            model = Generate(config, dtype)
            model.generate(prompt[: args.depth], 2)
            for _ in range(args.rounds):
                with window([os.getpid()]) as seen:
                    short, long = (model.generate(prompt[: args.depth], steps) for steps in (1, 1 + STEPS))
                    read = model.generate(prompt, 1)
                if seen.quiet:
                    decode[name].append(STEPS / (long - short))
                    prefill[name].append(len(prompt) / read)
                else:
                    thrown += 1
    speed = memory_speed(args.threads)
    sizes = {"bf16": 2, "f32": 4}
    values = path.stat().st_size if path.is_file() else 0
    figures = []
    for name in decode:
        kind = next((kind for kind in sizes if kind in name), "")
        bound = speed / (sizes[kind] * parameters(args.model)) if kind else speed / values
        figures.append(Figure.of(f"decode, {name}", "tokens/s", decode[name], ideal=bound))
    figures += [Figure.of(f"prefill, {name}", "tokens/s", rates) for name, rates in prefill.items()]
    for engine, dtype in (("llamacpp", ""), ("torch", "bf16")):
        if engine == "llamacpp" or len(contestants(config)) > 1:
            added = stage_overhead(args.model, engine, args.threads, args.depth, dtype)
            figures.append(Figure.of(f"stage code, {engine}", "ms a step", added, ideal=0.0, more=False))
    notes = (f"memory read at {speed / 1e9:.1f} GB/s", f"windows thrown away because others were busy: {thrown}")
    setting = f"{args.model}, {args.threads} threads, decode at {args.depth}, prompts of {args.prompt}"
    Result("engines", setting, tuple(figures), notes).tell(args)


def parameters(model: str) -> int:
    """Values that a step reads: all but an embedding table that is looked up and nothing else."""
    from ropeway.engines.torch.sources import open_source

    config = open_source(resolve(model)).config
    width, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    heads = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    return int(layers * (width * (2 * heads + 2 * keys) + 3 * width * inner) + config.vocab_size * width)


if __name__ == "__main__":
    main()

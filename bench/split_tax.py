"""What a split costs in decode: ms a step of two stages against one process, the same threads, in turn in one run.

    python bench/split_tax.py [--model demo] [--times 1] [--cuts 15] [--depth 256] [--blocks 40] [--json]

One thread each; rank 0 and the whole model on one core, rank 1 on the other. A block is 16 steps of one, then of the
other; a pair of blocks counts only where other processes left the machine alone. Aim: at most 1.02, limit 1.05.

What a split costs is nearly the same for every model, so it weighs most on a small one. `--times 4` measures the model
with its layers four times over (nonsense as text, the same work a layer), which is nearer to what people split.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from harness import Pairs, pin_ring, window
from results import Figure, Result
from ropeway.checkpoints.demo import resolve_model
from ropeway.checkpoints.families import layer_count
from ropeway.checkpoints.gguf_file import GgufFile
from ropeway.checkpoints.gguf_values import ValueType, scalar_field
from ropeway.checkpoints.gguf_write import OutTensor, encode_header, write_gguf
from ropeway.cli.session import place_local
from ropeway.engines.base import Span
from ropeway.engines.llamacpp.whole import WholeModel
from ropeway.launch.placement import Options
from ropeway.launch.rank0 import Rank0, open_local
from ropeway.serving.loop import Loop
from ropeway.serving.sequence import Sequence
from ropeway.serving.speech import PlainChooser

STEPS = 16


def repeated(model: str, times: int, folder: Path) -> str:
    """The model's file with its layers `times` over, in `folder`."""
    gguf = GgufFile.open(resolve_model(model))
    layers = layer_count(gguf)
    fields = dict(gguf.metadata.fields)
    fields[f"{gguf.architecture}.block_count"] = scalar_field(ValueType.UINT32, layers * times)
    tensors = []
    for info in gguf.tensors.values():
        data = memoryview(gguf.tensor_bytes(info.name))
        if not info.name.startswith("blk."):
            tensors.append(OutTensor(info.name, info.type, info.shape, data))
            continue
        _, layer, rest = info.name.split(".", 2)
        names = [f"blk.{int(layer) + layers * again}.{rest}" for again in range(times)]
        tensors += [OutTensor(name, info.type, info.shape, data) for name in names]
    path = folder / f"{times}-times.gguf"
    with path.open("wb") as file:
        write_gguf(file, encode_header(fields, tensors), tensors)
    return str(path)


def measure(rank0: Rank0, depth: int, blocks: int) -> tuple[Pairs, Loop]:
    """Blocks of decode steps of the split and of the whole model, in turn, at about `depth` positions."""
    pids = pin_ring()
    prompt = tuple(5 + 7 * i % 1000 for i in range(depth))
    loop = rank0.loop(PlainChooser())
    loop.scheduler.add(Sequence(0, prompt, (blocks + 2) * STEPS))
    whole = WholeModel(rank0.placement.whole_config())
    chunk = rank0.placement.options.chunk
    for first in range(0, depth, chunk):
        rows = min(chunk, depth - first)
        whole.forward([Span(0, first, rows)], prompt[first : first + rows], [rows - 1])
    loop.step()
    at, token = depth, 5
    pairs = Pairs()
    for block in range(-1, blocks):
        with window(pids) as split_window:
            for _ in range(STEPS):
                loop.step()
        with window(pids) as whole_window:
            for _ in range(STEPS):
                token = int(whole.forward([Span(0, at, 1)], [token], [0])[0].argmax())
                at += 1
        if block >= 0:
            a, b = split_window.seconds / STEPS * 1e3, whole_window.seconds / STEPS * 1e3
            pairs.add(a, b, split_window, whole_window)
    time.sleep(0.05)
    loop.collect()
    whole.close()
    return pairs, loop


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--cuts", default="15", help="in layers of the model once")
    parser.add_argument("--depth", type=int, default=256)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cuts = tuple(int(cut) * args.times for cut in args.cuts.split(","))
    context = args.depth + (args.blocks + 3) * STEPS
    with tempfile.TemporaryDirectory() as folder:
        model = args.model if args.times == 1 else repeated(args.model, args.times, Path(folder))
        placement = place_local(Options(model, cuts=cuts, threads=1, context=context), None, None)
        with open_local(placement) as rank0:
            world = placement.layout.world
            pairs, loop = measure(rank0, args.depth, args.blocks)
    rounds = [r for r in loop.records if r.rows == 1]
    wires = [wire / 1e6 for r in rounds if (wire := r.wire_ns(world)) is not None]
    later = [sum(d.forward_ns for d in r.dones.values()) / 1e6 for r in rounds if len(r.dones) == world - 1]
    costs = [a - b for a, b in zip(pairs.a, pairs.b, strict=True)]
    own, head = [r.own_ns / 1e6 for r in rounds], [r.head_ns / 1e6 for r in rounds]
    figures = (
        Figure.of("split, a step", "ms", pairs.a, more=False),
        Figure.of("whole, a step", "ms", pairs.b, more=False),
        Figure.of("split / whole", "times", pairs.ratios, ideal=1.0, aim=1.02, limit=1.05, more=False),
        Figure.of("what the split costs a step", "ms", costs, ideal=0.0, more=False),
        Figure.of("of that the wire: hops, planning, waking", "ms", wires, ideal=0.0, aim=0.1, more=False),
        Figure.of("forwards of rank 0", "ms", own, more=False),
        Figure.of("forwards of later ranks", "ms", later, more=False),
        Figure.of("head", "ms", head, more=False),
    )
    notes = (f"pairs of {STEPS} steps: {len(pairs.a)}, thrown away because others were busy: {pairs.thrown}",)
    setting = f"{args.model}, layers x {args.times}, cuts {args.cuts}, {args.depth} deep, 1 thread each"
    Result("split_tax", setting, figures, notes).tell(args, {"times": args.times, "cuts": list(cuts)})


if __name__ == "__main__":
    main()

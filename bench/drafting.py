"""Drafting over a long line: tokens a second with n-gram drafts against none, two stages with a delay on every hop.

    python bench/drafting.py [--model demo] [--one-way-ms 25] [--repeats 5] [--draft ngram] [--only repeat] [--json]

One core and thread a stage. Three tasks: a text to repeat (aim: 3 times the tokens a second), code to edit (1.3) and
sampled prose that repeats nothing (within 3 %). The same prompt runs without and with drafts, in turn, in one run on
one ring; the first reply with drafts of each task is among those counted, and what a ring has learned it keeps for the
next, as a server does. All replies to a prompt must be the same text. Rates are of decoding, the prompt left out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from far_ring import far_ring, pin_far_ring
from harness import Pairs, Window, window
from results import Figure
from results import Result as Report
from ropeway.cli.session import place_local
from ropeway.launch.drafting import DraftOptions, open_drafting
from ropeway.launch.placement import Options
from ropeway.serving.loop import Loop
from ropeway.serving.sequence import SamplingParams, Sequence
from ropeway.serving.speech import PlainChooser, Speech

MENU = """Monday: leek soup, rye bread, apples
Tuesday: lentils with carrots, yoghurt
Wednesday: baked potatoes, herring, beetroot salad
Thursday: noodles with mushrooms, plums
Friday: pea stew, dark bread, pears
Saturday: pancakes, sour cherries
Sunday: roast chicken, rice, green beans"""

FERRY = """\
The old ferry left the harbour at half past six, when the fog still lay on the water. Eleven passengers stood at \
the rail: two farmers with a crate of apples, a schoolteacher, a man who repaired clocks, and a family that was \
moving to the island for good. Nobody spoke much. The engine was louder than it should have been, and the \
captain, a short woman with grey hair, listened to it with her head tilted to one side. When the bell rang on \
the breakwater she slowed down, turned the wheel a little to the north, and waited until the green lamp of the \
pier came out of the white."""

CODE = '''def total_price(items, tax_rate):
    """Sum the prices of the items and add the tax."""
    total = 0
    for item in items:
        if item.price < 0:
            raise ValueError("negative price")
        total += item.price * item.count
    return total * (1 + tax_rate)


def cheapest_item(items):
    """The item with the lowest price, or None."""
    best = None
    for item in items:
        if best is None or item.price < best.price:
            best = item
    return best
'''


@dataclass(frozen=True)
class Task:
    """A prompt, how its reply is drawn, and the ratio to reach."""

    prompt: str
    most: int
    params: SamplingParams
    aim: float


TASKS = {
    "repeat": Task(f"Repeat the following text word for word:\n\n{MENU}\n\n{FERRY}", 160, SamplingParams(), 3.0),
    "code": Task(
        f"```python\n{CODE}```\n\nAdd type hints to these functions and give the whole code again.",
        140,
        SamplingParams(),
        1.3,
    ),
    "prose": Task(
        "Describe a walk through a city that you have never seen before.",
        96,
        SamplingParams(temperature=0.8, top_p=0.95, seed=7),
        0.97,
    ),
}


@dataclass
class Result:
    """One task's replies: tokens a second with drafts and without, in pairs."""

    pairs: Pairs = field(default_factory=Pairs)
    all_pairs: Pairs = field(default_factory=Pairs)
    replies: set[tuple[int, ...]] = field(default_factory=set)
    others: list[float] = field(default_factory=list)

    def add(self, drafted: float, plain: float, *windows: Window) -> None:
        """Take in a pair."""
        self.pairs.add(drafted, plain, *windows)
        self.all_pairs.add(drafted, plain)
        self.others += [one.other_share for one in windows if one.other_share is not None]

    @property
    def counted(self) -> Pairs:
        """The pairs from quiet windows, or all where there was none."""
        return self.pairs if self.pairs.a else self.all_pairs


def reply(loop: Loop, numbers: Iterator[int], speech: Speech, task: Task) -> tuple[Sequence, float]:
    """One reply, and its tokens a second behind the first."""
    prompt = tuple(speech.prompt(task.prompt))
    sequence = Sequence(next(numbers), prompt, task.most, task.params, speech.vocabulary.end_tokens)
    loop.scheduler.add(sequence)
    while not sequence.produced:
        loop.step()
    started, first = time.perf_counter(), len(sequence.produced)
    while sequence.finish is None:
        loop.step()
    rate = (len(sequence.produced) - first) / (time.perf_counter() - started)
    while not loop.scheduler.idle:
        loop.step()
    return sequence, rate


def figures_of(name: str, result: Result) -> list[Figure]:
    """One task's figures."""
    pairs, task = result.counted, TASKS[name]
    return [
        Figure.of(f"{name}: without", "tokens/s", pairs.b),
        Figure.of(f"{name}: with drafts", "tokens/s", pairs.a),
        Figure.of(f"{name}: with / without", "times", pairs.ratios, limit=task.aim),
    ]


def note_of(name: str, result: Result) -> str:
    """Whether the text was the same, and how quiet it was."""
    text = "the same text in all" if len(result.replies) == 1 else "THE TEXT DIFFERS"
    busy = "" if result.pairs.a else f"; all are counted, others had {statistics.median(result.others or [0]):.0%}"
    return f"{name}: {text}; {len(result.pairs.a)} of {len(result.all_pairs.a)} pairs were quiet{busy}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--one-way-ms", type=float, default=25.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--draft", default="ngram", metavar="ngram|model:PATH")
    parser.add_argument("--draft-batch", action="store_true")
    parser.add_argument("--only", choices=list(TASKS), action="append")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    placement = place_local(Options(args.model, 2, threads=1, chunk=128, context=1024), None, None)
    results = {name: Result() for name in args.only or TASKS}
    speech = Speech(placement.path)
    with (
        far_ring(placement, args.one_way_ms / 1e3) as rank0,
        open_drafting(DraftOptions.parse(args.draft, batch=args.draft_batch), placement) as drafting,
    ):
        pids = pin_far_ring()
        plain, drafted = rank0.loop(PlainChooser()), rank0.loop(PlainChooser(), drafting=drafting)
        numbers = count()
        for repeat in range(args.repeats):
            for name, result in results.items():
                rates: dict[bool, float] = {}
                windows: list[Window] = []
                for with_drafts in (False, True) if repeat % 2 == 0 else (True, False):
                    with window(pids) as watched:
                        loop = drafted if with_drafts else plain
                        sequence, rates[with_drafts] = reply(loop, numbers, speech, TASKS[name])
                    windows.append(watched)
                    result.replies.add(tuple(sequence.produced))
                result.add(rates[True], rates[False], *windows)
    figures = tuple(figure for name, result in results.items() for figure in figures_of(name, result))
    notes = tuple(note_of(name, result) for name, result in results.items())
    setting = f"{args.model} on two stages, {args.one_way_ms:g} ms one way on every hop, --draft {args.draft}"
    same = all(len(result.replies) == 1 for result in results.values())
    Report("drafting", setting, figures, notes).tell(args, {"same_text": same, "one_way_ms": args.one_way_ms})


if __name__ == "__main__":
    main()

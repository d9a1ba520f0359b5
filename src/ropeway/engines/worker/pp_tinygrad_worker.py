"""A worker for the process bridge that computes with tinygrad.

`STAGE=0 NUM_STAGES=2 MODEL=x.gguf pp_tinygrad_worker.py` serves the first half of the layers.

`--engine NAME` puts another engine behind the pipe, `--stub` (or PP_WORKER_STUB=1) one without a model. Exit 0 at the
end of the input, 2 for a bad environment or a failed load. See docs/worker.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn


class _Text:
    """The checkpoint's own tokenizer."""

    def __init__(self, path: Path) -> None:
        from ropeway.engines.llamacpp.vocabulary import Vocabulary

        self._vocabulary = Vocabulary(path)
        self.end_tokens = sorted(self._vocabulary.end_tokens)

    def tokenize(self, text: str) -> list[int]:
        return self._vocabulary.tokenize(text, add_special=True, parse_special=True)

    def detokenize(self, tokens: Sequence[int]) -> str:
        return b"".join(self._vocabulary.piece(token) for token in tokens).decode(errors="replace")


def main() -> NoReturn:
    """Be a worker until the input ends."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    from ropeway.engines.worker.setting import EXIT_BAD

    arguments = _arguments()
    try:
        _serve(arguments)
    except Exception as error:  # whatever keeps it from loading or serving ends it with a status and a reason
        print(f"pp_tinygrad_worker: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        raise SystemExit(EXIT_BAD) from error
    sys.stderr.flush()
    os._exit(0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pp_tinygrad_worker.py", description=__doc__)
    parser.add_argument("--engine", default="tinygrad", help="an engine of Ropeway (tinygrad)")
    parser.add_argument("--stub", action="store_true", help="no model: rows derived from SHA-256")
    parser.add_argument("--hidden", type=int, default=16, help="width of a stub's rows")
    parser.add_argument("--vocabulary", type=int, default=32, help="tokens of a stub")
    parser.add_argument("--layers", type=int, default=8, help="layers of a stub")
    parser.add_argument("--lacks", default="", help="abilities not to declare: keep,save,head")
    return parser.parse_args()


def _serve(arguments: argparse.Namespace) -> None:
    from ropeway.engines.worker.host import Host, own_pipes, serve
    from ropeway.engines.worker.setting import read_setting

    requests, replies = own_pipes()
    setting = read_setting(os.environ)
    lacks = frozenset(arguments.lacks.split(",")) - {""}
    if arguments.stub or os.environ.get("PP_WORKER_STUB"):
        from ropeway.engines.worker.stub import StubEngine, StubText

        shape = {"hidden": arguments.hidden, "vocabulary": arguments.vocabulary, "layers": arguments.layers}
        host = Host(
            StubEngine(setting.config(arguments.layers), **shape),
            setting,
            vocabulary=arguments.vocabulary,
            layers=arguments.layers,
            span=setting.layer_range(arguments.layers),
            text=StubText(arguments.vocabulary),
            lacks=lacks,
        )
    else:
        from ropeway.checkpoints.checkpoint import resolve_checkpoint
        from ropeway.checkpoints.families import layer_count, vocabulary_size
        from ropeway.checkpoints.gguf_file import GgufFile
        from ropeway.engines.registry import make_engine

        path = resolve_checkpoint(setting.model)
        gguf = GgufFile.open(path)
        layers = layer_count(gguf)
        engine = make_engine(arguments.engine, setting.config(layers))
        engine.load()
        text = _Text(path)
        host = Host(
            engine,
            setting,
            vocabulary=vocabulary_size(gguf),
            layers=layers,
            span=setting.layer_range(layers),
            end_tokens=text.end_tokens,
            text=text,
            lacks=lacks,
        )
    serve(host, requests, replies)


if __name__ == "__main__":
    main()

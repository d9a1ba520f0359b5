"""What a rank of a run does: load its engine, join the ring, and follow rank 0 or, as rank 0, answer requests."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ropeway.engines.base import Engine, EngineError
from ropeway.launch.fetching import place_rank
from ropeway.launch.placement import Options, Placement
from ropeway.launch.rank import RankSetup, follow_with, ring_config
from ropeway.launch.rank0 import Rank0, common_grain, meet
from ropeway.serving.loop import Loop
from ropeway.serving.prompts import PromptTooLong
from ropeway.serving.sequence import Sequence
from ropeway.serving.speech import PlainChooser, Speech, generate
from ropeway.serving.template import TemplateError
from ropeway.serving.text import StreamDecoder
from ropeway.smoke.rank_child import Parent
from ropeway.transport import Ring, join
from ropeway.transport.switched import Switched
from ropeway.types import SamplerAt
from ropeway.wire import ErrorCode

BRING_UP_S: Final = 60.0
END: Final = "end"
"""What the ring's own end puts among the parent's lines."""


@dataclass(frozen=True, slots=True)
class ChildSetup:
    """The first line. `options` are those of `placement.Options` that are not its defaults; `listener` is an inherited
    descriptor; `reach` is how others are dialled, empty for plain TCP."""

    rank: int
    options: dict[str, Any]
    key: str
    listener: int
    reach: dict[str, Any]


def be_rank(parent: Parent, setup: ChildSetup) -> None:
    """Until the ring ends, which is raised. Raises EngineError, CheckpointError, ProtocolError, ValueError, OSError."""
    options = setup.options | {"engines": tuple(setup.options["engines"]), "sampler": SamplerAt.LAST}
    placement = place_rank(Options(**options), setup.rank, setup.options["stages"])
    started = time.monotonic()
    engine = placement.make_engine(setup.rank)
    engine.load()
    parent.say("loaded", load_ms=round((time.monotonic() - started) * 1000), weights_bytes=engine.weights_bytes)
    addresses = tuple(parent.expect("join")["addresses"])
    if placement.layout.world == 1:
        _answer_all(parent, placement, engine, None, addresses)
        return
    with join(ring_config(placement, _rank_setup(setup, addresses))) as ring:
        try:
            if setup.rank:
                parent.say("whole")
                who = f"stage {setup.rank} ({addresses[setup.rank]})"
                follow_with(engine, ring, placement, setup.rank, who, loaded=True)
            else:
                _answer_all(parent, placement, engine, ring, addresses)
        except (EngineError, MemoryError) as error:
            ring.fail(ErrorCode.ENGINE_FAILED, f"stage {setup.rank}: {error or 'out of memory'}")
            raise


def _rank_setup(setup: ChildSetup, addresses: tuple[str, ...]) -> RankSetup:
    listener = socket.socket(fileno=setup.listener)
    reach = Switched(Path(setup.reach["switch"]), setup.reach["ring"]) if setup.reach else None
    key = bytes.fromhex(setup.key)
    return RankSetup(setup.rank, addresses, key, listener=listener, bring_up_s=BRING_UP_S, switched=reach)


def _answer_all(
    parent: Parent, placement: Placement, engine: Engine, ring: Ring | None, addresses: tuple[str, ...]
) -> None:
    """Rank 0: check every stage's description, and answer requests until the parent or the ring ends."""
    stage, facts = meet(engine, placement, ring, addresses, loaded=True)
    loop = Rank0(placement, stage, ring, facts, common_grain(facts)).loop(PlainChooser())
    speech = Speech(placement.path)
    parent.say("whole")
    if ring is not None:
        ring.on_end(lambda: parent.lines.put({"op": END}))
    number = 0
    while (line := parent.lines.get()).get("op") == "generate":
        _answer(parent, loop, speech, number, line)
        number += 1
    if ring is not None:
        ring.check()


def _answer(parent: Parent, loop: Loop, speech: Speech, number: int, line: dict[str, Any]) -> None:
    """One request, greedily. Raises RingLost, EngineError."""
    vocabulary, decoder = speech.vocabulary, StreamDecoder()
    tokens: list[int] = []
    text = ""
    try:
        prompt = tuple(speech.prompt(str(line["prompt"])))
        sequence = Sequence(number, prompt, int(line["max_tokens"]), stop_ids=vocabulary.end_tokens)
        for token in generate(loop, sequence):
            tokens.append(token)
            if token not in sequence.stop_ids:
                text += decoder.push(vocabulary.piece(token))
    except (PromptTooLong, TemplateError) as error:
        parent.say("reply", id=line["id"], text="", token_ids=[], error=str(error))
        return
    parent.say("reply", id=line["id"], text=text + decoder.flush(), token_ids=tokens, error="")

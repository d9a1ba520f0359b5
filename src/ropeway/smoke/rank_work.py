"""What a rank of a run does: load its engine, join the ring, and follow rank 0 or, as rank 0, answer requests."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ropeway.engines.base import Engine
from ropeway.launch.fetching import place_rank
from ropeway.launch.placement import Options, Placement
from ropeway.launch.rank import RankSetup, ring_config
from ropeway.launch.rank0 import Rank0, StageFacts
from ropeway.serving.loop import Loop
from ropeway.serving.prompts import PromptTooLong
from ropeway.serving.sequence import Sequence
from ropeway.serving.speech import PlainChooser, Speech, generate
from ropeway.serving.template import TemplateError
from ropeway.serving.text import StreamDecoder
from ropeway.serving.vocabulary import open_vocabulary
from ropeway.smoke.rank_child import Parent
from ropeway.stage.describe import RELEASE, describe_stage
from ropeway.stage.follower import follow
from ropeway.stage.stage import Stage
from ropeway.transport import Ring, RingConfig, join
from ropeway.transport.switched import Switched
from ropeway.types import SamplerAt
from ropeway.wire import Describe, Expected, ProtocolError, Ready, check_description

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
    placement = place_rank(Options(**options), setup.rank)
    started = time.monotonic()
    engine = placement.make_engine(setup.rank)
    engine.load()
    parent.say("loaded", load_ms=round((time.monotonic() - started) * 1000), weights_bytes=engine.weights_bytes)
    addresses = tuple(parent.expect("join")["addresses"])
    if placement.layout.world == 1:
        _answer_all(parent, placement, engine, None)
        return
    with join(_config(placement, setup, addresses)) as ring:
        if setup.rank:
            _follow(parent, placement, setup.rank, engine, ring)
        else:
            _answer_all(parent, placement, engine, ring)


def _config(placement: Placement, setup: ChildSetup, addresses: tuple[str, ...]) -> RingConfig:
    listener = socket.socket(fileno=setup.listener)
    rank_setup = RankSetup(setup.rank, addresses, bytes.fromhex(setup.key), listener=listener, bring_up_s=BRING_UP_S)
    config = ring_config(placement, rank_setup)
    if not setup.reach:
        return config
    switched = Switched(Path(setup.reach["switch"]), setup.reach["ring"])
    return replace(config, connect=switched.connect, accepted=switched.accepted)


def _follow(parent: Parent, placement: Placement, rank: int, engine: Engine, ring: Ring) -> None:
    ring.describe(describe_stage(placement.layout, rank, engine))
    ring.ready(Ready(rank, 0, 0, engine.weights_bytes))
    end_tokens: frozenset[int] = frozenset()
    if rank == placement.layout.head_rank:
        vocabulary = open_vocabulary(placement.path)
        end_tokens = vocabulary.end_tokens
        vocabulary.close()
    parent.say("whole")
    follow(ring, Stage(engine), placement.layout, rank, end_tokens)


def _answer_all(parent: Parent, placement: Placement, engine: Engine, ring: Ring | None) -> None:
    """Rank 0: check every stage's description, and answer requests until the parent or the ring ends."""
    own = describe_stage(placement.layout, 0, engine)
    described = [own] if ring is None else [own, *ring.descriptions()]
    if ring is not None:
        _check(placement, ring, own, described)
    loaded = Ready(0, 0, 0, engine.weights_bytes)
    readies = [loaded] if ring is None else [loaded, *ring.readies()]
    facts = tuple(StageFacts(d, r, "") for d, r in zip(described, readies, strict=True))
    loop = Rank0(placement, Stage(engine), ring, facts).loop(PlainChooser())
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


def _check(placement: Placement, ring: Ring, own: Describe, described: list[Describe]) -> None:
    """Refuse a stage that does not suit the layout; raises RingLost."""
    for rank, describe in enumerate(described):
        expected = Expected(rank, own.chunk, own.max_rows, own.parallel, own.context, own.draft_width, RELEASE)
        try:
            check_description(placement.layout, expected, describe)
        except ProtocolError as error:
            ring.fail(error.code, error.detail, rank)
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

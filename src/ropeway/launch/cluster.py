"""A ring over the nodes of a cluster: who is there, who holds what, ranks started and held, and what their ends mean.

This is the orchestrator's side; it speaks to the agent here, and rank 0 runs in this process. A rank on another node
lives as long as our stream to its agent: whatever becomes of us, it ends.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Final

from ropeway import __version__
from ropeway.checkpoints.checkpoint import open_checkpoint
from ropeway.checkpoints.fetch.spec import is_remote
from ropeway.cluster.client import Agent, AgentError, MemberView, Talk
from ropeway.cluster.home import Home
from ropeway.cluster.job import Job, Weights
from ropeway.launch.cluster_cuts import Candidate, Chosen, DoesNotFit, choose
from ropeway.launch.fetching import place_rank
from ropeway.launch.keys import new_key
from ropeway.launch.placement import Options, Placement, place
from ropeway.launch.rank import EXIT_FAILED, RankSetup
from ropeway.launch.rank0 import Rank0, open_alone, open_ring
from ropeway.transport import Ring
from ropeway.wire import ErrorCode

_log = logging.getLogger("ropeway.cluster")

FACTS_S: Final = 2.0
"""How long a node may take to say what it has; one that does not is left out."""
START_S: Final = 15.0
ASIDE_S: Final = 60.0
"""How long a node on which a rank has failed by itself is taken only where no other will do."""
BRING_UP_S: Final = 600.0
"""A rank may have to fetch its layers first. Where one is lost meanwhile its agent says so at once."""
RING_NAME: Final = "ring-"
"""Before the name of a model, in the name that leads to the node which serves it."""
NAME_LETTERS: Final = 40
_PLAIN: Final = re.compile(r"[\w.-]+", re.ASCII)


class NotPlaced(OSError):
    """No ring can be placed now; the text says what is missing."""


class ClusterOpener:
    """Places a model on the nodes that are there, each time anew, and brings its ring up; an opener for `Replica`.

    `on_drain` is called, from a thread of its own, when a node of the ring is to be drained or leaves in good order.
    """

    pause_s: Final = 2.0
    """Longest pause between two tries to place a model: nodes come back whenever they do."""

    def __init__(self, options: Options, home: Home) -> None:
        if options.worker_cmd:
            raise ValueError("worker_cmd: nodes run no command that another one names; start such stages by hand")
        self._options = options
        self._home = home
        self._last: tuple[MemberView, ...] = ()
        self._failed: dict[str, float] = {}
        """Nodes on which a rank has ended by itself, and when (time.monotonic)."""
        self.on_drain: Callable[[str], None] = lambda _: None

    @contextlib.contextmanager
    def __call__(self, begun: Callable[[Ring], None]) -> Iterator[Rank0]:
        """Raises NotPlaced, and as `open_ring`."""
        try:
            agent = Agent(self._home)
            placement, chosen = self._place(agent)
        except AgentError as error:
            raise NotPlaced(str(error)) from error
        if placement.layout.world == 1:
            with open_alone(placement) as rank0:
                yield rank0
            return
        ranks = HeldRanks(agent, placement, chosen, self.on_drain, self._note_failure)
        try:
            setup = ranks.start()

            def joined_by_ranks(ring: Ring) -> None:
                ranks.watch(ring)
                begun(ring)

            with open_ring(placement, setup, joined_by_ranks) as rank0, _named_ring(agent, placement):
                yield rank0
        finally:
            ranks.end()

    def _place(self, agent: Agent) -> tuple[Placement, Chosen]:
        """Facts, search, layout. Raises NotPlaced, AgentError, CheckpointError, ValueError."""
        members = agent.members()
        placement = place(replace(self._options, stages=1, cuts=()))  # headers alone, of a model that is elsewhere
        usable = [member for member in members if member.usable or member.here]
        candidates = self._candidates(agent, usable, placement.layout.checkpoint)
        try:
            keep = [member.node for member in self._last]
            avoid = [node for node, at in self._failed.items() if time.monotonic() - at < ASIDE_S]
            chosen = choose(open_checkpoint(placement.path), self._options, candidates, keep, avoid)
        except DoesNotFit as error:
            raise NotPlaced(f"{error}{self._missing(members, candidates)}") from None
        used = {one.node for one in chosen.nodes}
        self._last = tuple(member for member in members if member.node in used)
        world = len(chosen.nodes)
        return place_rank(replace(self._options, stages=world, cuts=chosen.cuts), 0, world), chosen

    def _note_failure(self, node: str) -> None:
        self._failed[node] = time.monotonic()

    def _candidates(self, agent: Agent, members: list[MemberView], checkpoint: str) -> list[Candidate]:
        """The nodes that answer, this one first, with what was measured there of the checkpoint."""

        def ask(member: MemberView) -> Candidate | None:
            try:
                facts = agent.call("facts", member.node, FACTS_S, checkpoint=checkpoint)
            except AgentError as error:
                _log.warning("%s is left out: %s", member.label, error)
                return None
            if facts.get("release") != __version__:
                _log.warning(
                    "%s is left out: its release is %s, not %s", member.label, facts.get("release"), __version__
                )
                return None
            return None if facts.get("draining") and not member.here else Candidate(member.node, member.label, facts)

        with ThreadPoolExecutor(min(len(members), 16), "facts") as pool:
            found = [one for one in pool.map(ask, members) if one is not None]
        if not found or found[0].node != agent.node:
            raise NotPlaced("the agent here does not say what this machine has")
        return found

    def _missing(self, members: list[MemberView], candidates: list[Candidate]) -> str:
        """Which nodes could be there and are not."""
        there = {one.node for one in candidates}
        known = {member.node: member for member in (*self._last, *(one for one in members if one.state != "left"))}
        absent = sorted(f"{member.label} ({_absence(member)})" for member in known.values() if member.node not in there)
        return f"; missing: {', '.join(absent)}" if absent else ""


class HeldRanks:
    """The ranks from 1 on, held by streams to the agents of their nodes."""

    def __init__(
        self,
        agent: Agent,
        placement: Placement,
        chosen: Chosen,
        on_drain: Callable[[str], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._agent = agent
        self._placement = placement
        self._nodes = chosen.nodes
        self._on_drain = on_drain
        self._on_failure = on_failure
        self._ring_id = secrets.token_hex(6)
        self._key = new_key()
        self._addresses = tuple(f"{_called(one)}:{rank}" for rank, one in enumerate(chosen.nodes))
        self._listener = agent.listener(self._ring_id, 0)
        self._talks: dict[int, Talk] = {}
        self._shelf: Talk | None = None
        self._watchers: list[threading.Thread] = []
        self._ended = threading.Event()

    def start(self) -> RankSetup:
        """Start every rank; rank 0's part in the ring. Raises NotPlaced, with no rank left behind by `end`."""
        weights = self._shelve()
        for rank, one in enumerate(self._nodes[1:], 1):
            options = _plain(self._placement.options)
            job = Job(self._ring_id, rank, options, self._addresses, self._key, BRING_UP_S, weights)
            try:
                self._talks[rank] = self._agent.open("run", one.node, START_S, job=job.dump())
            except AgentError as error:
                raise NotPlaced(f"{one.label} does not take rank {rank}: {error}") from None
        return RankSetup(
            0,
            self._addresses,
            self._key,
            listener=self._listener,
            bring_up_s=BRING_UP_S,
            switched=self._agent.switched(self._ring_id),
        )

    def _shelve(self) -> Weights:
        """Let the nodes have the model's bytes of us; one that is elsewhere they fetch themselves."""
        options = self._placement.options
        if is_remote(options.model):
            return Weights()
        try:
            self._shelf = self._agent.open("shelve", path=str(self._placement.path.absolute()))
        except AgentError as error:
            raise NotPlaced(f"the model cannot be given to the nodes: {error}") from None
        nodes = tuple(one.node for one in self._nodes)
        return Weights(self._placement.path.name, self._shelf.reply["keys"], nodes)

    def watch(self, ring: Ring) -> None:
        """From now on the end of a rank, or of its node, ends `ring`."""
        for rank, talk in self._talks.items():
            watcher = threading.Thread(target=self._watch, args=(ring, rank, talk), name=f"rank {rank}", daemon=True)
            self._watchers.append(watcher)
            watcher.start()

    def end(self) -> None:
        """Let every rank go; its agent ends it."""
        self._ended.set()
        for talk in self._talks.values():
            talk.close()
        if self._shelf is not None:
            self._shelf.close()
        self._listener.close()
        self._agent.running.ring(self._ring_id, 0).unlink(missing_ok=True)
        for watcher in self._watchers:
            watcher.join(1.0)

    def _watch(self, ring: Ring, rank: int, talk: Talk) -> None:
        where = f"rank {rank} ({self._addresses[rank]})"
        why = f"{where} was lost: its node cannot be reached any more"
        try:
            while (line := talk.receive()) is not None:
                if line.get("event") in ("drain", "leaving"):
                    threading.Thread(
                        target=self._on_drain, args=(self._nodes[rank].label,), name="drain", daemon=True
                    ).start()
                elif line.get("event") == "ended":
                    why = f"{where} has ended with status {line.get('status')}: {line.get('told', '')}".rstrip(": ")
                    if line.get("status") == EXIT_FAILED:
                        self._on_failure(self._nodes[rank].node)
                    break
        except AgentError as error:
            why = f"{where} was lost: {error}"
        if not self._ended.is_set() and ring.end is None:
            ring.fail(ErrorCode.PEER_LOST, why, rank)


@contextlib.contextmanager
def _named_ring(agent: Agent, placement: Placement) -> Iterator[None]:
    """The model's name leads here while its ring is ready; where another server has the name, it stays theirs."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(AgentError):
            stack.enter_context(agent.register(f"{RING_NAME}{placement.path.stem}"[:NAME_LETTERS]))
        yield


def _absence(member: MemberView) -> str:
    """Why a node is not used."""
    if member.draining:
        return "drained"
    return "it does not answer" if member.state == "alive" else member.state


def _called(candidate: Candidate) -> str:
    """A node in an address: its label where that can be read in one, else the beginning of its id."""
    return candidate.label if _PLAIN.fullmatch(candidate.label) else candidate.node[:16]


def _plain(options: Options) -> dict[str, object]:
    """Options as JSON has them."""
    return {**asdict(options), "sampler": options.sampler.value}

"""`pp-gpu-node`: a stage of a run. Cluster joined, engine loaded, names registered when what they name is ready.

`pp-stage-i` once the engine is loaded, `pp-exit` once the last stage is in the ring, `pp-entry` last of all, once rank
0 has checked every stage. The node watches its rank and its orchestrator, and is never delayed by a forward: the engine
has a process of its own.
"""

from __future__ import annotations

import os
import queue
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from ropeway.cluster.client import AgentError
from ropeway.cluster.messages import ENTRY, EXIT, ORCHESTRATOR, InferenceRequest, InferenceResponse, stage_name
from ropeway.smoke.cluster import Cluster, Inbox, join_cluster, ring_id, ring_key
from ropeway.smoke.environment import NodeSettings
from ropeway.smoke.health import Pulse
from ropeway.smoke.hidden import for_children
from ropeway.smoke.rank_process import RankProcess
from ropeway.smoke.selfdestruct import self_destruct

LOOK_S: Final = 0.1
JOIN_S: Final = 120.0
BEAT_S: Final = 1.0
"""Between two looks of the watchdog, whose thread may not have had its turn for a while."""
RETRY_S: Final = 2.0
"""Between two tries to join."""
EXIT_FAILED: Final = 1
OUR_WORKER: Final = shlex.join([sys.executable, "-m", "ropeway.engines.worker.pp_tinygrad_worker"])


class NodeFailed(Exception):
    """The stage cannot go on; the text is for people."""


def say(text: str) -> None:
    """A line for people in the instance's log."""
    with suppress(OSError):
        os.write(2, f"pp-gpu-node: {text}\n".encode())


class Node:
    """A stage that has joined. `run` until it ends."""

    def __init__(self, settings: NodeSettings, cluster: Cluster, rank: RankProcess, seen: Callable[[], None]) -> None:
        self._settings = settings
        self._cluster = cluster
        self._rank = rank
        self._seen = seen
        self._pulse = Pulse(os.environ)
        self._joined = self._loaded = self._whole = self._done = False
        self._entry: Inbox | None = None
        self._asked: dict[str, InferenceRequest] = {}
        self._boxes = ExitStack()

    def run(self) -> bool:
        """Until it fails or the process is ended; whether the orchestrator has heard why."""
        try:
            while True:
                self._turn()
        except (NodeFailed, AgentError) as error:
            say(str(error))
            return self._tell_failure(str(error))
        finally:
            self._boxes.close()

    def _turn(self) -> None:
        """One look at everything; sleeps for a moment in whatever it waits for."""
        self._pulse.beat()
        self._hear_rank()
        names = self._cluster.names()
        if ORCHESTRATOR in names:
            self._seen()
        settings = self._settings
        last = settings.num_stages - 1
        if self._loaded and not self._joined and all(stage_name(i) in names for i in range(settings.num_stages)):
            self._rank.say("join", addresses=self._cluster.rank_addresses(settings.num_stages))
            self._joined = True
        if self._whole and not self._done and (settings.stage != 0 or EXIT in names or last == 0):
            if settings.stage == last:
                self._register(EXIT)
            if settings.stage == 0:
                self._entry = self._register(ENTRY)
            self._done = True
        if self._entry is None:
            time.sleep(LOOK_S)
            return
        with suppress(TimeoutError):
            message = self._entry.receive(LOOK_S)
            if isinstance(message, InferenceRequest):
                self._ask(message)

    def _register(self, name: str) -> Inbox:
        inbox = self._cluster.listen(name)
        self._boxes.callback(inbox.close)
        say(f"registered {name}")
        return inbox

    def _hear_rank(self) -> None:
        status = self._rank.status
        while True:
            try:
                event = self._rank.events.get_nowait()
            except queue.Empty:
                break
            self._take(event)
        if status is not None:
            raise NodeFailed(f"the rank has ended with {_ending(status)}: {last_words(self._rank.tail)}")

    def _take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "loaded":
                say(f"loaded {event['weights_bytes'] / 1e6:.1f} MB in {event['load_ms']} ms")
                self._loaded = True
                self._register(stage_name(self._settings.stage))
            case "whole":
                say("the ring is whole")
                self._whole = True
            case "reply":
                request = self._asked.pop(event["id"])
                tokens = tuple(event["token_ids"])
                self._reply(request, InferenceResponse(event["text"], tokens, event["id"], event["error"]))
            case "failed":
                raise NodeFailed(event["reason"])

    def _ask(self, request: InferenceRequest) -> None:
        say(f"answering a request of {len(request.prompt)} characters")
        key = request.request_id or str(len(self._asked))
        self._asked[key] = request
        self._rank.say("generate", id=key, prompt=request.prompt, max_tokens=request.max_tokens)

    def _reply(self, request: InferenceRequest, response: InferenceResponse) -> None:
        try:
            self._cluster.send(request.reply_to, response)
        except AgentError as error:
            say(f"the reply could not be sent to {request.reply_to}: {error}")

    def _tell_failure(self, reason: str) -> bool:
        """Whoever waits for an answer hears why there is none, and so does the orchestrator; whether that has."""
        error = f"stage {self._settings.stage}: {reason}"
        for request in self._asked.values():
            if request.reply_to != ORCHESTRATOR:
                self._reply(request, InferenceResponse("", (), request.request_id, error))
        try:
            self._cluster.send(ORCHESTRATOR, InferenceResponse("", (), "", error))
        except AgentError:
            return False
        return True


class Watchdog:
    """Ends the node when its orchestrator has not been seen for `orphan_s`, whatever the rest of it is doing."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._seen_at = time.monotonic()

    def seen(self) -> None:
        """The orchestrator is there."""
        self._seen_at = time.monotonic()

    @property
    def unseen_s(self) -> float:
        """Seconds since it was there."""
        return time.monotonic() - self._seen_at

    def start(self) -> None:
        """Watch from now on."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stay(self) -> None:
        """Wait until it ends the node."""
        threading.Event().wait()

    def orphaned(self) -> None:
        """Nobody will come: give this instance back."""
        self_destruct(self._settings, say, time.sleep)

    def _watch(self) -> None:
        limit_s = self._settings.orphan_s
        while (left := limit_s - self.unseen_s) > 0:
            time.sleep(min(left, BEAT_S))
        say(f"the orchestrator was not seen for {limit_s:g} s")
        self.orphaned()
        os._exit(EXIT_FAILED)


def serve(settings: NodeSettings) -> int:
    """Be the node until it ends; the exit status."""
    watchdog = Watchdog(settings)
    watchdog.start()
    if settings.end_with_stdin:
        threading.Thread(target=_end_with_stdin, name="parent", daemon=True).start()
    told = False
    try:
        with ExitStack() as stack:
            cluster = stack.enter_context(_joined(settings))
            say(f"joined as {cluster.node[:16]}, stage {settings.stage} of {settings.num_stages}")
            rank = _start_rank(settings, cluster)
            stack.callback(rank.end)
            told = Node(settings, cluster, rank, watchdog.seen).run()
    except (AgentError, ValueError) as error:
        say(str(error))
    if not told and not settings.end_with_stdin:
        # A machine whose process has ended cannot give itself back: stay until the watchdog does that.
        say("the orchestrator is not there; this process waits for it to come back, or for its own time to end")
        watchdog.stay()
    return EXIT_FAILED


@contextmanager
def _joined(settings: NodeSettings) -> Iterator[Cluster]:
    """The cluster, joined as soon as it can be within `JOIN_S`. Raises AgentError, or ValueError for no ticket."""
    give_up = time.monotonic() + JOIN_S
    with ExitStack() as stack:
        while True:
            left = give_up - time.monotonic()
            try:
                cluster = stack.enter_context(
                    join_cluster(settings.ticket, f"stage-{settings.stage}", left, settings.reach)
                )
                break
            except AgentError as error:
                if left <= RETRY_S:
                    raise
                say(f"{error}; once more in {RETRY_S:g} s")
                time.sleep(RETRY_S)
        yield cluster


def _start_rank(settings: NodeSettings, cluster: Cluster) -> RankProcess:
    options = {
        "model": settings.model,
        "stages": settings.num_stages,
        "context": settings.context,
        "threads": settings.threads,
        "gpu_layers": settings.gpu_layers,
        "engines": [settings.engine] if settings.engine else [],
        "worker_cmd": (settings.worker_cmd or OUR_WORKER) if settings.engine == "worker" else "",
    }
    ring = ring_id(settings.label)
    setup = {
        "options": options,
        "key": ring_key(settings.ticket).hex(),
        "reach": cluster.rank_reach(ring),
    }
    with cluster.rank_listener(ring, settings.stage) as listener:
        return RankProcess(settings.stage, setup, listener, for_children(os.environ))


def _end_with_stdin() -> None:
    """The parent of a local node has gone, or lets it go: the rank ends with our end of its pipe."""
    while os.read(0, 4096):
        pass
    os._exit(0)


def _ending(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"signal {-status}"


def last_words(tail: list[str]) -> str:
    """What says the most: the last line that begins at the margin, as an error's does and the text that it goes on with
    mostly does not."""
    said = [line for line in tail if line.strip()] or ["it said nothing"]
    return next((line for line in reversed(said) if not line[0].isspace()), said[-1]).removeprefix("pp-gpu-node: ")

"""What `pp-gpu-node` is told: environment variables, each judged by name before anything starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ropeway.cluster.settings import DEFAULT_RELAYS, check_relays
from ropeway.launch.vastai import SERVER, check_server
from ropeway.smoke.cluster import Reach, check_ticket
from ropeway.smoke.models import find_model
from ropeway.transport.iroh.endpoint import complete

ORPHAN_S: Final = 600.0
"""How long a node that does not see its orchestrator waits before it destroys itself."""
MAX_STAGES: Final = 64


class BadVariable(ValueError):
    """A variable is missing or wrong; `name` says which. The text never holds a secret's value."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """A stage of a run: `STAGE` of `NUM_STAGES`, the ticket of the orchestrator's cluster, and what to load."""

    stage: int
    num_stages: int
    ticket: str = field(repr=False)
    model: str
    label: str = "smoke"
    engine: str = ""
    worker_cmd: str = ""
    """The command of the engine `worker`; by default Ropeway's own, which puts tinygrad behind the bridge."""
    context: int = 2048
    threads: int = 0
    gpu_layers: int = -1
    orphan_s: float = ORPHAN_S
    end_with_stdin: bool = False
    """A local node's parent holds its standard input open for as long as it lives."""
    reach: Reach = field(default_factory=Reach)
    """RELAYS (default, none, or URLs) and BIND (HOST:PORT with commas between), for a cluster over iroh."""
    container_id: str = ""
    container_key: str = field(default="", repr=False)
    """The service's own key for this one instance, with which it can destroy itself."""
    server: str = SERVER


def read_settings(variables: Mapping[str, str]) -> NodeSettings:
    """The settings in an environment. Raises BadVariable, the first one in the order of NodeSettings."""
    num_stages = _integer(variables, "NUM_STAGES", 1, MAX_STAGES)
    return NodeSettings(
        stage=_integer(variables, "STAGE", 0, num_stages - 1),
        num_stages=num_stages,
        ticket=_ticket(variables),
        model=find_model(_text(variables, "MODEL")),
        label=_text(variables, "RUN_LABEL", "smoke"),
        engine=_engine(variables),
        worker_cmd=_text(variables, "WORKER_CMD", ""),
        context=_integer(variables, "CONTEXT", 1, 1 << 20, 2048),
        threads=_integer(variables, "THREADS", 0, 1024, 0),
        gpu_layers=_integer(variables, "GPU_LAYERS", -1, 10_000, -1),
        orphan_s=float(_integer(variables, "ORPHAN_S", 1, 86_400, int(ORPHAN_S))),
        end_with_stdin=_integer(variables, "END_WITH_STDIN", 0, 1, 0) == 1,
        reach=_reach(variables),
        container_id=_text(variables, "CONTAINER_ID", ""),
        container_key=_text(variables, "CONTAINER_API_KEY", ""),
        server=_server(variables),
    )


def _text(variables: Mapping[str, str], name: str, default: str | None = None) -> str:
    value = variables.get(name, "").strip()
    if value:
        if not value.isprintable():
            raise BadVariable(name, "it has control characters")
        return value
    if default is None:
        raise BadVariable(name, "it is not set")
    return default


def _integer(variables: Mapping[str, str], name: str, least: int, most: int, default: int | None = None) -> int:
    text = _text(variables, name, None if default is None else str(default))
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise BadVariable(name, f"{text!r} is not a whole number")
    if not least <= int(text) <= most:
        raise BadVariable(name, f"{text} is outside {least}..{most}")
    return int(text)


def _judge(name: str, check: Callable[[], object]) -> None:
    """Raise what `check` refuses with the variable's name for its field's."""
    try:
        check()
    except ValueError as error:
        raise BadVariable(name, re.sub(r"^[a-z-]+: ", "", str(error))) from None


def _ticket(variables: Mapping[str, str]) -> str:
    ticket = _text(variables, "SEED_ADDR")
    _judge("SEED_ADDR", lambda: check_ticket(ticket))
    return ticket


def _engine(variables: Mapping[str, str]) -> str:
    from ropeway.engines.registry import engine_entry

    name = _text(variables, "ENGINE", "")
    if name:
        _judge("ENGINE", lambda: engine_entry(name))
    return name


def _reach(variables: Mapping[str, str]) -> Reach:
    reach = Reach(
        _text(variables, "RELAYS", DEFAULT_RELAYS),
        tuple(address for address in _text(variables, "BIND", "").split(",") if address),
    )
    _judge("RELAYS", lambda: check_relays(reach.relays))
    _judge("BIND", lambda: complete(reach.bind))
    return reach


def _server(variables: Mapping[str, str]) -> str:
    url = _text(variables, "VAST_URL", SERVER)
    _judge("VAST_URL", lambda: check_server(url))
    return url

"""Variables that hold secrets: no process that a run or a node starts finds them in its environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SECRETS: Final = ("SEED_ADDR", "CONTAINER_API_KEY", "VAST_API_KEY")


def for_children(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment without the secrets."""
    return {name: value for name, value in variables.items() if name not in SECRETS}

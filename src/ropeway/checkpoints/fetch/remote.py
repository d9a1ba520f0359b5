"""Remote models for callers that want a path: the whole one, or one that holds no weights yet."""

from __future__ import annotations

from pathlib import Path

from ropeway.checkpoints.cache import cache_directory
from ropeway.checkpoints.fetch.bar import progress_bar
from ropeway.checkpoints.fetch.offer import open_offer
from ropeway.checkpoints.fetch.provide import Fetch


def fetch_whole(model: str, cache: Path | None = None) -> Path:
    """The GGUF file or the directory of a remote `model` in the cache, with a progress bar on stderr.

    Raises CheckpointError when it cannot be fetched or stored, ValueError for a malformed name.
    """
    with open_offer(model, cache=cache) as offer, progress_bar(f"Fetching {offer.text}") as progress:
        return Fetch(offer, cache or cache_directory(), progress=progress).provide(None).path


def fetch_header(model: str, cache: Path | None = None) -> Path:
    """The same with the headers and the small files alone: enough to place it. Raises as `fetch_whole`."""
    with open_offer(model, cache=cache) as offer:
        return Fetch(offer, cache or cache_directory()).header()

"""The one exception of this room."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint could not be read, cut, stored or fetched; the text is for people and names the file."""

"""The ring's shared key: 32 random bytes in a file that only its owner may read, written as hex."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from ropeway.wire import KEY_BYTES


def new_key() -> bytes:
    """A fresh key."""
    return secrets.token_bytes(KEY_BYTES)


def write_key(path: Path) -> None:
    """Write a fresh key to a new file of mode 0600. Raises ValueError if the file exists or cannot be made."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ValueError(f"key: {path} exists already; a key is never overwritten") from None
    except OSError as error:
        raise ValueError(f"key: {path} cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "w") as file:
        file.write(new_key().hex() + "\n")


def read_key(path: Path) -> bytes:
    """The key in `path`. Raises ValueError; the text never holds what the file holds."""
    try:
        mode = path.stat().st_mode
        text = path.read_text(errors="replace").strip()
    except OSError as error:
        raise ValueError(f"key: {path} cannot be read: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise ValueError(f"key: {path} can be read by other users; run: chmod 600 {path}")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"key: {path} is not a key file: expected {2 * KEY_BYTES} hex digits (ropeway key new FILE)")
    return key

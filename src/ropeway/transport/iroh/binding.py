"""The `iroh` package, with the byte-wise copy of its bindings replaced.

The bindings of the known versions copy what is sent byte by byte in Python, 0.1 to 0.2 us each with the interpreter
locked: 6 ms for 40 KiB. The replacement is one `memmove`; it is tested against the real memory before it is used.
"""

from __future__ import annotations

import ctypes
import logging
from importlib import metadata
from types import ModuleType
from typing import Any, Final

log = logging.getLogger("ropeway.iroh")

KNOWN: Final = frozenset({"1.2.0"})
"""Versions whose bindings have the slow copy in a form that we know."""
_SIZES: Final = (0, 1, 15, 16, 17, 4096, 70_000)


class IrohMissing(ValueError):
    """The extra is not installed, or its bindings are not what they were."""


def load() -> ModuleType:
    """The `iroh` module, with its copy replaced where the version is known to need it. Raises IrohMissing."""
    try:
        import iroh
        from iroh import iroh_ffi
    except ImportError as error:
        raise IrohMissing(f"iroh: the package is not installed here: pip install 'ropeway[iroh]' ({error})") from None
    version = metadata.version("iroh")
    if version in KNOWN:
        replace_copy(iroh_ffi)
    else:
        log.info("iroh %s: not a version whose copy we know; left as it is", version)
    module: ModuleType = iroh
    return module


def replace_copy(bindings: Any) -> None:
    """Replace the copy in these bindings, once. Raises IrohMissing where the replacement does not do what it should."""
    builder = bindings._UniffiRustBufferBuilder
    if builder.write is _write:
        return
    before = builder.write
    builder.write = _write
    try:
        for size in _SIZES:
            check_copy(bindings, size)
    except BaseException as error:
        builder.write = before
        raise IrohMissing(f"iroh: its bindings are not those that version {sorted(KNOWN)} has: {error!r}") from error


def check_copy(bindings: Any, size: int) -> None:
    """Write a number, `size` bytes and a number into memory of the library, and read them back. Raises ValueError."""
    value = bytes(range(256)) * (size // 256 + 1)
    builder = bindings._UniffiRustBufferBuilder()
    builder.write_u32(0xA1B2C3D4)
    builder.write(value[:size])
    builder.write_u8(0x5E)
    buffer = builder.finalize()
    try:
        got = buffer.data[: buffer.len]
    finally:
        buffer.free()
    if got != b"\xa1\xb2\xc3\xd4" + value[:size] + b"\x5e":
        raise ValueError(f"a copy of {size} bytes came out as another")


def _write(self: Any, value: bytes) -> None:
    count = len(value)
    with self._reserve(count):
        target = ctypes.addressof(self.rbuf.data.contents) + self.rbuf.len
        ctypes.memmove(target, value if isinstance(value, bytes) else bytes(value), count)

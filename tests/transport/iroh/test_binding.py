"""The replaced copy of iroh's bindings: it is the same as theirs, and refuses bindings that it does not know."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("iroh", reason="the iroh extra is not installed")

from ropeway.transport.iroh.binding import IrohMissing, check_copy, load, replace_copy


def test_the_copy_is_replaced_and_writes_what_theirs_wrote() -> None:
    load()
    from iroh import iroh_ffi

    write = iroh_ffi._UniffiRustBufferBuilder.write
    assert write.__module__ == "ropeway.transport.iroh.binding"
    for size in (0, 1, 12, 13, 1 << 20):
        check_copy(iroh_ffi, size)
    load()
    assert iroh_ffi._UniffiRustBufferBuilder.write is write


class Memory:
    """What a library's buffer looks like to the self-test."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.len = len(data)

    def free(self) -> None:
        pass


def bindings(result: bytes) -> Any:
    """Bindings whose buffers always come out as `result`."""

    class Builder:
        def write_u32(self, value: int) -> None:
            pass

        write_u8 = write_u32

        def write(self, value: bytes) -> None:
            pass

        def _reserve(self, count: int) -> Any:
            raise AttributeError("another layout")

        def finalize(self) -> Memory:
            return Memory(result)

    class Bindings:
        _UniffiRustBufferBuilder = Builder

    return Bindings


def test_other_bindings_are_refused_and_left_as_they_were() -> None:
    other = bindings(b"")
    before = other._UniffiRustBufferBuilder.write
    with pytest.raises(IrohMissing, match="another layout"):
        replace_copy(other)
    assert other._UniffiRustBufferBuilder.write is before


def test_a_copy_that_comes_out_as_another_is_found() -> None:
    with pytest.raises(ValueError, match="a copy of 4 bytes"):
        check_copy(bindings(b"\xa1\xb2\xc3\xd4\0\1\2\4\x5e"), 4)
    check_copy(bindings(b"\xa1\xb2\xc3\xd4\0\1\2\3\x5e"), 4)

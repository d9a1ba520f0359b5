"""A slot's state as bytes, and back: a JSON header (what lies where), then the tensors' own bytes.

What is kept of recurrent layers: the state at the end, and the one at the last multiple of GRAIN before it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor

from ropeway.engines.base import EngineError
from ropeway.engines.torch.slot import GRAIN, Call, KeyValues, Recurrent, Slot, States

_LENGTH: Final = struct.Struct("<Q")
_DTYPES: Final = {str(dtype): dtype for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64)}


def dump_slot(slot: Slot) -> bytes:
    """The slot's state."""
    aligned = next((call for call in reversed(slot.calls) if call.first % GRAIN == 0 and call.before), None)
    tensors = list(_tensors(slot, aligned))
    header = {
        "position": slot.position,
        "aligned": None if aligned is None else aligned.first,
        "tensors": [[name, str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors],
    }
    text = json.dumps(header).encode()
    pieces = [_LENGTH.pack(len(text)), text]
    pieces += [tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes() for _, tensor in tensors]
    return b"".join(pieces)


def load_slot(state: bytes, context: int, device: torch.device) -> Slot:
    """A slot in the state that `dump_slot` gave. Raises EngineError for bytes that are not whole."""
    slot = Slot(context)
    try:
        at = _LENGTH.size + _LENGTH.unpack_from(state)[0]
        header = json.loads(state[_LENGTH.size : at])
        slot.position = header["position"]
        before: States = {}
        for name, dtype, shape in header["tensors"]:
            tensor = torch.empty(shape, dtype=_DTYPES[dtype])
            size = tensor.nbytes
            if len(state) < at + size:
                raise EngineError("a saved state is cut off")
            tensor.view(-1).view(torch.uint8).copy_(
                torch.frombuffer(bytearray(state[at : at + size]), dtype=torch.uint8)
            )
            at += size
            _put(slot, before, name.split("."), tensor.to(device))
    except (KeyError, ValueError, struct.error) as error:
        raise EngineError(f"a saved state cannot be read: {error!r}") from error
    if header["aligned"] is not None:
        first = header["aligned"]
        slot.calls = [Call(first, slot.position - first, before, None)]
    return slot


def _tensors(slot: Slot, aligned: Call | None) -> Iterator[tuple[str, Tensor]]:
    for layer, kept in slot.attention.items():
        for name, rows in zip(("keys", "values", "index"), kept.parts(), strict=True):
            if rows.length:
                yield f"{name}.{layer}", rows.read()
    yield from _states("now", slot.states)
    if aligned is not None and aligned.before is not None:
        yield from _states("before", aligned.before)


def _states(when: str, states: States) -> Iterator[tuple[str, Tensor]]:
    for layer, state in states.items():
        for number, tensor in state.conv.items():
            yield f"{when}.{layer}.{number}", tensor
        if state.matrix is not None:
            yield f"{when}.{layer}.matrix", state.matrix


def _put(slot: Slot, before: States, name: list[str], tensor: Tensor) -> None:
    kind, layer = name[0], int(name[1])
    if kind in ("now", "before"):
        states: dict[int, Any] = slot.states if kind == "now" else before
        state = states.setdefault(layer, Recurrent())
        if name[2] == "matrix":
            state.matrix = tensor
        else:
            state.conv[int(name[2])] = tensor
        return
    kept = slot.attention.setdefault(layer, KeyValues())
    rows = kept.parts()[("keys", "values", "index").index(kind)]
    rows.append(tensor, slot.context)

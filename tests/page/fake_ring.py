"""Rings that exist nowhere: the JSON of GET /v1/ring for any number of stages, at any moment. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

KINDS = (
    ("llamacpp", "cuda", "10.0.0.4:7400"),
    ("llamacpp", "metal", "studio.local:7400"),
    ("torch", "cpu", "10.0.0.17:7400"),
    ("tinygrad", "rocm", "10.0.0.23:7400"),
    ("mlx", "metal", "[fd00::8]:7400"),
    ("llamacpp", "vulkan", "203.0.113.7:7400"),
)


@dataclass(frozen=True, slots=True)
class Load:
    """What the fake ring is doing."""

    streams: int = 1
    parts: int = 1
    rows: int = 1
    per_s: float = 68.0
    waiting: int = 0


IDLE = Load(streams=0, parts=0, rows=0, per_s=0.0)


def ring_at(t: float, stages: int = 2, load: Load | None = None, layers: int = 30, sampler: str = "first") -> Json:
    """The ring `t` seconds after its start."""
    load = load or Load()
    cuts = [round(layers * i / max(1, stages)) for i in range(stages + 1)]
    busy = load.per_s > 0 and stages > 0
    forward = [(6.1 + 2.2 * wave(t, i)) * 2 / stages for i in range(stages)]
    last_ms = sum(forward) + 0.2 * (stages if stages > 1 else 0)
    return {
        "state": "ready",
        "detail": "",
        "uptime_s": round(723 + t, 1),
        "placement": "rw-1a2b3c4d5e6f",
        "sampler": sampler,
        "model": {
            "id": "SmolLM2-135M-Instruct",
            "layers": layers,
            "hidden": 576,
            "context": 4096,
            "checkpoint": "b1" * 32,
        },
        "stages": [_stage(t, i, stages, cuts, forward[i], last_ms, busy) for i in range(stages)],
        "links": [{"from": i, "to": (i + 1) % stages, "row_bytes": 2304} for i in range(stages) if stages > 1],
        "round": {
            "number": int(t * load.per_s) + 4711,
            "rows": load.rows,
            "parts": load.parts,
            "last_ms": round(last_ms, 2),
            "per_s": round(load.per_s * (0.97 + 0.06 * wave(t, 9)), 2),
            "wire_ms": round(0.2 * (stages if stages > 1 else 0), 2),
        },
        "overlap": {
            "at_work": round(sum(forward) / last_ms * min(stages, 1 + 0.4 * (load.parts - 1)), 3) if busy else None,
            "possible": round(min(stages, 1 + 0.4 * (load.parts - 1)), 3) if busy else None,
            "efficiency": round(sum(forward) / last_ms, 4) if busy else None,
        },
        "streams": [_stream(t, i, load) for i in range(load.streams)],
        "slots": {"used": min(8, load.streams), "total": 8},
        "queue": {"waiting": load.waiting, "limit": 64},
        "throughput": {
            "tokens_per_s": round(load.per_s * max(1, min(8, load.streams)) * (0.55 + 0.45 * wave(t, 4)), 1),
            "prompt_tokens_per_s": round(240 * wave(t, 2), 1) if busy else 0.0,
        },
        "prompt_cache": {
            "entries": 3,
            "bytes": 118_000_000,
            "limit_bytes": 268_435_456,
            "hits": 14,
            "misses": 9,
            "hit_tokens": 21_460,
        },
        "recent": [
            finished(11 - i, stages, 40 if i % 2 == 0 else 24 + i, cached=512 * (i % 3))
            for i in range(4 if stages else 0)
        ],
    }


def wave(t: float, seed: int) -> float:
    """Something smooth between 0 and 1."""
    return 0.5 + 0.25 * math.sin(t * 0.9 + seed) + 0.25 * math.sin(t * 0.37 + seed * 2.1)


def _stage(t: float, i: int, stages: int, cuts: list[int], forward: float, last_ms: float, busy: bool) -> Json:
    engine, backend, address = KINDS[i % len(KINDS)] if stages > 2 else ("llamacpp", "cpu", f"127.0.0.1:{7400 + i}")
    share = forward / last_ms if busy else 0.0
    activity = ("computing", "sending", "waiting")[(int(t) + i) % 3] if busy else "waiting"
    return {
        "rank": i,
        "first": cuts[i],
        "end": cuts[i + 1],
        "engine": engine,
        "backend": backend,
        "address": address,
        "weights_bytes": 3_100_000 * (cuts[i + 1] - cuts[i]) + (28_300_000 if i == 0 else 0),
        "embeds": i == 0,
        "head": i == 0,
        "load_ms": 210,
        "kv_rows": 32768,
        "kv_rows_used": int(1200 + 9000 * wave(t, i + 20)) if busy else 0,
        "activity": activity,
        "shares": {
            "forward": round(share, 3),
            "wait_rows": round(1 - share - 0.03, 3) if busy else 1.0,
            "wait_send": 0.01 if busy else 0.0,
            "wire": 0.04 if busy else 0.0,
            "waiting": round(max(0.0, 1 - share - 0.06), 3) if busy else 1.0,
            "other": 0.02 if busy else 0.0,
        },
        "forward_ms": round(forward, 2) if busy else 0.0,
    }


def _stream(t: float, i: int, load: Load) -> Json:
    state = "decoding" if i < 6 else "entering" if i < 8 else "waiting"
    produced = int(33 + (t * load.per_s) % 400 + 17 * i) if state == "decoding" else 0
    cached = 512 if i % 3 == 0 else 0
    age = round(2.1 + t % 30 + 1.7 * i, 1)
    return {
        "id": 12 + i, "state": state, "prompt_tokens": 812 - 31 * (i % 20), "cached_tokens": cached,
        "produced": produced, "age_s": age,
    }  # fmt: skip


def finished(number: int, stages: int, tokens: int, cached: int = 0) -> Json:
    """A finished request whose timeline is what a ring of that many stages would do: each rank in turn."""
    forward, wire = 12.2 / stages, 0.15
    spans: list[list[list[Any]]] = [[] for _ in range(stages)]
    free = [0.3] * stages
    now = 0.3
    prompt_parts = 6
    first_token = 0.0
    for part in range(prompt_parts):
        ready = now
        for rank in range(stages):
            start = max(ready, free[rank])
            _wait(spans[rank], free[rank], start)
            end = start + forward * (2.4 + 0.3 * wave(part, rank))
            spans[rank].append(["forward", round(start, 3), round(end, 3)])
            sent = end + (0.9 if rank + 1 < stages and part > 1 else 0.0)
            if sent > end:
                spans[rank].append(["wait_send", round(end, 3), round(sent, 3)])
            free[rank], ready = sent, sent + wire
    first_token = max(free)
    now = first_token
    for token in range(tokens - 1):
        for rank in range(stages):
            start = max(now, free[rank])
            _wait(spans[rank], free[rank], start)
            end = start + forward * (0.9 + 0.25 * wave(token, rank))
            spans[rank].append(["forward", round(start, 3), round(end, 3)])
            free[rank], now = end, end + (wire if stages > 1 else 0.0)
    return {
        "id": number,
        "finish": "stop" if number % 3 else "length",
        "prompt_tokens": 620,
        "cached_tokens": cached,
        "completion_tokens": tokens,
        "queued_ms": 0.3,
        "first_token_ms": round(first_token, 2),
        "total_ms": round(max(free), 2),
        "timeline": {
            "unit": "ms",
            "rounds": tokens,
            "stages": [{"rank": rank, "spans": spans[rank]} for rank in range(stages)],
        },
    }


def _wait(spans: list[list[Any]], start: float, end: float) -> None:
    if end > start:
        spans.append(["wait_rows", round(start, 3), round(end, 3)])

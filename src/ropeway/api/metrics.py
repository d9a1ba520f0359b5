"""What GET /metrics tells, in Prometheus's text form: counts and times of requests, and the ring's live figures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ropeway.serving.service import Service, ServiceState

FIRST_TOKEN_S: Final = (0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
BETWEEN_TOKENS_S: Final = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5)
REQUEST_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

SECTIONS: Final = ("slots", "queue", "throughput", "round", "overlap", "prompt_cache", "drafting", "prediction")
"""Of GET /v1/ring, told number by number."""

COUNTERS: Final = frozenset(
    {
        *(("prompt_cache", name) for name in ("hits", "misses", "hit_tokens")),
        *(("drafting", name) for name in ("turns", "drafted", "guesses", "right")),
    }
)
"""What only rises."""


class Metrics:
    """One server's figures, in a registry of their own. Called on the event loop."""

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "ropeway_http_requests", "Requests answered.", ["route", "status"], registry=self.registry
        )
        self.in_flight = Gauge("ropeway_http_requests_in_flight", "Requests not answered yet.", registry=self.registry)
        self.prompt_tokens = Counter("ropeway_prompt_tokens", "Prompt tokens of replies begun.", registry=self.registry)
        self.cached_tokens = Counter(
            "ropeway_cached_prompt_tokens", "Prompt tokens that came from the prompt cache.", registry=self.registry
        )
        self.made_tokens = Counter("ropeway_completion_tokens", "Tokens made.", registry=self.registry)
        self.finished = Counter("ropeway_replies", "Replies by how they ended.", ["finish"], registry=self.registry)
        self.first_token_s = Histogram(
            "ropeway_time_to_first_token_seconds",
            "From the request to its first token.",
            buckets=FIRST_TOKEN_S,
            registry=self.registry,
        )
        self.between_tokens_s = Histogram(
            "ropeway_time_between_tokens_seconds",
            "From one token of a reply to its next.",
            buckets=BETWEEN_TOKENS_S,
            registry=self.registry,
        )
        self.request_s = Histogram(
            "ropeway_request_seconds",
            "From the request to the end of its reply.",
            ["route"],
            buckets=REQUEST_S,
            registry=self.registry,
        )
        self.registry.register(_Ring(service))

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)


class _Ring(Collector):
    """Whether the ring is whole, and the figures of GET /v1/ring: its sections' numbers, and each stage's."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterable[Metric]:
        state = self._service.state()
        yield GaugeMetricFamily("ropeway_ready", "1 while the ring is whole.", value=float(state is ServiceState.READY))
        info = GaugeMetricFamily("ropeway_placement_info", "Always 1.", labels=["model", "placement"])
        info.add_metric([self._service.model_id, self._service.fingerprint], 1.0)
        yield info
        ring = self._service.ring()
        for section in SECTIONS:
            for name, value in _numbers(ring.get(section)):
                kind = CounterMetricFamily if (section, name) in COUNTERS else GaugeMetricFamily
                yield kind(f"ropeway_{section}_{name}", f"{section}.{name} of GET /v1/ring.", value=value)
        stages = ring.get("stages")
        figures: dict[str, GaugeMetricFamily] = {}
        for rank, stage in enumerate(stages if isinstance(stages, list) else ()):
            shares = stage.get("shares") if isinstance(stage, dict) else None
            told = [*_numbers(stage), *((f"share_{name}", value) for name, value in _numbers(shares))]
            for name, value in told:
                if name != "rank":
                    text = f"stages[].{name} of GET /v1/ring."
                    family = figures.setdefault(name, GaugeMetricFamily(f"ropeway_stage_{name}", text, labels=["rank"]))
                    family.add_metric([str(rank)], value)
        yield from figures.values()

    def describe(self) -> Iterable[Metric]:
        return ()


def _numbers(section: object) -> list[tuple[str, float]]:
    """The numbers right inside a JSON object, by name."""
    items = section.items() if isinstance(section, dict) else ()
    return [
        (str(name), float(value))
        for name, value in items
        if isinstance(value, (int, float)) and not isinstance(value, bool) and str(name).isidentifier()
    ]

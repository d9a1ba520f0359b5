"""A whole run: search, node, create, running, converge, workers, names, reply, and destroy, always."""

from __future__ import annotations

import secrets
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Final

from ropeway.cluster.client import AgentError
from ropeway.cluster.messages import ENTRY, EXIT, ORCHESTRATOR, InferenceRequest, InferenceResponse, stage_name
from ropeway.engines.cores import usable_cores
from ropeway.engines.registry import engine_entry
from ropeway.launch.provider import Order, Provider, ProviderError, Wanted, stage_label
from ropeway.smoke.attention import Attention, Interrupted, attentive
from ropeway.smoke.clock import elapsed
from ropeway.smoke.cluster import HERE, Cluster, Inbox, Reach, open_cluster
from ropeway.smoke.environment import ORPHAN_S
from ropeway.smoke.ledger import Ledger, check_label
from ropeway.smoke.offers import Walk
from ropeway.smoke.renting import Lease, Pace, Rental, Terms, patiently
from ropeway.smoke.reporter import Reporter
from ropeway.smoke.result import Rented, Result
from ropeway.smoke.steps import Deadline, StepFailed, Steps
from ropeway.smoke.teardown import Left, destroy_all
from ropeway.smoke.watch import Watch

LOGS_S: Final = 15.0
"""How long a failed run waits for its instances' logs."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What a run is asked for. Raises ValueError, naming the flag."""

    wanted: Wanted
    prompt: str = "Say hello"
    max_tokens: int = 64
    model: str = "demo"
    engine: str = ""
    worker_cmd: str = ""
    image: str = ""
    cluster: str = "tcp"
    reach: Reach = HERE
    context: int = 2048
    threads: int = 0
    max_price: float | None = None
    """Dollars an hour, all machines together."""
    budget: float | None = None
    """Dollars for the run, were it to take as long as it may."""
    timeout_s: float = 300.0
    limits_s: Mapping[str, float] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    keep_on_failure: bool = False
    label: str = ""
    server: str = ""
    """The service's URL for the instances, where it is not the usual one."""

    def __post_init__(self) -> None:
        if self.wanted.count < 1:
            raise ValueError(f"num-stages: {self.wanted.count} is not at least 1")
        if self.max_tokens < 1:
            raise ValueError(f"max-tokens: {self.max_tokens} is not at least 1")
        for name, value in (("timeout", self.timeout_s), ("max-price", self.max_price), ("budget", self.budget)):
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name}: {value:g} is not above 0")
        if not self.prompt.strip():
            raise ValueError("prompt: it is empty")
        check_label(self.label)
        if self.engine:
            engine_entry(self.engine)


def new_label(name: str = "") -> str:
    """A label that no other run has, whoever else uses the name: all that carries it is destroyed."""
    return f"{name or 'ropeway'}-{secrets.token_hex(6)}"


def smoke_run(settings: RunSettings, provider: Provider, ledger: Ledger | None, reporter: Reporter) -> Result:
    """Do all of it. Whatever happens inside, what was rented has been given back, or is named in the result.

    `ledger` stays the caller's to close: it is settled where nothing is left.
    """
    with attentive() as attention:
        run = _Run(settings, provider, ledger, reporter, attention)
        try:
            run.go()
        except (StepFailed, ProviderError, AgentError, Interrupted, OSError, ValueError) as error:
            # A terminal's Ctrl-C reaches our own node as well, whose end must not be taken for the cause.
            run.fail(attention.cause or error)
        except Exception as error:  # noqa: BLE001 (a fault of ours fails the run as any other, once it has been shown)
            for line in traceback.format_exception(error):
                reporter.plain(line.rstrip())
            run.fail(error)
        finally:
            run.end()
        return run.result()


class _Run:
    def __init__(
        self, settings: RunSettings, provider: Provider, ledger: Ledger | None, reporter: Reporter, attention: Attention
    ) -> None:
        self._settings = settings
        self._provider = provider
        self._ledger = ledger
        self._reporter = reporter
        self._steps = Steps(settings.timeout_s, settings.limits_s, attention, reporter.step)
        longest_s = settings.timeout_s + self._steps.limit("destroy") + settings.keep_on_failure * ORPHAN_S
        self._terms = Terms(settings.max_price, settings.budget, longest_s)
        self._rental = Rental(provider, ledger, settings.pace, self._steps.hold, reporter.told, self._terms)
        self._open = ExitStack()
        self._response: InferenceResponse | None = None
        self._reason = ""
        self._left: list[Left] = []
        self._kept = False

    def go(self) -> None:
        """Every step but the last. Raises StepFailed, ProviderError, AgentError, Interrupted, OSError, ValueError."""
        settings, rental = self._settings, self._rental
        count = settings.wanted.count
        with self._steps.step("search") as deadline:
            walk = self._search(deadline)
        with self._steps.step("node") as deadline:
            cluster = self._open.enter_context(open_cluster(settings.cluster, deadline.left, settings.reach))
            inbox = self._listen(cluster)
        with self._steps.step("create") as deadline:
            rental.rent(walk, [self._order(stage, cluster.ticket()) for stage in range(count)], deadline)
        with self._steps.step("running") as deadline:
            rental.await_running(deadline)
        watch = Watch(cluster, inbox, rental, count)
        with self._steps.step("converge") as deadline:
            watch.until(lambda: watch.members == count + 1, deadline, watch.missing_members)
        with self._steps.step("workers") as deadline:
            names = [stage_name(stage) for stage in range(count)]
            watch.until(lambda: not watch.missing(names), deadline, lambda: _not_ready(watch.missing(names)))
        with self._steps.step("names") as deadline:
            watch.until(
                lambda: not watch.missing([ENTRY, EXIT]),
                deadline,
                lambda: f"{' and '.join(watch.missing([ENTRY, EXIT]))} did not resolve",
            )
        with self._steps.step("reply") as deadline:
            cluster.send(ENTRY, InferenceRequest(ORCHESTRATOR, settings.prompt, settings.max_tokens, "1"))
            response = watch.reply(deadline)
            if not response.text.strip():
                raise StepFailed("the reply is empty")
            self._response = response

    def fail(self, error: BaseException) -> None:
        """Keep why it failed, and show the log of the instance that may know more."""
        self._reason = f"{self._steps.failed or 'run'}: {error or type(error).__name__}"
        self._reporter.told(self._reason)
        if isinstance(error, Interrupted):
            return  # whoever interrupts a run wants its end, not its logs
        self._kept = self._settings.keep_on_failure
        instance = error.instance if isinstance(error, StepFailed) else None
        self._show_logs([lease for lease in self._rental.leases if instance in (None, lease.id)])

    def end(self) -> None:
        """Give back what was rented, then leave the cluster. Raises nothing that a service or a node can cause."""
        rental = self._rental
        try:
            if rental.announced and not self._kept:
                self._left = self._destroy()
            elif self._kept:
                self._left = [Left(lease.id, "kept, as --keep-on-failure asks") for lease in rental.leases]
        finally:
            with suppress(AgentError, OSError):
                self._open.close()

    def result(self) -> Result:
        """What it came to. Anything that may be left makes it a failure."""
        now = elapsed()
        leases = sorted(self._rental.leases, key=lambda lease: lease.stage)
        response = self._response
        reason = self._reason
        if not reason and self._left:
            reason = "destroy: not everything that was rented is known to be gone"
        return Result(
            text="" if response is None else response.text,
            token_ids=() if response is None else response.token_ids,
            ok=response is not None and not reason,
            reason=reason,
            steps=tuple(self._steps.done),
            instances=tuple(Rented(lease.id, lease.stage, lease.price, lease.until is not None) for lease in leases),
            dollars=sum(lease.dollars(now) for lease in leases),
            left=tuple(self._left),
            kept=self._kept,
        )

    def _search(self, deadline: Deadline) -> Walk:
        settings, count = self._settings, self._settings.wanted.count
        offers = patiently(
            lambda: self._provider.search(settings.wanted), deadline, settings.pace.retry_s, "no answer to the search"
        )
        walk = Walk(offers, count, settings.max_price)
        best = walk.cheapest()
        price = sum(offer.price for offer in best)
        if len(best) < count:
            limit = "" if settings.max_price is None else f" for ${settings.max_price:g} an hour together"
            raise StepFailed(f"{len(offers)} offers, but not {count} machines{limit} among them")
        self._terms.check(price)
        walk = Walk(offers, count, self._terms.most)  # an offer that takes another's place keeps to the budget too
        self._reporter.told(f"{len(offers)} offers; the cheapest {count} cost ${price:.3f} an hour together")
        return walk

    def _listen(self, cluster: Cluster) -> Inbox:
        inbox = cluster.listen(ORCHESTRATOR)
        self._open.callback(inbox.close)
        return inbox

    def _order(self, stage: int, ticket: str) -> Order:
        settings = self._settings
        environment = {
            "STAGE": str(stage),
            "NUM_STAGES": str(settings.wanted.count),
            "SEED_ADDR": ticket,
            "MODEL": settings.model,
            "RUN_LABEL": settings.label,
            "CONTEXT": str(settings.context),
            "THREADS": str(settings.threads),
            "RELAYS": settings.reach.relays,
            "BIND": ",".join(settings.reach.bind),
        }
        if settings.engine:
            environment["ENGINE"] = settings.engine
        if settings.worker_cmd:
            environment["WORKER_CMD"] = settings.worker_cmd
        if settings.server:
            environment["VAST_URL"] = settings.server
        return Order(settings.image, settings.wanted.disk_gb, stage_label(settings.label, stage), environment)

    def _show_logs(self, leases: Sequence[Lease]) -> None:
        """The ends of their logs, as far as they come soon: nothing is given back meanwhile."""
        if not leases:
            return
        give_up = time.monotonic() + LOGS_S
        pool = ThreadPoolExecutor(len(leases), thread_name_prefix="logs")
        futures = [(lease, pool.submit(self._provider.logs, lease.id)) for lease in leases]
        pool.shutdown(wait=False)
        for lease, future in futures:
            try:
                log = future.result(max(0.0, give_up - time.monotonic()))
            except TimeoutError:
                log = f"(it has not come within {LOGS_S:g} s)"
            except ProviderError as error:
                log = f"(none: {error})"
            self._reporter.told(f"the end of the log of instance {lease.id} (stage {lease.stage}):")
            for line in log.splitlines()[-20:]:
                self._reporter.plain(f"    {line}")

    def _destroy(self) -> list[Left]:
        try:
            with self._steps.teardown() as deadline:
                return self._destroy_within(deadline)
        except Exception as error:  # noqa: BLE001 (whatever happens, what may still be rented is named)
            leases = [Left(lease.id, "the teardown failed") for lease in self._rental.leases if lease.until is None]
            return [*leases, Left(None, f"the teardown failed: {error!r}")]

    def _destroy_within(self, deadline: Deadline) -> list[Left]:
        rental = self._rental

        def gone(instance: int) -> None:
            self._reporter.told(f"instance {instance} is gone")
            for lease in rental.leases:
                if lease.id == instance:
                    lease.until = elapsed()
            if self._ledger is not None:
                with suppress(OSError):  # the file then names it still, and a cleanup finds it gone
                    self._ledger.gone(instance)

        pace = self._settings.pace
        return destroy_all(
            self._provider,
            [lease.id for lease in rental.leases],
            self._settings.label,
            deadline,
            pause_s=pace.retry_s,
            unclear={label: at + 2 * pace.reconcile_s for label, at in rental.unclear.items()},
            found=rental.adopt,
            gone=gone,
        )


def _not_ready(names: list[str]) -> str:
    return f"{' and '.join(names)} did not resolve: the worker there is not ready"


def usable_threads(stages: int) -> int:
    """CPU threads a stage where all of them share this machine."""
    return max(1, usable_cores() // stages)

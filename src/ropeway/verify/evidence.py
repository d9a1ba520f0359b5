"""What a certificate says, taken from a ring and a comparison; and a certificate held against a new run of the same."""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ropeway import __version__
from ropeway.launch.keys import read_key
from ropeway.launch.placement import Options, Placement
from ropeway.launch.rank0 import Rank0
from ropeway.types import SamplerAt
from ropeway.verify.certificate import CertificateError, Json, identity, read_certificate
from ropeway.verify.compare import Comparison
from ropeway.verify.files import files_digest
from ropeway.verify.limits import Limits
from ropeway.verify.reference import Reference
from ropeway.verify.repeat import Work

PACKAGES: Final = (
    "numpy", "xllamacpp", "torch", "transformers", "tinygrad", "mlx", "mlx-lm"
)  # fmt: skip
"""Whose versions can change bits; those that are installed here."""
ANOTHER_MODEL: Final = "another model: its bytes are not those of the certificate"
RERUN: Final = ("cuts", "sampler", "context", "parallel", "chunk", "part", "threads", "gpu_layers", "engines", "dtype",
                "device", "invariant")  # fmt: skip
"""Options that a certificate carries. The command of a worker is not among them: no file says what is run here."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One check: the comparison, what the ring gave (the logits' digest, each sequence's tokens), and whether repeated
    runs gave the same.
    """

    comparison: Comparison
    logits: str
    tokens: tuple[tuple[int, ...], ...]
    runs: int
    same_bits: bool


def tokens_digest(tokens: Sequence[Sequence[int]]) -> str:
    """SHA-256 hex of every sequence's tokens."""
    digest = hashlib.sha256()
    for sequence in tokens:
        digest.update(len(sequence).to_bytes(4, "little"))
        digest.update(b"".join(token.to_bytes(4, "little") for token in sequence))
    return digest.hexdigest()


def figures(comparison: Comparison) -> dict[str, Json]:
    """The report's figures."""
    c = comparison
    logits = bool(c.divergences)
    return {
        "steps": c.steps,
        "equal_steps": c.equal_steps,
        "max_abs_diff": c.max_abs_diff if logits else None,
        "kl_mean": c.kl_mean if logits else None,
        "kl_p99": c.kl_p99 if logits else None,
        "kl_max": c.kl_max if logits else None,
        "top1": c.top1,
        "top5": c.top5 if logits else None,
        "first_parting": c.first_parting,
    }


def evidence(
    rank0: Rank0, work: Work, reference: Reference, outcome: Outcome, limits: Limits, broken: Sequence[str]
) -> dict[str, Json]:
    """The body of a certificate."""
    placement = rank0.placement
    layout = placement.layout
    return {
        "model": {
            "name": placement.path.name,
            "files": files_digest(placement.path) if placement.options.verify_weights else "",
            "checkpoint": layout.checkpoint,
            "layers": layout.layers,
        },
        "placement": placement_json(rank0),
        "options": options_json(placement.options),
        "reference": asdict(reference),
        "versions": versions(),
        "machine": {"system": platform.system(), "machine": platform.machine(), "processor": processor()},
        "work": {
            "prompts": len(work.prompts),
            "prompt_tokens": [len(prompt) for prompt in work.prompts],
            "prompt_digest": work.digest(),
            "steps": work.steps,
            "groups": work.groups,
            "part": work.part,
            "every_row": work.every_row,
        },
        "runs": outcome.runs,
        "same_bits": outcome.same_bits,
        "logits_digest": outcome.logits,
        "tokens_digest": tokens_digest(outcome.tokens),
        "figures": figures(outcome.comparison),
        "limits": asdict(limits),
        "broken": list(broken),
    }


def placement_json(rank0: Rank0) -> dict[str, Json]:
    """Who computes what, and the boundary between them."""
    boundary = rank0.placement.layout.boundary
    stages: list[Json] = [
        {
            "first": fact.describe.first,
            "end": fact.describe.end,
            "engine": fact.describe.engine.name.lower(),
            "backend": fact.describe.backend.name.lower(),
            "kv_dtype": fact.describe.kv_dtype.name.lower(),
        }
        for fact in rank0.facts
    ]
    return {
        "id": rank0.name,
        "fingerprint": rank0.placement.layout.fingerprint().hex(),
        "sampler": rank0.placement.layout.sampler.value,
        "hidden": boundary.hidden,
        "planes": boundary.planes,
        "row_dtype": boundary.row_dtype.label,
        "stages": stages,
    }


def options_json(options: Options) -> dict[str, Json]:
    """The options that a second run needs."""
    values: dict[str, Json] = {}
    everything = asdict(options)
    for name in RERUN:
        value = everything[name]
        values[name] = list(value) if isinstance(value, tuple) else value
    values["sampler"] = options.sampler.value
    return values


def versions() -> dict[str, Json]:
    """Ropeway's, Python's and those of the packages that compute."""
    found: dict[str, Json] = {"ropeway": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def processor() -> str:
    """The processor's name, where the system says it."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def differences(then: dict[str, Json], now: dict[str, Json]) -> tuple[list[str], list[str]]:
    """What is not as the certificate says, and what else differs and may be why.

    The first are failures: another model, placement, prompt, or other logits or tokens.
    """
    failed: list[str] = []
    for name, what in (
        ("model", ANOTHER_MODEL),
        ("placement", "another placement"),
        ("work", "other prompts or steps"),
        ("tokens_digest", "other tokens"),
        ("logits_digest", "other logits"),
    ):
        if _nameless(then.get(name)) != _nameless(now.get(name)):
            failed.append(what)
    if not _close(then.get("figures"), now.get("figures")):
        failed.append("other figures")
    reasons = [
        f"{name}: {then.get(name)} then, {now.get(name)} now"
        for name in ("versions", "machine")
        if then.get(name) != now.get(name)
    ]
    return failed, reasons


def _nameless(value: Json) -> Json:
    """Without a file's name, which says nothing about the model."""
    return {key: item for key, item in value.items() if key != "name"} if isinstance(value, dict) else value


def _close(then: Json, now: Json) -> bool:
    """Equal but for the last digits of a float: two machines' exponentials need not round alike."""
    if isinstance(then, dict) and isinstance(now, dict):
        return then.keys() == now.keys() and all(_close(value, now[name]) for name, value in then.items())
    if isinstance(then, float) and isinstance(now, float):
        return math.isclose(then, now, rel_tol=1e-6, abs_tol=1e-12)
    return then == now


def is_model(body: dict[str, Json], path: Path) -> bool:
    """The file or directory here has the bytes of the certificate's."""
    given = body.get("model")
    return isinstance(given, dict) and given.get("files") == files_digest(path)


def rerun_options(body: dict[str, Json], model: str, worker_cmd: str) -> Options:
    """The options of a certificate's run, for the model here. Raises ValueError."""
    given = body.get("options")
    if not isinstance(given, dict) or set(given) != set(RERUN):
        raise ValueError("certificate: its options are not those of this release")
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    values["sampler"] = SamplerAt(given["sampler"])
    return Options(model, verify_weights=True, worker_cmd=worker_cmd, **values)


def rerun_work(body: dict[str, Json]) -> tuple[int, int, Work]:
    """How many prompts of how many tokens, and the rest of the work, without its prompts. Raises ValueError."""
    given = body.get("work")
    lengths = given.get("prompt_tokens") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(lengths, list) or len(set(map(str, lengths))) != 1:
        raise ValueError("certificate: its work is not one that this release can run again")
    try:
        numbers = [int(str(value)) for value in (lengths[0], given["steps"], given["groups"], given["part"])]
    except (KeyError, ValueError):
        raise ValueError("certificate: its work is not one that this release can run again") from None
    length, steps, groups, part = numbers
    return len(lengths), length, Work((), steps, groups, part, given.get("every_row") is True)


def rerun_reference(body: dict[str, Json]) -> Reference:
    """What the ring was held against. Raises ValueError."""
    given = body.get("reference")
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise ValueError("certificate: its reference is not one that this release knows")
    return Reference(str(given.get("engine")), str(given.get("dtype")), str(given.get("device")))


def rerun_limits(body: dict[str, Json]) -> Limits:
    """How far it was allowed to be. Raises ValueError."""
    given = body.get("limits")
    if not isinstance(given, dict) or set(given) != set(asdict(Limits())):
        raise ValueError("certificate: its limits are not those of this release")
    return Limits(**{name: float(str(value)) for name, value in given.items()})


def certified(path: Path, key: Path | None, placement: Placement) -> tuple[str, str]:
    """The id of a certificate file for just this placement, and the placement's name once its ring is up.

    Raises ValueError where it is for another, or says that a limit was broken.
    """
    if key is None:
        raise ValueError("certificate-key: a certificate needs the key that signed it (--certificate-key FILE)")
    body = read_certificate(path, read_key(key))
    then = body.get("placement")
    then = then if isinstance(then, dict) else {}
    stages = then.get("stages")
    engines = [stage.get("engine") for stage in stages if isinstance(stage, dict)] if isinstance(stages, list) else []
    if then.get("fingerprint") != placement.layout.fingerprint().hex() or engines != list(placement.engines):
        raise CertificateError(f"certificate: {path} is for another placement or model")
    given = body.get("options")
    for name, value in (("dtype", placement.options.dtype), ("invariant", placement.options.invariant)):
        if not isinstance(given, dict) or given.get(name) != value:
            raise CertificateError(f"certificate: {path} is for another placement: its {name} is not {value!r}")
    if body.get("broken"):
        raise CertificateError(f"certificate: {path} says that its placement broke a limit")
    return identity(body), str(then.get("id"))

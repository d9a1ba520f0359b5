"""Checkpoints that can be fetched: what a person names, as files with their sources."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

from ropeway.checkpoints.cache import cache_directory
from ropeway.checkpoints.errors import CheckpointError
from ropeway.checkpoints.fetch.holdings import FETCHED, held_here
from ropeway.checkpoints.fetch.http import Web
from ropeway.checkpoints.fetch.hub import choose_gguf, hub_secret, open_repository
from ropeway.checkpoints.fetch.joined import JoinedFile, part_names
from ropeway.checkpoints.fetch.local import whole_file
from ropeway.checkpoints.fetch.peer import PeerSource
from ropeway.checkpoints.fetch.reader import Patience, Reader
from ropeway.checkpoints.fetch.safetensors_parts import COMPANIONS, CONFIG, INDEX, MAX_COMPANION_BYTES
from ropeway.checkpoints.fetch.source import FileFacts, Missing, Source, SourceError
from ropeway.checkpoints.fetch.spec import HubSpec, WebSpec, parse_spec
from ropeway.checkpoints.fetch.webfile import WebFile
from ropeway.checkpoints.origin import NOTE, origin_of

log = logging.getLogger("ropeway.fetch")

STEM: Final = "model"
"""How the names of weights begin where several lie side by side without an index."""
OPEN_TRIES: Final = 4
"""How often a source is asked at first: fewer than for its bytes, because a name may just be mistyped."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ +-]{0,199}")

Peer = tuple[str, Callable[[], socket.socket]]
"""Another node: its label for people, and what connects to its exchange."""

OpenFile = Callable[[str], Source]
"""Gives the source of a file beside the checkpoint's others. Raises Missing where there is none."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A checkpoint that can be fetched: one GGUF file, or the files of a safetensors directory, by their names here.

    `text` names it for people. All sources of a file give the same content.
    """

    text: str
    files: Mapping[str, Sequence[Source]]

    @property
    def gguf(self) -> str:
        """The name of its GGUF file; empty for safetensors."""
        return next((name for name in self.files if name.endswith(".gguf")), "")

    @property
    def weights(self) -> list[str]:
        """The names of its safetensors files."""
        return sorted(name for name in self.files if name.endswith(".safetensors"))

    @property
    def key(self) -> str:
        """64 hex digits: the same for the same content on every node."""
        if self.gguf:
            return self.files[self.gguf][0].facts.key
        decisive = sorted((name, self.files[name][0].facts.key) for name in self.files if name in (CONFIG, INDEX))
        decisive += [(name, self.files[name][0].facts.key) for name in self.weights]
        return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()

    @property
    def keys(self) -> dict[str, str]:
        """Each file's key: what another node needs to ask for it."""
        return {name: sources[0].facts.key for name, sources in self.files.items()}

    @property
    def network_bytes(self) -> int:
        """Bytes that came over a network so far."""
        return sum(source.bytes_read for sources in self.files.values() for source in sources)

    def close(self) -> None:
        """Close every source."""
        for sources in self.files.values():
            for source in sources:
                source.close()


@contextmanager
def open_offer(model: str, patience: Patience | None = None, cache: Path | None = None) -> Iterator[Offer]:
    """What `model` names: hf:ORG/NAME[@REVISION][:FILE], a URL, or a path of this machine.

    Where its source cannot be reached, what the cache has of it from an earlier fetch. Raises ValueError for a
    malformed name, CheckpointError where there is nothing of the kind.
    """
    patience = patience or Patience(OPEN_TRIES)
    if not model.startswith(("hf:", "http://", "https://")):
        yield local_offer(Path(model).expanduser())
        return
    spec = parse_spec(model)
    web = Web(hub_secret() if isinstance(spec, HubSpec) else None)
    try:
        try:
            offer = _hub_offer(web, spec, patience) if isinstance(spec, HubSpec) else _web_offer(web, spec, patience)
        except SourceError as error:
            offer = _kept_offer(str(spec), cache or cache_directory(), error)
        try:
            yield offer
        finally:
            offer.close()
    finally:
        web.close()


def local_offer(path: Path) -> Offer:
    """A GGUF file or a safetensors directory of this machine. Raises CheckpointError."""
    if path.is_dir():

        def beside(name: str) -> Source:
            if not (path / name).is_file():
                raise Missing(f"{path / name} does not exist")
            return whole_file(path / name)

        return Offer(str(path), _directory(beside, str(path), [p.name for p in path.glob("*.safetensors")], Patience()))
    name, file = _gguf(lambda name: whole_file(path.with_name(name)), path.name, Patience())
    return Offer(str(path), {name: [file]})


def peer_offer(text: str, keys: Mapping[str, str], peers: Sequence[Peer]) -> Offer:
    """The files `keys`, by name, of the nodes that have them, each asked in turn. Raises CheckpointError for one that
    no node has."""
    files: dict[str, list[Source]] = {}
    for name, key in keys.items():
        sources: list[Source] = []
        said = []
        for label, connect in peers:
            try:
                sources.append(PeerSource(connect, key, label))
            except SourceError as error:
                said.append(str(error))
        if not sources:
            raise CheckpointError(f"{text}: no node gives {name}: {'; '.join(said) or 'there is none'}")
        files[plain_name(name)] = sources
    return Offer(text, files)


def join_offers(first: Offer, *others: Offer) -> Offer:
    """One checkpoint from several places, asked in this order; files whose content is known to be another are left."""
    files: dict[str, Sequence[Source]] = {}
    for name, sources in first.files.items():
        facts = sources[0].facts
        more = [source for other in others for source in other.files.get(name, ())]
        same = [s for s in more if (s.facts.nbytes, s.facts.tag) == (facts.nbytes, facts.tag)]
        files[name] = [*sources, *same]
    return Offer(first.text, files)


def plain_name(name: str) -> str:
    """A file name that is safe to make. Raises CheckpointError for one that is not."""
    if not _PLAIN.fullmatch(name):
        raise CheckpointError(f"{name[:80]!r} is not a name that a file of a checkpoint may have")
    return name


def _hub_offer(web: Web, spec: HubSpec, patience: Patience) -> Offer:
    repository = patience.keep_on(lambda: open_repository(web, spec))

    def beside(name: str) -> Source:
        if name not in repository.files:
            raise Missing(f"{spec}: there is no {name}")
        short = plain_name(name.rpartition("/")[2])
        return patience.keep_on(lambda: WebFile(web, repository.url(name), short, hub=True))

    weights = [name for name in repository.files if name.endswith(".safetensors") and "/" not in name]
    if spec.file or not weights:
        name, file = _gguf(beside, choose_gguf(spec, repository.files), patience)
        return Offer(str(spec), {name: [file]})
    return Offer(str(spec), _directory(beside, str(spec), weights, patience))


def _kept_offer(text: str, cache: Path, error: SourceError) -> Offer:
    """What an earlier fetch of the same name left here, the newest; raises `error` where there is none."""
    notes = sorted((cache / FETCHED).glob(f"*/*/{NOTE}"), key=lambda note: note.stat().st_mtime_ns, reverse=True)
    for note in () if error.lasting else notes:
        with suppress(CheckpointError):
            origin = origin_of(note.parent)
            if origin is not None and origin.source == text:
                known = {name: FileFacts(name, held.nbytes, held.tag) for name, held in origin.files.items()}
                log.warning("%s; going on with what is here of it", error)
                return Offer(text, {name: [held_here(cache, facts)] for name, facts in known.items()})
    raise error


def _web_offer(web: Web, spec: WebSpec, patience: Patience) -> Offer:
    def beside(name: str) -> Source:
        return patience.keep_on(lambda: WebFile(web, urljoin(spec.url, name), plain_name(name)))

    if spec.file.endswith(".gguf"):
        name, file = _gguf(beside, spec.file, patience)
        return Offer(str(spec), {name: [file]})
    weights = [] if spec.file.endswith(".json") else [spec.file]
    return Offer(str(spec), _directory(beside, str(spec), weights, patience))


def _gguf(beside: OpenFile, name: str, patience: Patience) -> tuple[str, Source]:
    """A GGUF, also one in several files: what it is called here, and its source. Raises CheckpointError."""
    parts = part_names(name)
    if parts is None:
        return plain_name(name.rpartition("/")[2]), beside(name)
    joined = JoinedFile([beside(part) for part in parts], patience)
    return plain_name(joined.facts.name), joined


def _directory(beside: OpenFile, text: str, weights: list[str], patience: Patience) -> dict[str, list[Source]]:
    """The files of a safetensors directory: what the index names, else the only one, else `model*.safetensors`."""
    files: dict[str, list[Source]] = {}
    for name in (*COMPANIONS, INDEX):
        try:
            source = beside(name)
        except Missing:
            continue
        if source.facts.nbytes > MAX_COMPANION_BYTES:
            raise CheckpointError(f"{text}: {name} has {source.facts.nbytes} bytes, the limit is {MAX_COMPANION_BYTES}")
        files[name] = [source]
    if CONFIG not in files:
        raise CheckpointError(f"{text}: there is no {CONFIG}, so this is no checkpoint")
    if INDEX in files:
        weights = _indexed(Reader(files[INDEX], patience))
    elif len(weights) != 1:
        weights = [name for name in weights if name.startswith(STEM)]
    if not weights:
        raise CheckpointError(f"{text}: there is neither {INDEX} nor {STEM}.safetensors")
    for name in weights:
        files[plain_name(name)] = [beside(name)]
    return files


def _indexed(reader: Reader) -> list[str]:
    raw = bytearray()
    reader.read(0, reader.facts.nbytes, raw.extend)
    try:
        names = set(json.loads(raw)["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(f"{INDEX}: there is no weight_map of file names in it") from None
    if not all(isinstance(name, str) and name.endswith(".safetensors") for name in names):
        raise CheckpointError(f"{INDEX}: weight_map names something else than safetensors files")
    return sorted(plain_name(name) for name in names)

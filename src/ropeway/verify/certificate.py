"""A certificate: what was checked, on what, with which figures, as signed JSON that another machine can run again.

Signed with HMAC-SHA256 and a key file such as a ring has. Whoever may verify it could also have made it: it is for
those who run the ring, against mistakes and changed files, not a proof for strangers. That needs no library and no
second kind of key; a public-key signature would need both.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

VERSION: Final = 1
ALGORITHM: Final = "hmac-sha256"
MOST_BYTES: Final = 1 << 20
_CONTEXT: Final = b"ropeway certificate 1\n"
_KEY_CONTEXT: Final = b"ropeway certificate key\n"


class CertificateError(ValueError):
    """A certificate that cannot be read, or that is not what its signature says."""


def canonical(body: Mapping[str, Json]) -> bytes:
    """The bytes that are signed: sorted keys, no spaces, numbers that are not finite as words."""
    return json.dumps(_plain(dict(body)), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _plain(value: Json) -> Json:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def identity(body: Mapping[str, Json]) -> str:
    """The certificate's id: the first 16 hex digits of its body's SHA-256."""
    return hashlib.sha256(canonical(body)).hexdigest()[:16]


def sign(body: Mapping[str, Json], key: bytes) -> dict[str, Json]:
    """The whole certificate."""
    return {
        "ropeway_certificate": VERSION,
        "id": identity(body),
        "body": _plain(dict(body)),
        "signature": {"algorithm": ALGORITHM, "key": key_name(key), "value": _mac(body, key)},
    }


def key_name(key: bytes) -> str:
    """Which key it was, without saying what it is."""
    return hashlib.sha256(_KEY_CONTEXT + key).hexdigest()[:16]


def _mac(body: Mapping[str, Json], key: bytes) -> str:
    return hmac.new(key, _CONTEXT + canonical(body), hashlib.sha256).hexdigest()


def opened(text: bytes, key: bytes) -> dict[str, Json]:
    """The body of a certificate whose signature holds. Raises CertificateError."""
    if len(text) > MOST_BYTES:
        raise CertificateError(f"certificate: {len(text)} bytes, at most {MOST_BYTES}")
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"certificate: not JSON: {error}") from None
    if not isinstance(value, dict) or set(value) != {"ropeway_certificate", "id", "body", "signature"}:
        raise CertificateError("certificate: this is not a certificate of Ropeway's")
    if value["ropeway_certificate"] != VERSION:
        raise CertificateError(f"certificate: version {value['ropeway_certificate']!r}, expected {VERSION}")
    body, signature = value["body"], value["signature"]
    if not isinstance(body, dict) or not isinstance(signature, dict) or signature.get("algorithm") != ALGORITHM:
        raise CertificateError(f"certificate: it is not signed by {ALGORITHM}")
    if signature.get("key") != key_name(key):
        raise CertificateError("certificate: it was signed with another key")
    if not hmac.compare_digest(str(signature.get("value")).encode(), _mac(body, key).encode()):
        raise CertificateError("certificate: its signature does not hold: it was changed after it was signed")
    if value["id"] != identity(body):
        raise CertificateError("certificate: its id is not that of its body")
    return body


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise CertificateError("certificate: a name occurs twice")
    return value


def write_certificate(path: Path, body: Mapping[str, Json], key: bytes) -> str:
    """Sign and write it; its id. Raises CertificateError where the file cannot be written."""
    text = json.dumps(sign(body, key), indent=1, sort_keys=True, allow_nan=False) + "\n"
    try:
        path.write_text(text)
    except OSError as error:
        raise CertificateError(f"certificate: {path} cannot be written: {error.strerror}") from error
    return identity(body)


def read_certificate(path: Path, key: bytes) -> dict[str, Json]:
    """The body of the certificate in a file. Raises CertificateError."""
    try:
        with path.open("rb") as file:
            return opened(file.read(MOST_BYTES + 1), key)
    except OSError as error:
        raise CertificateError(f"certificate: {path} cannot be read: {error.strerror}") from error

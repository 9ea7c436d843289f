"""Tiers: the places that a checkpoint is kept in, from the nearest to the farthest.

In: texts such as ``T1=/dev/shm/run7``, ``T3@region1=s3://bucket/run7`` or a path or URL alone.
Out: Tiers. T1 is this machine's (a process may die), T2 a peer's in another failure domain (a
machine or a rack may die), T3 an object store, T4 another region's.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from rackproof.harness.checkpoint import manifest
from rackproof.harness.checkpoint.files import Files
from rackproof.harness.checkpoint.local import LocalStore
from rackproof.harness.checkpoint.objects import ObjectStore
from rackproof.harness.checkpoint.store import Bundle, Store
from rackproof.harness.errors import CheckpointError

NAMED = re.compile(r"([\w.-]+)(?:@([\w./-]+))?=(.*)", re.ASCII | re.DOTALL)
SCHEME = re.compile(r"[A-Za-z][\w+.-]*:", re.ASCII)
LOCAL = frozenset({"file", "local"})
APART = re.compile(r"T[2-9]", re.ASCII)  # the tiers that must not fall with the writer


@dataclass(frozen=True, slots=True)
class Tier:
    """One place. `url` is an absolute path, or a URL of fsspec; neither ends with a slash.

    `failure_domain` is what falls together: a rack, a region (empty: not said). `options` go to
    fsspec's constructor.
    """

    name: str
    url: str
    failure_domain: str = ""
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, text: str, **options: Any) -> "Tier":
        """Return the Tier of ``NAME=URL``, ``NAME@DOMAIN=URL``, or of a URL or path alone.

        A CheckpointError for a text that names no place.
        """
        match = NAMED.fullmatch(text)
        name, domain, url = match.groups() if match else ("", "", text)
        if not url.strip("/ ") or "\0" in url or not url.isprintable():
            msg = f"{text!r} names no place for checkpoints: NAME=PATH or NAME=URL"
            raise CheckpointError(msg)
        scheme = SCHEME.match(url)
        kind = scheme[0][:-1].lower() if scheme else "file"
        if kind in LOCAL:
            return cls(name or "local", _path(url, bool(scheme)), domain or "")
        return cls(name or kind, url.rstrip("/"), domain or "", tuple(sorted(options.items())))

    @property
    def local(self) -> bool:
        """Whether it is a directory of this machine."""
        return self.url.startswith("/")

    @property
    def root(self) -> Path:
        """The directory of a local tier."""
        return Path(self.url)

    def store(self, files: Files | None = None) -> Store:
        """Return what reads and writes there; nothing is asked of the place yet."""
        if self.local:
            return LocalStore(self.root, files or Files())
        return ObjectStore(self.url, self.options, files or Files())

    def uri(self, directory: str) -> str:
        """Return the address of a step's directory."""
        return f"{self.url}/{directory}"

    def steps(self) -> list[int]:
        """Return the steps that have a directory there, in order; none of them is verified."""
        found = self.store().names()
        return sorted({place[0] for name in found if (place := manifest.place(name))})

    def read(self, directory: str, name: str, most: int = manifest.CONTEXT_MOST) -> bytes:
        """Return a small file of a checkpoint, unverified."""
        return self.store().read(directory, name, most)

    def commit(self, bundle: Bundle, files: Files | None = None) -> str:
        """Store a checkpoint, and return the name of its directory."""
        return self.store(files).commit(bundle)


def apart(tiers: Sequence[Tier], domain: str) -> list[str]:
    """Return, in words, which of the tiers from T2 on fall together with `domain`.

    A peer in the same NVL72 loses its memory with the same power shelf, so T2 is never there.
    """
    return [
        f"{tier.name} ({tier.url}) lies in {domain}, the failure domain of the writer"
        for tier in tiers
        if domain and APART.match(tier.name) and tier.failure_domain == domain
    ]


def _path(url: str, has_scheme: bool) -> str:  # noqa: FBT001 - of one caller
    """Return the absolute path of a local address, links in it followed once and for all."""
    if not has_scheme:
        return str(Path(url).expanduser().resolve())
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"}:
        msg = f"{url} names a path on another machine"
        raise CheckpointError(msg)
    return str(Path(unquote(parts.path)).resolve())

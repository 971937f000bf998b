"""The record of an applied patch: what was replaced, by what, and the original bytes. It makes `revert` exact."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from sglang_eagle3_patch import __version__
from sglang_eagle3_patch.installer.refusal import Refusal
from sglang_eagle3_patch.installer.tree import Tree

FOLDER = ".sglang_eagle3_patch"


class State(StrEnum):
    """What a tree is in, read off the checksums: no flag that could lie."""

    CLEAN = "clean"
    APPLIED = "applied"
    HALF = "half"  # cut between two replacements
    EDITED = "edited"  # somebody changed a file since


@dataclass(frozen=True)
class Entry:
    """One replaced file.

    Attributes:
        file: relative to the package folder.
        before: sha256 of the original.
        after: sha256 of the patched file.
        original: the original bytes, zlib and base64.
        mode: permission bits.
        mtime_ns: modification time of the original, nanoseconds.
    """

    file: str
    before: str
    after: str
    original: str
    mode: int
    mtime_ns: int

    @property
    def bytes(self) -> bytes:
        """The original bytes."""
        return zlib.decompress(base64.b64decode(self.original))


@dataclass(frozen=True)
class Manifest:
    """All replaced files of one tree.

    Attributes:
        tool: version of this package.
        release: version of the tree.
        series: the series that was applied.
        entries: in the order of replacement.
    """

    tool: str
    release: str
    series: str
    entries: tuple[Entry, ...]

    def originals(self) -> dict[str, bytes]:
        """Return the original bytes by file."""
        return {entry.file: entry.bytes for entry in self.entries}

    def found(self, tree: Tree) -> dict[str, str]:
        """Return the checksum that each file has now; empty for a missing one."""
        return {entry.file: digest_of(tree.package / entry.file) for entry in self.entries}

    def edited(self, tree: Tree) -> list[str]:
        """Return the files that are neither the original nor ours."""
        found = self.found(tree)
        return [entry.file for entry in self.entries if found[entry.file] not in (entry.before, entry.after)]


def describe(tree: Tree, file: str, before: bytes, after: bytes) -> Entry:
    """Record one file that is about to be replaced."""
    status = os.stat(tree.package / file)
    original = base64.b64encode(zlib.compress(before, 9)).decode()
    return Entry(file, digest(before), digest(after), original, stat.S_IMODE(status.st_mode), status.st_mtime_ns)


def make(release: str, series: str, entries: Iterable[Entry]) -> Manifest:
    """Return a manifest of this tool's version."""
    return Manifest(__version__, release, series, tuple(entries))


def read(tree: Tree) -> tuple[State, Manifest | None]:
    """Return the tree's state and its manifest.

    Raises:
        Refusal: the manifest can't be read.
    """
    path = tree.package / FOLDER / "manifest.json"
    try:
        document = json.loads(path.read_bytes())
        entries = tuple(Entry(**entry) for entry in document.pop("entries"))
        manifest = Manifest(entries=entries, **document)
        manifest.originals()
    except FileNotFoundError:
        return State.CLEAN, None
    except (ValueError, TypeError, KeyError, AttributeError, zlib.error) as error:
        raise Refusal(f"{path} is damaged ({error}): reinstall SGLang, then delete {path.parent}") from None
    found = manifest.found(tree)
    if manifest.edited(tree):
        return State.EDITED, manifest
    applied = all(found[entry.file] == entry.after for entry in entries)
    return (State.APPLIED if applied else State.HALF), manifest


def to_json(manifest: Manifest) -> bytes:
    """Return the manifest as it is stored."""
    return json.dumps(asdict(manifest), indent=1).encode()


def digest(content: bytes) -> str:
    """Return the sha256 in hex."""
    return hashlib.sha256(content).hexdigest()


def digest_of(path: Path) -> str:
    """Return the sha256 of a file in hex, empty if it is missing."""
    try:
        return digest(path.read_bytes())
    except FileNotFoundError:
        return ""

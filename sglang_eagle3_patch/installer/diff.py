"""A unified diff of what a series changes, made on demand and never stored."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from sglang_eagle3_patch.installer.plan import Change


def unified(changes: Iterable[Change], prefix: str) -> bytes:
    """Return a diff that `git apply` takes.

    Args:
        changes: the files.
        prefix: the package folder, relative to where the diff will be applied.
    """
    parts: list[bytes] = []
    for change in changes:
        name = f"{prefix}/{change.file}".encode()
        lines = difflib.diff_bytes(
            difflib.unified_diff, _lines(change.before), _lines(change.after), b"a/" + name, b"b/" + name
        )
        for line in lines:
            parts.append(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n")
    return b"".join(parts)


def _lines(content: bytes) -> list[bytes]:
    """Split after each newline only, as git does: a carriage return belongs to its line."""
    *whole, last = content.split(b"\n")
    return [line + b"\n" for line in whole] + ([last] if last else [])

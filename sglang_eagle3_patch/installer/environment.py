"""What stands between the file that was patched and the file that Python will run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from sglang_eagle3_patch.installer.tree import Tree


class Bytecode(StrEnum):
    """How the compiled form of a source file stands to it."""

    FRESH = "fresh"
    STALE = "stale: Python will compile again"
    UNCHECKED = "unchecked: Python runs it whatever the source says"


def import_warnings(tree: Tree, files: Iterable[str]) -> list[str]:
    """Return what would keep a patched tree from working, with what to do."""
    warnings = []
    if not _package_beside(tree):
        warnings.append(
            f"sglang_eagle3_patch is not installed in {tree.site}: the patched server would fail at import, "
            "run `pip install sglang-eagle3-patch` with that Python"
        )
    for file in files:
        for path, kind in bytecode(tree.package / file):
            if kind is Bytecode.UNCHECKED:
                warnings.append(f"{path} hides the patched source from Python: delete it")
    return warnings


def _package_beside(tree: Tree) -> bool:
    """Only a site-packages folder can be judged: whose Python a checkout serves is not known."""
    if tree.checkout or tree.site.name not in ("site-packages", "dist-packages"):
        return True
    return any(tree.site.glob("sglang_eagle3_patch*")) or any(tree.site.glob("*sglang_eagle3_patch*.pth"))


def bytecode(source: Path) -> list[tuple[Path, Bytecode]]:
    """Return every compiled form of `source` that some Python may have left, and how it stands."""
    cached = Path(importlib.util.cache_from_source(str(source)))
    folders = {cached.parent, source.parent / "__pycache__"}  # they differ under PYTHONPYCACHEPREFIX
    found = sorted(path for folder in folders for path in folder.glob(f"{source.stem}.*.pyc"))
    return [(path, _standing(path, source)) for path in found]


def _standing(compiled: Path, source: Path) -> Bytecode:
    header = compiled.read_bytes()[:16]
    if len(header) < 16:
        return Bytecode.STALE
    flags = int.from_bytes(header[4:8], "little")
    if flags & 1:  # by hash
        same = importlib.util.source_hash(source.read_bytes()) == header[8:16]
        return Bytecode.FRESH if same else Bytecode.STALE if flags & 2 else Bytecode.UNCHECKED
    status = source.stat()
    recorded = int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little")
    same = recorded == (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    return Bytecode.FRESH if same else Bytecode.STALE

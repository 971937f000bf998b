"""Search a whole tree for what is no longer where it was."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

from sglang_eagle3_patch.contract import source
from sglang_eagle3_patch.contract.schema import Name
from sglang_eagle3_patch.installer.series import Edit
from sglang_eagle3_patch.installer.tree import Tree


class Index:
    """A tree to search in. Its files are read when first asked.

    Args:
        tree: the tree.
    """

    def __init__(self, tree: Tree) -> None:
        self.package = tree.package
        self.sources: dict[str, bytes] = {}

    def namesake(self, file: str) -> str | None:
        """Return the file of the same name elsewhere in the tree, or the nearest name in its folder."""
        same = sorted(self.package.joinpath("srt").rglob(Path(file).name))
        if same:
            return str(same[0].relative_to(self.package))
        return source.nearest(
            file, [str(p.relative_to(self.package)) for p in (self.package / file).parent.glob("*.py")]
        )

    def target(self, edit: Edit) -> str | None:
        """Return where else a function or class of the target's name is."""
        kinds = ("function", "class") if edit.target else ()
        return next((found for kind in kinds if (found := self.find(Name(f":{edit.target}", kind, "", "")))), None)

    def anchor(self, edit: Edit) -> str | None:
        """Return where in any file the anchor's first line is."""
        line = (edit.anchor.strip().splitlines() or [""])[0].encode()
        lines = [
            f"{file}:{text[: text.index(line)].count(10) + 1}" for file, text in self._files() if line and line in text
        ]
        return ", ".join(lines[:3]) or None

    def find(self, name: Name) -> str | None:
        """Return the symbol of the same name and kind elsewhere in the tree that looks most like the old one."""
        found = [symbol for file, text in self._files() for symbol in _symbols(file, text, name)]
        return max(found, key=lambda symbol: SequenceMatcher(None, symbol, name.symbol).ratio(), default=None)

    def _files(self) -> Iterator[tuple[str, bytes]]:
        if not self.sources:
            paths = sorted((self.package / "srt").rglob("*.py"))
            self.sources = {str(path.relative_to(self.package)): path.read_bytes() for path in paths}
        yield from self.sources.items()


def _symbols(file: str, text: bytes, name: Name) -> Iterator[str]:
    last = name.qualname.rpartition(".")[2]
    pattern = {"function": r"\bdef\s+{}\b", "class": r"\bclass\s+{}\b"}.get(name.kind, r"\b{}\b\s*[:=]").format(last)
    if not re.search(pattern.encode(), text):
        return
    try:
        module = ast.parse(text)
    except SyntaxError:
        return
    dotted = "sglang." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if "." not in name.qualname:
        if last in dict(source.members(module)):
            yield f"{dotted}:{last}"
        return
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            known = source.attributes(node) if name.kind == "attribute" else dict(source.members(node))
            if last in known:
                yield f"{dotted}:{node.name}.{last}"

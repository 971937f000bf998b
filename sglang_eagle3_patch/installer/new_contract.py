"""Write a contract with the signatures that a tree has, so that nobody types one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from sglang_eagle3_patch.contract import schema, source
from sglang_eagle3_patch.contract.schema import Name
from sglang_eagle3_patch.installer import series
from sglang_eagle3_patch.installer.tree import Tree


def contract_for(tree: Tree, release: str, own: bool, originals: Mapping[str, bytes]) -> str:
    """Write the contract of this tree as TOML: what differs from the release it inherits from, with its signatures.

    Args:
        tree: where signatures are read.
        release: the series that was tried.
        own: it is the tree's own series, so that it inherits from that series' parent; else from the series itself.
        originals: read instead of patched files.
    """
    names = schema.load(release, complete=False).names
    parent = series.load(release).parent if own else release
    inherited = {name.key: name for name in schema.load(parent, complete=False).names} if parent else {}
    kept = [_filled(tree, name, originals) for name in names]
    present = {
        name.key
        for name in kept
        if own or (found := source.check_name(tree.package, name, originals)) is None or not found.gone
    }
    dropped = sorted({key[0] for key in inherited if key not in present})
    lines = [f"drop = {json.dumps(dropped, indent=4)}\n"] if dropped else []
    for name in kept:
        if name.key not in present or (inherited.get(name.key) == name and name.symbol not in dropped):
            continue
        lines.append("[[name]]")
        for key in ("symbol", "kind", "use"):
            lines.append(f"{key} = {json.dumps(getattr(name, key))}")
        if name.parameters is not None:
            lines.append(f"parameters = {json.dumps(list(name.parameters), ensure_ascii=False)}")
        lines.append(f"why = {json.dumps(name.why, ensure_ascii=False)}\n")
    return "\n".join(lines)


def _filled(tree: Tree, name: Name, originals: Mapping[str, bytes]) -> Name:
    """Take the tree's signature; for a call that lists what it passes, only those parameters' defaults."""
    found = source.signature_of(tree.package, name.symbol, originals) if name.needs_parameters else None
    if found is None:
        return name
    if name.use == "call" and name.parameters is not None:
        now = {parameter.partition("=")[0]: parameter for parameter in found}
        found = tuple(now.get(parameter.partition("=")[0], parameter) for parameter in name.parameters)
    return replace(name, parameters=found)

"""Every SGLang name that the runtime uses stands in the contract of each release that it serves."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from sglang_eagle3_patch import runtime
from sglang_eagle3_patch.contract import schema
from sglang_eagle3_patch.contract.classes import facts_of
from sglang_eagle3_patch.contract.paths import generation_of, releases
from sglang_eagle3_patch.installer import series
from sglang_eagle3_patch.runtime.draft_kv.choose import WRITES

ROOM = Path(inspect.getfile(runtime)).parent
FILES = sorted(ROOM.rglob("*.py"))
RESULT = "sglang.srt.managers.utils:GenerationBatchResult"
# What Python, PyTorch and the metrics library bring says nothing about SGLang.
BRINGERS = (
    *vars(builtins).values(), contextlib, time, logging.Logger,
    torch, torch.Tensor, torch.cuda, torch.cuda.Stream, torch.cuda.Event, torch.nn.Linear(1, 1),
)  # fmt: skip
FOREIGN = {name for owner in BRINGERS for name in dir(owner)} | {"fget", "add_argument", "inc", "labels", "set"}
# From 0.5.21 on an object answers for the ranks without assigning them.
DYNAMIC = {"tp_rank"}
OURS = {
    name for file in FILES for facts in facts_of(file) for name in (*facts.assigns, *facts.declared, facts.name)
} | {
    "GENERATION",
    "speculative_disable_batch_threshold",
    "speculative_fallback_draft_sync",
}


def hooks_of(release: str) -> set[str]:
    """Names that the release's edits take from hooks and arguments."""
    trees = [ast.parse(edit.code.strip()) for edit in series.load(release).edits]
    return {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "eagle3_gate"
    }


EVERY_HOOK = {hook for release in releases() for hook in hooks_of(release)}


def writes_for_drafts_unknown_to(release: str) -> set[Path]:
    """The files for drafts that the release does not have."""
    known = {name.qualname for name in schema.load(release).names}
    return {Path(inspect.getfile(write)) for draft, write in WRITES.items() if draft not in known}


def effective(release: str) -> Iterator[ast.AST]:
    """The shared modules without the hooks of other releases, and the generation's methods that are not overridden."""
    others = EVERY_HOOK - hooks_of(release)
    for file in set(FILES) - set((ROOM / "generations").iterdir()) - writes_for_drafts_unknown_to(release):
        module = ast.parse(file.read_text())
        module.body = [n for n in module.body if not (isinstance(n, ast.FunctionDef) and n.name in others)]
        yield module
    room = importlib.import_module(f"{runtime.__name__}.generations.{generation_of(release)}").GENERATION
    overridden: set[str] = set()
    for cls in type(room).__mro__[:-1]:
        (body,) = (n for n in ast.parse(inspect.getsource(cls)).body if isinstance(n, ast.ClassDef))
        for node in body.body:
            if isinstance(node, ast.FunctionDef):
                if node.name not in overridden:
                    yield node
                    if f"super().{node.name}(" not in ast.unparse(node):
                        overridden.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                assert isinstance(target, ast.Name)
                if target.id not in overridden:
                    yield node
                overridden.add(target.id)


def imported(tree: ast.AST) -> dict[str, str]:
    """What comes from SGLang, by local name, as `module:name`."""
    return {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang.")
        for alias in node.names
    }


def used_symbols(tree: ast.AST) -> Iterator[str]:
    """Names that are imported from SGLang, members taken from them by name, and fields that they are built with."""
    names = imported(tree)
    yield from names.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            yield f"{names[node.value.id]}.{node.attr}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            built = RESULT if node.func.id == "PlainDecodeResult" else names.get(node.func.id, "")
            if built.rpartition(":")[2][:1].isupper() and built.endswith(("Result", "Output")):
                yield from (f"{built}.{k.arg}" for k in node.keywords if k.arg and k.arg not in OURS)
        if isinstance(node, ast.FunctionDef) and node.name == "result_fields":
            keys = (key for d in ast.walk(node) if isinstance(d, ast.Dict) for key in d.keys)
            yield from (
                f"{RESULT}.{key.value}" for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
            )


def used_attributes(tree: ast.AST) -> set[str]:
    """Every attribute taken from anything but a module, by getattr and setattr too, unless a default stands by."""
    modules = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    found: set[str] = set()
    optional: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).partition(".")[0] not in modules:
            found.add(node.attr)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "read"):
            constants = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            safe = ast.unparse(node.func) == "read" or (ast.unparse(node.func) == "getattr" and len(node.args) == 3)
            (optional if safe else found).update(constants[:1])
    return found - optional


@pytest.mark.parametrize("release", releases())
def test_what_is_imported_is_listed(release: str) -> None:
    listed = {name.symbol for name in schema.load(release).names}
    used = {symbol for tree in effective(release) for symbol in used_symbols(tree)}
    assert len(used) > 15  # the walk finds something
    missing = {symbol for symbol in used if not any(s == symbol or s.startswith(f"{symbol}.") for s in listed)}
    assert missing == set()


@pytest.mark.parametrize("release", releases())
def test_what_is_read_off_objects_is_listed(release: str) -> None:
    """By name alone, as nobody can tell the types: an attribute is ours, Python's or PyTorch's, or it is listed."""
    listed = {part for name in schema.load(release).names for part in name.qualname.split(".")}
    used = {name for tree in effective(release) for name in used_attributes(tree)}
    assert "target_worker" in used
    beside_fc_norm = {"num_aux_hidden_states"}  # drafts of old releases have neither, and that is asked first
    assert used - listed - FOREIGN - OURS - (set() if "fc_norm" in listed else beside_fc_norm) == set()


@pytest.mark.parametrize("release", releases())
def test_what_the_edits_use_is_listed_or_in_their_anchors(release: str) -> None:
    listed = {part for name in schema.load(release).names for part in name.qualname.split(".")}
    loose = {}
    for edit in series.load(release).edits:
        used = {node.attr for node in ast.walk(ast.parse(edit.code.strip())) if isinstance(node, ast.Attribute)}
        if missing := {
            name for name in used - listed - FOREIGN - OURS - EVERY_HOOK - DYNAMIC if name not in edit.anchor
        }:
            loose[edit.id] = missing
    assert loose == {}


def test_the_walks_see_what_is_planted() -> None:
    tree = ast.parse(
        """
def step(batch, runner):
    from sglang.srt.managers.utils import GenerationBatchResult
    from sglang.srt.planted import Mode
    setattr(runner, "planted_name", batch.planted_read)
    getattr(runner, "planted_optional", None)
    return GenerationBatchResult(planted_field=Mode.PLANTED)
"""
    )
    assert set(used_symbols(tree)) == {
        RESULT,
        f"{RESULT}.planted_field",
        "sglang.srt.planted:Mode",
        "sglang.srt.planted:Mode.PLANTED",
    }
    assert used_attributes(tree) - FOREIGN == {"planted_name", "planted_read"}

"""Everything that a person who debugs, or reads a bug report, would ask first."""

from __future__ import annotations

import ast
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from sglang_eagle3_patch import __version__
from sglang_eagle3_patch.contract.classes import facts_of
from sglang_eagle3_patch.contract.paths import ContractError
from sglang_eagle3_patch.contract.source import find
from sglang_eagle3_patch.installer import manifest as records
from sglang_eagle3_patch.installer.environment import Bytecode, bytecode, import_warnings
from sglang_eagle3_patch.installer.manifest import State
from sglang_eagle3_patch.installer.plan import make_plan
from sglang_eagle3_patch.installer.refusal import Refusal
from sglang_eagle3_patch.installer.serverlog import read_log
from sglang_eagle3_patch.installer.tree import Tree, importable, open_tree, read_release

PACKAGES = ("sglang", "torch", "sgl-kernel", "flashinfer-python", "transformers", "triton", "sglang-eagle3-patch")
RUNTIME = Path(__file__).resolve().parents[1] / "runtime"


def examine(given: Path | None, log: Path | None) -> dict[str, Any]:
    """Return the report: plain data, whose `findings` hold one sentence for each thing that is wrong."""
    findings: list[str] = []
    owners = attributes_of_ours()
    report: dict[str, Any] = {"machine": _machine()}
    active = False
    try:
        tree = open_tree(given)
        report["tree"] = _tree(tree, findings)
        report["imports"] = _imports(tree, findings)
        report["files"] = _files(tree, findings)
        active = report["tree"]["state"] == State.APPLIED and report["imports"]["same_tree"]
        report["spec_v2"] = _spec_v2(tree, findings)
    except (Refusal, ContractError) as refusal:
        findings.append(str(refusal))
    report["attributes"] = owners
    if log:
        found = read_log(log, active, owners)
        report["log"] = asdict(found)
        if not found.start_line or found.first_error:
            findings += found.meaning
    report["findings"] = findings
    return report


def attributes_of_ours() -> dict[str, list[str]]:
    """Return, by class of the runtime, the attributes that it defines."""
    owners: dict[str, list[str]] = {}
    for file in sorted(RUNTIME.rglob("*.py")):
        for facts in facts_of(file):
            owners[f"{file.stem}.{facts.name}"] = sorted({*facts.on_class, *facts.first, *facts.late})
    return owners


def _machine() -> dict[str, Any]:
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "tool": f"{__version__} in {RUNTIME.parent}",
        "python": f"{platform.python_version()} at {sys.executable}",
        "platform": platform.platform(),
        "gpus": _gpus(),
        "packages": versions,
    }


def _gpus() -> list[str]:
    if not shutil.which("nvidia-smi"):
        return []
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ["nvidia-smi does not answer"]
    return done.stdout.splitlines()


def _tree(tree: Tree, findings: list[str]) -> dict[str, Any]:
    state, manifest = records.read(tree)
    release = read_release(tree)
    fits = "yes"
    try:
        make_plan(tree, manifest.originals() if manifest else {}).demand()
    except (Refusal, ContractError) as refusal:
        fits = str(refusal)
        findings.append(fits)
    advice = {
        State.CLEAN: "the tree is not patched: run `apply`",
        State.HALF: "an apply or revert was cut short: run `revert`",
        State.EDITED: "patched files were edited since: undo that, or reinstall SGLang",
    }
    if state in advice:
        findings.append(advice[state])
    return {
        "package": str(tree.package),
        "checkout": str(tree.checkout) if tree.checkout else None,
        "release": release,
        "state": state,
        "series": manifest.series if manifest else None,
        "fits": fits,
    }


def _imports(tree: Tree, findings: list[str]) -> dict[str, Any]:
    """Compare the tree with what Python imports: here, and where `python -m` puts the working directory first."""
    try:
        imported: Path | None = importable().resolve()
    except Refusal:
        imported = None
    spec = PathFinder.find_spec("sglang", [os.getcwd(), *sys.path])
    locations = list(spec.submodule_search_locations or []) if spec else []
    served = Path(locations[0]).resolve() if locations else imported
    others = sorted(
        {
            str(folder)
            for entry in (os.getcwd(), *sys.path)
            if (folder := Path(entry or ".").resolve() / "sglang").is_dir() and folder != tree.package
        }
    )
    if imported != tree.package:
        findings.append(f"this Python imports {imported or 'no SGLang'}, not {tree.package}")
    if served != imported:
        findings.append(f"`python -m sglang.launch_server` in {os.getcwd()} imports {served}: start it elsewhere")
    return {
        "imported": str(imported),
        "from_working_directory": str(served),
        "same_tree": imported == served == tree.package,
        "other_sglang_on_path": others,
    }


def _files(tree: Tree, findings: list[str]) -> dict[str, str]:
    """Say of each patched file whether it is ours, and how its compiled form stands."""
    _, manifest = records.read(tree)
    if manifest is None:
        return {}
    findings += import_warnings(tree, [entry.file for entry in manifest.entries])
    found = manifest.found(tree)
    rows: dict[str, str] = {}
    for entry in manifest.entries:
        path = tree.package / entry.file
        state = {entry.after: "patched", entry.before: "original"}.get(found[entry.file], "edited")
        for shadow in path.parent.glob(f"{path.stem}.*.so"):
            findings.append(f"Python imports {shadow} instead of {path}: delete it")
        compiled = [f"{file.name} is {kind}" for file, kind in bytecode(path) if kind is not Bytecode.FRESH]
        rows[str(path)] = "; ".join([state, *compiled])
    return rows


def _spec_v2(tree: Tree, findings: list[str]) -> str:
    """Read from the tree whether spec v2 is an option there, and from the environment whether it is on."""
    variable = "SGLANG_ENABLE_SPEC_V2"
    environ = tree.package / "srt" / "environ.py"
    module = ast.parse(environ.read_bytes()) if environ.is_file() else ast.Module([], [])
    setting = find(module, f"Envs.{variable}")
    if not isinstance(setting, ast.Assign):
        return "on: the only path in this release"
    default = "True" in ast.unparse(setting.value)
    given = os.environ.get(variable)
    on = default if given is None else given.strip().lower() in ("1", "true", "yes", "y")
    if not on:
        findings.append(f"spec v2 is off in this environment: start the server with {variable}=1")
    return f"{'on' if on else 'off'}: {variable}={given or f'(not set, default {default})'}"

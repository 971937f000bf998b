"""Copies of SGLang trees, patched or not, for one run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.cpu_reference import environment


def copy(tree: Path, folder: Path) -> Path:
    """Copy an SGLang tree to ``folder``, which must not exist; returns ``folder``."""
    # symlinks stay links, times stay: Python goes on trusting the compiled files beside the sources
    shutil.copytree(tree, folder, symlinks=True)
    return folder


def installed(python: Path, folder: Path) -> Path:
    """Copy the SGLang that ``python`` imports to ``folder``, for it is somebody's own and stays as it is.

    Raises:
        RuntimeError: it imports none.
    """
    code = "import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec('sglang').origin).parent)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{python} has no SGLang: install it there (pip install sglang).")
    copy(Path(done.stdout.strip()), folder / "sglang")
    return folder


def patched(tree: Path, folder: Path, python: Path | None = None) -> Path:
    """Copy an SGLang tree to ``folder`` and apply our patch there, through the command a user runs.

    Args:
        tree: folder that holds ``sglang/``.
        folder: the copy.
        python: the interpreter that has our package; that of the CPU reference if left out.

    Raises:
        RuntimeError: the installer refused; the text is its own sentence.
    """
    copy(tree, folder)
    command = [str(python or environment.python()), "-m", "sglang_eagle3_patch", "apply", str(folder)]
    done = subprocess.run(command, cwd=environment.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or done.stdout.strip())
    return folder

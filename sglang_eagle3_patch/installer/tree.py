"""Find an SGLang tree and read its release, without importing it."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from sglang_eagle3_patch.installer.refusal import Refusal


@dataclass(frozen=True)
class Tree:
    """An SGLang on disk.

    Attributes:
        package: the `sglang` package folder, resolved.
        checkout: the root of the git checkout or source archive it lies in (`<checkout>/python/sglang`), else None.
    """

    package: Path
    checkout: Path | None

    @property
    def site(self) -> Path:
        """The folder that is on `sys.path`: site-packages, or `python/` of a checkout."""
        return self.package.parent

    @property
    def diff_prefix(self) -> str:
        """The package folder as a path that `git apply` takes, from the checkout's root or from site-packages."""
        return "python/sglang" if self.checkout else "sglang"

    def path(self, file: str) -> Path:
        """Return the path of `file`, which is relative to the package folder.

        Raises:
            Refusal: it is not there, or leaves the tree, also through a link.
        """
        path = self.package / file
        if path.resolve() != path or not path.is_relative_to(self.package):
            raise Refusal(
                f"{file} leads out of {self.package} to {path.resolve()}: a linked file is shared, copy it first"
            )
        if not path.is_file():
            raise Refusal(f"{path} is missing: reinstall SGLang")
        return path


def open_tree(given: Path | None) -> Tree:
    """Find the SGLang that `given` means: a checkout, site-packages, the package folder, or the importable one.

    Raises:
        Refusal: there is none.
    """
    if given is None:
        return _tree(importable())
    for package in (given / "python" / "sglang", given / "sglang", given):
        if (package / "srt").is_dir() and (package / "__init__.py").is_file():
            return _tree(package)
    raise Refusal(f"no SGLang in {given}: give a checkout, a site-packages folder or the sglang package folder")


def importable() -> Path:
    """Return the package folder of the `sglang` that this Python would import.

    Raises:
        Refusal: there is none.
    """
    spec = importlib.util.find_spec("sglang")
    if spec is None:
        raise Refusal("no SGLang is installed in this Python: give the tree as an argument")
    if spec.origin is None:
        folder = next(iter(spec.submodule_search_locations or []), "?")
        raise Refusal(f"`import sglang` finds only the folder {folder}, not a package: give the tree as an argument")
    return Path(spec.origin).parent


def _tree(package: Path) -> Tree:
    package = package.resolve()
    python = package.parent
    is_checkout = python.name == "python" and (python / "pyproject.toml").is_file()
    return Tree(package, python.parent if is_checkout else None)


def read_release(tree: Tree) -> str:
    """Return the tree's version: a checkout's from git, else what the build wrote into it; never a default.

    Raises:
        Refusal: nothing says it, or two sources disagree.
    """
    if tree.checkout and (version := _from_git(tree.checkout)):
        return version
    written = {path: version for path in _version_files(tree) if (version := _from_file(path))}
    if len(set(written.values())) > 1:
        said = ", ".join(f"{path} says {version}" for path, version in written.items())
        raise Refusal(f"can't tell the release: {said}: reinstall SGLang")
    if written:
        return next(iter(written.values()))
    fetch = ": run `git fetch --tags` in it" if tree.checkout else ": reinstall SGLang"
    raise Refusal(
        f"can't tell the release: no version in {tree.package}, in a dist-info beside it or in git tags{fetch}"
    )


def _version_files(tree: Tree) -> list[Path]:
    metadata = [
        path / "METADATA"
        for path in sorted(tree.site.glob("*.dist-info"))
        if canonicalize_name(path.name.partition("-")[0]) == "sglang"
    ]
    return [path for path in (tree.package / "_version.py", tree.package / "version.py", *metadata) if path.is_file()]


def _from_file(path: Path) -> str | None:
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.name == "METADATA":
        return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("Version:")), None)
    for statement in ast.parse(text).body:  # only a top-level literal counts; `0.0.0.dev0` in a handler does not
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
            if "__version__" in names and isinstance(statement.value.value, str):
                return statement.value.value
    return None


def _from_git(checkout: Path) -> str | None:
    """Return the release tag of HEAD, or a `.dev` version after the newest release that is not younger than HEAD.

    Releases are tagged on branches of their own, so the newest one need not be an ancestor of HEAD.
    """
    if not (checkout / ".git").exists():
        return None
    exact = _versions(_git(checkout, "tag", "--points-at", "HEAD", "--list", "v*"))
    if exact:
        return str(max(exact))
    head = _git(checkout, "log", "-1", "--format=%ct %h").split()
    if not head:
        return None
    dated = _git(checkout, "for-each-ref", "--format=%(creatordate:unix) %(refname:short)", "refs/tags/v*")
    older = [line.split()[1] for line in dated.splitlines() if int(line.split()[0]) <= int(head[0])]
    tags = [version for version in _versions("\n".join(older)) if not version.is_prerelease]
    if not tags:
        return None
    base = max(tags)
    count = _git(checkout, "rev-list", "--count", f"v{base}..HEAD").strip() or "0"
    return f"{base.major}.{base.minor}.{base.micro + 1}.dev{count}+g{head[1]}"


def _versions(tags: str) -> list[Version]:
    found = []
    for tag in tags.split():
        try:
            found.append(Version(tag))
        except InvalidVersion:
            continue
    return found


def _git(checkout: Path, *arguments: str) -> str:
    """Return git's output, empty where git is missing or declines (no tags, somebody else's folder)."""
    try:
        done = subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""

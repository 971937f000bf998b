"""Where the series and contracts live, and which of them fits a version of SGLang.

The installer and the runtime both ask here, so that they can't disagree on what a release is patched with.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

# For people who develop a series of their own, and for tests.
PATCHES_VARIABLE = "SGLANG_EAGLE3_PATCHES"


class ContractError(Exception):
    """A series or contract that can't be used, or a release that has none. One sentence."""


def patches_root() -> Path:
    """Return the folder that holds `v<release>/`: inside the package in a wheel, beside it in a checkout.

    Raises:
        ContractError: neither is there.
    """
    if chosen := os.environ.get(PATCHES_VARIABLE):
        return Path(chosen)
    package = Path(__file__).resolve().parents[1]
    for root in (package / "patches", package.parent / "patches"):
        if root.is_dir():
            return root
    raise ContractError(f"no patches folder in {package} or beside it: install sglang-eagle3-patch again")


def releases() -> list[str]:
    """Return every release that has a series, oldest first."""
    found = [folder.name[1:] for folder in patches_root().glob("v*") if (folder / "series.toml").is_file()]
    return sorted(found, key=Version)


def candidates(version: str) -> list[str]:
    """Return the series that may fit `version`, best first: its own, or for a nightly its two neighbours.

    A neighbour is only a candidate: it is accepted where its contract holds.

    Raises:
        ContractError: a final release that has no series, or not a version.
    """
    try:
        wanted = Version(version)
    except InvalidVersion:
        raise ContractError(f"SGLang says its version is {version!r}, which is not a version") from None
    known = releases()
    if wanted.public in known:
        return [wanted.public]
    if not wanted.is_prerelease or not known or wanted.release == (0, 0, 0):
        raise ContractError(
            f"SGLang {version} has no patch series (there are: {', '.join(known) or 'none'}): "
            "see what would change with `sglang-eagle3-patch port`"
        )
    lower = [release for release in known if Version(release) < wanted]
    higher = [release for release in known if Version(release) > wanted]
    return lower[-1:] + higher[:1]


def chain(release: str) -> list[str]:
    """Return `release` and its parents, the oldest ancestor first.

    Raises:
        ContractError: a parent that is not there, or a circle.
    """
    line: list[str] = []
    current: str | None = release
    while current is not None:
        if current in line:
            raise ContractError(f"patches/v{release}: the parents go in a circle: {' -> '.join([*line, current])}")
        line.append(current)
        current = read_toml(current, "series.toml").get("parent")
    return line[::-1]


def generation_of(release: str) -> str:
    """Return the runtime's room for the shape of `release`, its own or its nearest parent's.

    Raises:
        ContractError: neither it nor a parent names one.
    """
    for step in reversed(chain(release)):
        if isinstance(generation := read_toml(step, "series.toml").get("generation"), str):
            return generation
    raise ContractError(f"patches/v{release}/series.toml: generation is missing")


def read_toml(release: str, name: str) -> dict[str, Any]:
    """Return the parsed `patches/v<release>/<name>`.

    Raises:
        ContractError: the file is missing or not TOML.
    """
    path = patches_root() / f"v{release}" / name
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ContractError(f"{path} is missing") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ContractError(f"{path} is not valid TOML: {error}") from None

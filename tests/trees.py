"""Real SGLang trees for tests: a wheel, downloaded once, unpacked once, and linked into a test's own folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
CACHE = REPOSITORY / ".cache"
# A folder that already holds <release>/sglang, to spare the download.
TREES_VARIABLE = "SGLANG_EAGLE3_TREES"


def unpacked(release: str) -> Path:
    """Return a folder that holds that release's `sglang` and its dist-info. It is shared: never write there.

    The folders are those of scripts/make_env.sh.

    Raises:
        RuntimeError: it could not be downloaded; the text says why.
    """
    given = os.environ.get(TREES_VARIABLE)
    if given and (Path(given) / release / "sglang").is_dir():
        return Path(given) / release
    folder = CACHE / "sglang" / release
    if (folder / "sglang").is_dir():
        return folder
    with _one_at_a_time():
        if not (folder / "sglang").is_dir():  # whoever had the lock may have made it
            staged = folder.with_name(f"{release}.part")
            shutil.rmtree(staged, ignore_errors=True)
            with zipfile.ZipFile(_wheel(release)) as wheel:
                wheel.extractall(staged)
            staged.rename(folder)  # a tree is there whole or not at all
    return folder


def _wheel(release: str) -> Path:
    wheels, pattern = CACHE / "wheels", f"sglang-{release}-*.whl"
    if not any(wheels.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels)]
        done = subprocess.run([*command, f"sglang=={release}"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"SGLang {release} could not be downloaded: {done.stderr.strip()}")
    return next(wheels.glob(pattern))


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Two test processes, or one and make_env.sh, would unpack into each other."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "make_env.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sglang_tree(release: str, into: Path) -> Path:
    """Return a site-packages-like folder of the test's own, with that release in it.

    Files are linked where the filesystem allows it, as package managers do: a patch must not write through a link.
    """
    folder = into / f"sglang-{release}"
    source = unpacked(release)
    try:
        shutil.copytree(source, folder, copy_function=os.link)
    except (OSError, shutil.Error):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
    return folder

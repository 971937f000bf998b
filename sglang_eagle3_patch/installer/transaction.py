"""Apply and revert: all or nothing, and back to the byte, also after a crash between two file replacements.

    apply:   manifest (with the original bytes) -> staged files -> replace one by one
    revert:  staged originals -> replace one by one -> remove the manifest

The manifest is there before the first file is replaced and until the last one is back, so whatever a crash leaves,
`revert` knows every original. Replacing gives a file a new inode: a hard link into a package cache is left alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sglang_eagle3_patch.installer import manifest as records
from sglang_eagle3_patch.installer.manifest import FOLDER, Entry, Manifest, State
from sglang_eagle3_patch.installer.plan import make_plan
from sglang_eagle3_patch.installer.refusal import Refusal
from sglang_eagle3_patch.installer.tree import Tree, read_release

LOCK = ".sglang_eagle3_patch.lock"


def apply(tree: Tree) -> tuple[bool, Manifest]:
    """Patch the tree.

    Returns:
        Whether anything was written (False: it was already applied), and the manifest.

    Raises:
        Refusal: it can't be done; the tree is as it was.
        ContractError: no series for the release, or a broken one.
    """
    with locked(tree):
        state, manifest = records.read(tree)
        if state in (State.EDITED, State.HALF) and manifest:
            raise _not_ours(tree, state, manifest)
        plan = make_plan(tree, manifest.originals() if manifest else {}).demand()
        entries = [records.describe(tree, change.file, change.before, change.after) for change in plan.changes]
        if manifest:
            if {e.file: e.after for e in entries} == {e.file: e.after for e in manifest.entries}:
                return False, manifest
            raise Refusal(
                f"{tree.package} was patched by another version of this series "
                f"(sglang-eagle3-patch {manifest.tool}, series v{manifest.series}): run `revert`, then `apply`"
            )
        manifest = records.make(plan.release, plan.series.release, entries)
        contents = {change.file: change.after for change in plan.changes}
        try:
            _store(tree, manifest)
            stamp = max(time.time_ns(), *(entry.mtime_ns + 10**9 for entry in entries))  # no old bytecode may match
            _replace(tree, entries, contents, stamp)
        except BaseException:
            with suppress(OSError):
                _put_back(tree, manifest)
            raise
        return True, manifest


def revert(tree: Tree) -> list[str]:
    """Put every original byte back.

    Returns:
        The files that were put back; empty when the tree was not patched.

    Raises:
        Refusal: it can't be done; the tree is as it was.
    """
    with locked(tree):
        state, manifest = records.read(tree)
        if manifest is None:
            _clear(tree, ())
            return []
        if state is State.EDITED:
            raise _not_ours(tree, state, manifest)
        found = manifest.found(tree)
        files = [entry.file for entry in manifest.entries if found[entry.file] == entry.after]
        _put_back(tree, manifest)
        return files


@contextmanager
def locked(tree: Tree) -> Iterator[None]:
    """Keep others out while the tree changes; a crash releases it.

    Raises:
        Refusal: somebody else is at it, or the tree can't be written.
    """
    path = tree.package / LOCK
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise _unwritable(tree, error) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.fstat(descriptor).st_ino == os.stat(path).st_ino  # else its owner removed it meanwhile
        except (BlockingIOError, FileNotFoundError):
            mine = False
        if not mine:
            raise Refusal(f"another apply or revert is at work on {tree.package}: wait for it")
        try:
            yield
        except OSError as error:
            raise _unwritable(tree, error) from error
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _store(tree: Tree, manifest: Manifest) -> None:
    folder = tree.package / FOLDER
    folder.mkdir(exist_ok=True)
    staged = folder / "manifest.json.staged"
    _write(staged, records.to_json(manifest))
    os.replace(staged, folder / "manifest.json")
    _sync(folder)
    _sync(tree.package)


def _put_back(tree: Tree, manifest: Manifest) -> None:
    found = manifest.found(tree)
    entries = [entry for entry in manifest.entries if found[entry.file] == entry.after]
    _replace(tree, entries, manifest.originals(), None)
    _clear(tree, manifest.entries)


def _replace(tree: Tree, entries: list[Entry], contents: dict[str, bytes], stamp: int | None) -> None:
    """Stage every file beside its target, then replace one by one; `stamp` None restores the original times."""
    for entry in entries:
        target = tree.path(entry.file)
        staged = _staged(tree, entry)
        owner = target.stat()
        _write(staged, contents[entry.file])
        with suppress(PermissionError):
            os.chown(staged, owner.st_uid, owner.st_gid)
        os.chmod(staged, entry.mode)
        time_ns = entry.mtime_ns if stamp is None else stamp
        os.utime(staged, ns=(time_ns, time_ns))
    for entry in entries:
        os.replace(_staged(tree, entry), tree.package / entry.file)
        _sync((tree.package / entry.file).parent)


def _clear(tree: Tree, entries: tuple[Entry, ...]) -> None:
    """Remove staged files and, last of all, the manifest."""
    for entry in entries:
        _staged(tree, entry).unlink(missing_ok=True)
    folder = tree.package / FOLDER
    for name in ("manifest.json.staged", "manifest.json"):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # not there, or holds something that is not ours
        folder.rmdir()


def _staged(tree: Tree, entry: Entry) -> Path:
    target = tree.package / entry.file
    return target.with_name(f".{target.name}.sglang_eagle3_patch")


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_ours(tree: Tree, state: State, manifest: Manifest) -> Refusal:
    if state is State.HALF:
        return Refusal(f"an apply or revert of {tree.package} was cut short: run `revert`, it restores every byte")
    files = tuple(manifest.edited(tree))
    if not tree.checkout and (release := read_release(tree)) != manifest.release:
        return Refusal(
            f"SGLang {manifest.release} was patched here and replaced by {release} since: "
            f"delete {tree.package / FOLDER}, then run `apply`",
            files,
        )
    return Refusal(f"edited since the patch was applied: {', '.join(files)} in {tree.package}: undo that first", files)


def _unwritable(tree: Tree, error: OSError) -> Refusal:
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return Refusal(f"{error.filename or tree.package} is read-only: give yourself the right to write there")
    return Refusal(f"can't write in {tree.package}: {error}")

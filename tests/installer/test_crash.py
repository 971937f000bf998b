"""A crash at any point of apply or revert leaves a tree that is recognised and that `revert` restores to the byte."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest

from sglang_eagle3_patch.installer import manifest as records
from sglang_eagle3_patch.installer import transaction
from sglang_eagle3_patch.installer.manifest import State
from sglang_eagle3_patch.installer.refusal import Refusal
from sglang_eagle3_patch.installer.tree import Tree, open_tree
from tests.installer.conftest import Toy, in_child

# Every way in which a transaction touches the disk.
STEPS = ("replace", "fsync", "mkdir", "unlink", "rmdir", "chmod", "utime", "open")
KILLED = 77


def die_at(count: int) -> Callable[[], None]:
    """Return what makes this process die at its `count`-th step."""
    seen = itertools.count(1)

    def install() -> None:
        for name in STEPS:
            original: Any = getattr(os, name)

            def step(*arguments: Any, _original: Any = original, **options: Any) -> Any:
                if next(seen) == count:
                    os._exit(KILLED)
                return _original(*arguments, **options)

            setattr(os, name, step)

    return install


@pytest.mark.parametrize("action", [transaction.apply, transaction.revert])
def test_killed_at_every_step(toy: Toy, action: Callable[[Tree], object]) -> None:
    tree = open_tree(toy.site)
    pristine = toy.snapshot()
    states = []
    for count in itertools.count(1):
        if action is transaction.revert:
            transaction.apply(tree)

        def attempt(count: int = count) -> str:
            die_at(count)()
            action(tree)
            return "done"

        said = in_child(attempt)
        state, _ = records.read(tree)
        states.append(state)
        if state is State.HALF:
            with pytest.raises(Refusal, match="was cut short: run `revert`"):
                transaction.apply(tree)
        transaction.revert(tree)
        assert toy.snapshot() == pristine, f"killed at step {count}"
        if said == "done":
            break
        assert said == f"exit {KILLED}"
    # staged, one replaced, two replaced, all replaced: each was seen
    assert {State.CLEAN, State.HALF, State.APPLIED} == set(states)
    assert states.count(State.HALF) >= 4


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_full_disk_rolls_back(toy: Toy, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    """The manifest is the first replacement, the three files follow."""
    before = toy.snapshot()
    seen = itertools.count(1)
    original = os.replace

    def replace(*arguments: Any) -> None:
        if next(seen) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(*arguments)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(Refusal, match="No space left on device"):
        transaction.apply(open_tree(toy.site))
    monkeypatch.undo()
    assert toy.snapshot() == before


def test_disk_that_stays_full_is_repaired_by_revert(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    before = toy.snapshot()
    seen = itertools.count(1)
    original = os.replace

    def replace(*arguments: Any) -> None:
        if next(seen) >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(Refusal):
            transaction.apply(open_tree(toy.site))
    assert toy.run("status", "--json").document["state"] == "half"
    assert toy.run("revert").code == 0
    assert toy.snapshot() == before

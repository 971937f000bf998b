"""What applying a series to a tree would do, worked out in memory: nothing is written here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from sglang_eagle3_patch.contract import schema, source
from sglang_eagle3_patch.contract.compare import Mismatch
from sglang_eagle3_patch.contract.paths import candidates
from sglang_eagle3_patch.installer import series
from sglang_eagle3_patch.installer.edit import apply_edits
from sglang_eagle3_patch.installer.refusal import Refusal
from sglang_eagle3_patch.installer.scopes import unbound
from sglang_eagle3_patch.installer.tree import Tree, read_release


@dataclass(frozen=True)
class Change:
    """One file before and after."""

    file: str
    before: bytes
    after: bytes


@dataclass(frozen=True)
class Plan:
    """A series that was held against a tree.

    Attributes:
        release: what the tree says it is.
        series: the series for it.
        changes: one a file; meaningless where there are mismatches.
        mismatches: contract entries that do not hold, then edits that can't be made.
    """

    release: str
    series: series.Series
    changes: tuple[Change, ...]
    mismatches: tuple[Mismatch, ...]

    def demand(self) -> Plan:
        """Return the plan itself.

        Raises:
            Refusal: it does not fit the tree; every mismatch is named.
        """
        if self.mismatches:
            reasons = tuple(str(mismatch) for mismatch in self.mismatches)
            raise Refusal(
                f"SGLang {self.release} does not fit series v{self.series.release}, nothing was changed: "
                f"{'; '.join(reasons)}",
                reasons,
            )
        return self


def make_plan(tree: Tree, originals: Mapping[str, bytes]) -> Plan:
    """Choose the series for the tree and work it out; a nightly takes the neighbour that fits.

    Args:
        tree: where.
        originals: bytes of the files that an applied patch has replaced, read instead of them.

    Raises:
        Refusal: no release, or a file that can't be edited at all.
        ContractError: no series for the release, or a broken one.
    """
    release = read_release(tree)
    plans: list[Plan] = []
    for name in candidates(release):
        plans.append(try_series(tree, release, name, originals))
        if not plans[-1].mismatches:
            return plans[-1]
    return plans[0]


def try_series(tree: Tree, release: str, name: str, originals: Mapping[str, bytes]) -> Plan:
    """Work out the series of release `name` on a tree of `release`.

    Raises:
        Refusal: a file that can't be edited at all.
        ContractError: a broken series.
    """
    chosen = series.load(name)
    mismatches = source.check(tree.package, schema.load(name), originals)
    changes: list[Change] = []
    by_file = sorted(chosen.edits, key=lambda edit: edit.file)
    for file, edits in groupby(by_file, key=lambda edit: edit.file):
        before = originals[file] if file in originals else tree.path(file).read_bytes()
        after, problems = apply_edits(file, before, tuple(edits))
        mismatches += problems or _unbound(file, before, after)
        changes.append(Change(file, before, after))
    return Plan(release, chosen, tuple(changes), tuple(mismatches))


def _unbound(file: str, before: bytes, after: bytes) -> list[Mismatch]:
    names = unbound(after, file) - unbound(before, file)
    return [
        Mismatch(f"edits in {file}", "every name they use to be bound", f"unbound {name}") for name in sorted(names)
    ]

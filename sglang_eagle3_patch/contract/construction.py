"""The construction rule (C1): what a class reads through `self`, it assigns itself, before anything can raise.

Two faults killed a server (docs/crash.md): an attribute set on one class and read on another, and an attribute set
after a call that can raise, on an object that something kept half built. Both show in the syntax.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sglang_eagle3_patch.contract.classes import ClassFacts, facts_of


@dataclass(frozen=True)
class Violation:
    """One attribute that a class may find undefined."""

    file: Path
    line: int
    owner: str
    attribute: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file.name}:{self.line}: {self.owner} reads self.{self.attribute}, which {self.reason}"


def check(files: Iterable[Path], provided: frozenset[str] = frozenset()) -> list[Violation]:
    """Hold every class of `files` against the rule.

    Args:
        files: all files of ours: an attribute that any class in them assigns is ours.
        provided: attributes that SGLang's classes bring by contract. They are taken as given where a class has a base
            that is not ours, or declares the attribute by a bare annotation (a mixin).
    """
    classes = [facts for file in files for facts in facts_of(file)]
    owners: dict[str, list[str]] = {}
    for facts in classes:
        for attribute in facts.assigns:
            owners.setdefault(attribute, []).append(facts.name)
    found: list[Violation] = []
    for facts in classes:
        line = _ancestors(facts, classes)
        defined = _defined(facts, classes)
        foreign = any(base not in {other.name for other in classes} for one in line for base in one.bases)
        for attribute, read_at in facts.reads.items():
            if attribute in defined or attribute not in owners:
                continue
            joined = foreign or any(attribute in one.declared for one in line)
            if joined and attribute in provided and attribute not in facts.assigns:
                continue
            reason = _reason(facts, attribute, owners[attribute])
            found.append(Violation(facts.file, read_at, facts.name, attribute, reason))
    return found


def foreign_reads(files: Iterable[Path]) -> dict[str, set[str]]:
    """Return, by class, the attributes read through `self` that no class of ours assigns: SGLang must bring them."""
    classes = [facts for file in files for facts in facts_of(file)]
    ours = {attribute for facts in classes for attribute in facts.assigns}
    return {
        facts.name: foreign for facts in classes if (foreign := set(facts.reads) - ours - {"__class__", "__dict__"})
    }


def _ancestors(facts: ClassFacts, classes: list[ClassFacts]) -> list[ClassFacts]:
    """The class and those of its bases that are ours, nearest first."""
    line = [facts]
    for base in facts.bases:
        known = [other for other in classes if other.name == base and other is not facts]
        for other in known:
            line += [one for one in _ancestors(other, classes) if one not in line]
    return line


def _defined(facts: ClassFacts, classes: list[ClassFacts]) -> set[str]:
    """What an instance has however early its construction ends."""
    line = _ancestors(facts, classes)
    defined = {attribute for one in line for attribute in one.on_class | one.methods}
    for one in line:
        defined |= set(one.first)
        if one.has_constructor and not one.base_first:
            break  # a base constructor runs after something that can raise, or not at all
    return defined


def _reason(facts: ClassFacts, attribute: str, owners: list[str]) -> str:
    if attribute in facts.late:
        what, line = facts.can_raise or ("a condition", facts.late[attribute])
        return f"is assigned at line {facts.late[attribute]} only after `{what}` (line {line}), or under a condition"
    if attribute in facts.elsewhere:
        return f"is assigned at line {facts.elsewhere[attribute]} by a method, not by the constructor"
    return f"only {', '.join(sorted(set(owners)))} assigns"

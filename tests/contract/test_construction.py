"""C1: the checker catches a planted violation of each kind, passes what is right, and holds on every class of ours."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from sglang_eagle3_patch.contract import schema
from sglang_eagle3_patch.contract.classes import ClassFacts, facts_of
from sglang_eagle3_patch.contract.construction import check, foreign_reads
from sglang_eagle3_patch.contract.paths import releases

pytestmark = pytest.mark.crash
RUNTIME = Path(schema.__file__).parents[1] / "runtime"
FILES = sorted(RUNTIME.rglob("*.py"))
CLASSES = [facts for file in FILES for facts in facts_of(file)]
NAMES = [name for release in releases() for name in schema.load(release, complete=False).names]


def violations(tmp_path: Path, source: str, provided: frozenset[str] = frozenset()) -> list[str]:
    file = tmp_path / "ours.py"
    file.write_text(textwrap.dedent(source))
    return [str(violation) for violation in check([file], provided)]


PLANTED = {
    "the crash: set on one class, read on another": (
        """
        class DraftWorker(EagleDraftWorker):
            def __init__(self, args):
                self.threshold = 4
                super().__init__(args)

        class Worker(EAGLEWorkerV2):
            def forward(self, batch):
                return len(batch) > self.threshold
        """,
        "ours.py:9: Worker reads self.threshold, which only DraftWorker assigns",
    ),
    "set after the base constructor": (
        """
        class Worker(EAGLEWorkerV2):
            def __init__(self, args):
                super().__init__(args)
                self.threshold = 4

            def forward(self):
                return self.threshold
        """,
        "ours.py:8: Worker reads self.threshold, which is assigned at line 5 only after "
        "`super().__init__(args)` (line 4), or under a condition",
    ),
    "set by what can raise": (
        """
        class Gate:
            def __init__(self, args):
                self.threshold = int(args)

            def on(self):
                return self.threshold
        """,
        "Gate reads self.threshold, which is assigned at line 4 only after `int(args)` (line 4), or under a condition",
    ),
    "set after a raise": (
        """
        class Gate:
            def __init__(self, threshold):
                if threshold < 0:
                    raise ValueError
                self.threshold = threshold

            def on(self):
                return self.threshold
        """,
        "Gate reads self.threshold, which is assigned at line 6 only after `raise ValueError` (line 5)",
    ),
    "set under a condition": (
        """
        class Gate:
            def __init__(self, threshold):
                if threshold:
                    self.threshold = threshold

            def on(self):
                return self.threshold
        """,
        "Gate reads self.threshold, which is assigned at line 5 only after `a condition`",
    ),
    "set by another method": (
        """
        class Gate:
            def arm(self):
                self.threshold = 4

            def on(self):
                return self.threshold
        """,
        "Gate reads self.threshold, which is assigned at line 4 by a method, not by the constructor",
    ),
    "declared, never set": (
        """
        class Gate:
            threshold: int

            def on(self):
                return self.threshold

            def arm(self):
                self.threshold = 4
        """,
        "is assigned at line 9 by a method",
    ),
    "counted up, never set": (
        """
        class Gate:
            def on(self):
                self.steps += 1
        """,
        "Gate reads self.steps",
    ),
    "read by name": (
        """
        class Gate:
            def arm(self):
                self.threshold = 4

            def on(self):
                return getattr(self, "threshold")
        """,
        "Gate reads self.threshold",
    ),
    "the base sets it, but after what can raise here": (
        """
        class Base:
            def __init__(self):
                self.threshold = 4

        class Gate(Base):
            def __init__(self, args):
                self.args = parse(args)
                super().__init__()

            def on(self):
                return self.threshold
        """,
        "Gate reads self.threshold, which only Base assigns",
    ),
    "in a class inside a function": (
        """
        def make(base):
            class Gate(base):
                def arm(self):
                    self.threshold = 4

                def on(self):
                    return lambda: self.threshold
            return Gate
        """,
        "Gate reads self.threshold",
    ),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted(tmp_path: Path, kind: str) -> None:
    source, sentence = PLANTED[kind]
    (found,) = violations(tmp_path, source)
    assert sentence in found


RIGHT = {
    "before the base constructor": """
        class Worker(EAGLEWorkerV2):
            def __init__(self, *args, **kwargs):
                self.threshold, self.rows = 0, set()
                self.lock = threading.Lock()
                super().__init__(*args, **kwargs)
                self.threshold = kwargs["threshold"].get()

            def forward(self):
                return self.threshold, self.rows, self.lock, self.forward
        """,
    "on the class": """
        class Gate:
            threshold: int = 0

            def on(self):
                self.threshold += 1
                return self.threshold
        """,
    "a dataclass": """
        @dataclass(frozen=True)
        class Gate:
            threshold: int
            rows: list = field(default_factory=list)

            @property
            def on(self):
                return self.threshold > len(self.rows)

            def off(self):
                return not self.on
        """,
    "a base of ours, called first": """
        class Base:
            def __init__(self):
                self.threshold = 4

        class Gate(Base):
            def __init__(self, args):
                self.args = args
                super().__init__()

            def on(self):
                return self.threshold, self.args
        """,
    "a base of ours without a constructor between": """
        class Base:
            def __init__(self):
                self.threshold = 4

        class Gate(Base):
            def on(self):
                return self.threshold
        """,
    "what is not ours": """
        class Worker(EAGLEWorkerV2):
            def forward(self):
                return self.model_runner
        """,
}


@pytest.mark.parametrize("kind", RIGHT)
def test_right(tmp_path: Path, kind: str) -> None:
    assert violations(tmp_path, RIGHT[kind]) == []


def test_what_sglang_brings_by_contract(tmp_path: Path) -> None:
    """Two classes may use one name: one its own, the other what SGLang's class brings and the contract lists."""
    source = """
        class Ours:
            def __init__(self):
                self.device = 0

        class Worker(EAGLEWorkerV2):
            def forward(self):
                return self.device

        class Mixin:
            device: int

            def forward(self):
                return self.device

        class Plain:
            def forward(self):
                return self.device
        """
    assert len(violations(tmp_path, source)) == 3
    (left,) = violations(tmp_path, source, frozenset({"device"}))
    assert "Plain reads self.device" in left


def test_there_are_classes_of_ours() -> None:
    assert "GatedWorkerMixin" in {facts.name for facts in CLASSES}


@pytest.mark.parametrize("facts", CLASSES, ids=lambda facts: f"{facts.file.stem}.{facts.name}")
def test_ours(facts: ClassFacts) -> None:
    provided = frozenset(name.qualname.rpartition(".")[2] for name in NAMES if "." in name.qualname)
    of_this_class = (facts.file, facts.name)
    assert [str(found) for found in check(FILES, provided) if (found.file, found.owner) == of_this_class] == []


def test_what_ours_reads_of_sglang_is_in_the_contract() -> None:
    """C3 for what a class reads through `self`: declared in the class, or listed for some release."""
    listed = {name.qualname.rpartition(".")[2] for name in NAMES}
    declared = {facts.name: facts.declared for facts in CLASSES}
    unlisted = {owner: reads - listed - declared[owner] for owner, reads in foreign_reads(FILES).items()}
    assert {owner: reads for owner, reads in unlisted.items() if reads} == {}

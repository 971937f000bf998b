"""A checkout between two releases takes the neighbour that fits it, and is refused where neither does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sglang_eagle3_patch.installer.plan import make_plan
from sglang_eagle3_patch.installer.refusal import Refusal
from sglang_eagle3_patch.installer.tree import Tree, open_tree
from tests.trees import sglang_tree


def nightly(release: str, version: str, folder: Path) -> Tree:
    """The files of ``release`` under another version."""
    site = sglang_tree(release, folder)
    for metadata in site.glob("*.dist-info"):
        shutil.rmtree(metadata)  # a checkout has none
    file = site / "sglang/_version.py"
    text = file.read_text()
    file.unlink()  # it may be a link to the shared one
    file.write_text(text.replace(release, version))
    return open_tree(site)


@pytest.mark.parametrize(
    ("files_of", "version", "takes"),
    [("0.5.21", "0.5.22.dev17+gabc", "0.5.21"), ("0.5.22", "0.5.22.dev300", "0.5.22")],
)
def test_a_nightly_takes_the_neighbour_that_fits(files_of: str, version: str, takes: str, tmp_path: Path) -> None:
    plan = make_plan(nightly(files_of, version, tmp_path), {}).demand()
    assert plan.series.release == takes
    (worker,) = (edit for edit in plan.series.edits if edit.id == "create-worker")
    assert f'"{takes}"' in worker.code  # so that the runtime holds the same contract when the server starts


def test_a_nightly_that_neither_neighbour_fits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="edit internal-state"):
        make_plan(nightly("0.5.22", "0.5.21.dev5", tmp_path), {}).demand()

"""Which release a tree says it is, and which series a nightly gets."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sglang_eagle3_patch.installer.refusal import Refusal
from sglang_eagle3_patch.installer.tree import open_tree, read_release
from tests.installer.conftest import Toy


class Checkout:
    """A git checkout with a toy SGLang in it; each commit is a day after the one before."""

    def __init__(self, toy: Toy, folder: Path) -> None:
        self.folder = folder
        self.day = 0
        shutil.copytree(toy.site, folder / "python")
        (folder / "python" / "pyproject.toml").write_text("")
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        self.day += 1
        date = f"2026-01-{self.day:02} 00:00:00 +0000"
        who = {f"GIT_{role}_{key}": "x" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, "GIT_CONFIG_GLOBAL": "/dev/null"}
        command = ["git", "-C", str(self.folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | who | dates).stdout

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")

    @property
    def release(self) -> str:
        return read_release(open_tree(self.folder))


@pytest.fixture
def checkout(toy: Toy, tmp_path: Path) -> Checkout:
    made = Checkout(toy, tmp_path / "checkout")
    made.commit()
    return made


def test_a_tagged_commit_is_that_release(checkout: Checkout) -> None:
    checkout.git("tag", "v2.0.0rc1")
    checkout.git("tag", "v2.0.0")
    checkout.git("tag", "gateway-v9.0.0")
    assert checkout.release == "2.0.0"


def test_a_commit_after_a_release(checkout: Checkout) -> None:
    checkout.git("tag", "v2.0.10")
    checkout.git("tag", "v2.0.9")
    checkout.commit()
    assert checkout.release.startswith("2.0.11.dev1+g")


def test_releases_are_tagged_on_branches(checkout: Checkout) -> None:
    checkout.git("tag", "v2.0.0")
    checkout.git("checkout", "-q", "-b", "release")
    checkout.commit()
    checkout.git("tag", "v2.0.1")
    checkout.git("checkout", "-q", "main")
    checkout.commit()
    here = checkout.release
    assert here.startswith("2.0.2.dev1+g")
    checkout.git("checkout", "-q", "release")
    checkout.commit()
    checkout.git("tag", "v2.0.2")
    checkout.git("checkout", "-q", "main")
    assert checkout.release == here  # a release that came later says nothing about this commit


def test_without_tags_the_build_says_it(checkout: Checkout) -> None:
    assert checkout.release == "1.0.0"
    (checkout.folder / "python/sglang/_version.py").unlink()
    with pytest.raises(Refusal, match="git fetch --tags"):
        checkout.release  # noqa: B018  # the property refuses


def test_what_a_wheel_says(toy: Toy) -> None:
    tree = open_tree(toy.site)
    (toy.package / "version.py").write_text("try:\n    from x import y\nexcept E:\n    __version__ = '0.0.0.dev0'\n")
    assert read_release(tree) == "1.0.0"
    (toy.package / "_version.py").unlink()
    info = toy.site / "sglang-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 1.2\n\nVersion: 9\n")
    (toy.site / "sglang_router-9.dist-info").mkdir()
    (toy.site / "sglang_router-9.dist-info" / "METADATA").write_text("Version: 9\n")
    assert read_release(tree) == "1.2"
    shutil.rmtree(info)
    (toy.package / "version.py").write_text('__version__ = "1.1"\n')
    assert read_release(tree) == "1.1"


def test_a_virtual_environment_inside_another_repository(toy: Toy, checkout: Checkout) -> None:
    checkout.git("tag", "v2.0.0")
    site = checkout.folder / ".venv/site-packages"
    shutil.copytree(toy.site, site)
    assert read_release(open_tree(site)) == "1.0.0"


def test_a_nightly_gets_the_neighbour_that_fits(toy: Toy) -> None:
    toy.edits[0]["anchor"] = "return 0"
    toy.write_series("1.0.5")
    toy.set_release("1.0.3.dev7")
    assert toy.run("check", "--json").document["series"] == "1.0.0"
    worker = toy.package / "srt/worker.py"
    worker.write_text(worker.read_text().replace("if batch:", "if batches:"))
    assert toy.run("apply", "--json").document["series"] == "1.0.5"
    assert toy.run("apply").out.startswith("already applied: series v1.0.5")
    toy.run("revert")
    worker.write_text(worker.read_text().replace("return 0", "return 1"))
    refused = toy.run("apply")
    assert refused.code == 2
    assert "SGLang 1.0.3.dev7 does not fit series v1.0.0" in refused.err


def test_a_folder_is_not_a_package(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    (toy.package / "__init__.py").unlink()
    monkeypatch.syspath_prepend(str(toy.site))
    with pytest.raises(Refusal, match="finds only the folder"):
        open_tree(None)

"""Patched trees that the tests here share; each is made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.cpu_reference import environment
from tests.e2e import trees


@pytest.fixture(scope="session")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """For a release, a tree of it with our patch."""
    folder = tmp_path_factory.mktemp("patched")
    return cache(lambda release: trees.patched(environment.tree(release), folder / release))

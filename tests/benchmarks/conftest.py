"""The modules of benchmarks/, which are no package: they are found by their folder, as when a benchmark runs."""

import sys
from pathlib import Path

import pytest

from tests.search_fixtures import compiled_search  # noqa: F401
from tests.torch_fixtures import forgotten_code, one_thread, quick_collection, settings_of_torch  # noqa: F401

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(FOLDER))  # at import: test modules import from there


@pytest.fixture(scope="session")
def folder() -> Path:
    return FOLDER

"""The fixture of tests that search for schedules; the conftest.py of their folder imports it."""

import pytest

from remat_explorer.solvers.search.compilation import warm_up


@pytest.fixture(autouse=True, scope="session")
def compiled_search() -> None:
    """The search is compiled, or read from disk, before the first test: no time limit includes it."""
    warm_up()

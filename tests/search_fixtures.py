"""Fixtures of tests that search for schedules; the conftest.py of their folder imports them."""

import pytest

from remat_explorer.solvers.jobs import worker_process
from remat_explorer.solvers.search.compilation import warm_up


@pytest.fixture(autouse=True, scope="session")
def compiled_search() -> None:
    """The search is compiled, or read from disk, before the first test: no time limit includes it."""
    warm_up()


@pytest.fixture(autouse=True)
def fitting_worker(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The worker that waits fits the next test, whose environment has another name and cache: workers use neither."""
    environment = worker_process._environment

    def of_all_tests() -> dict[str, str]:
        same = {name: entry for name, entry in environment().items() if name != "PYTEST_CURRENT_TEST"}
        return same | {"REMAT_EXPLORER_CACHE": str(tmp_path_factory.getbasetemp() / "of-workers")}

    monkeypatch.setattr(worker_process, "_environment", of_all_tests)

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remat_explorer.solvers.jobs import worker_process
from tests.search_fixtures import fitting_worker  # noqa: F401
from tests.torch_fixtures import forgotten_code, one_thread, quick_collection, settings_of_torch  # noqa: F401


@pytest.fixture
def chain(data: Path) -> str:
    return str(data / "graphs" / "linear8.json")


class Kept(worker_process.Processes):
    """Processes that all sweeps use, one after the other."""

    one: Kept | None = None

    def __new__(cls, workers: int) -> Kept:
        Kept.one = Kept.one or super().__new__(cls)
        return Kept.one

    def __init__(self, workers: int) -> None:
        if not hasattr(self, "_threads"):
            super().__init__(1)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """They are not ended."""

    def kill(self) -> None:
        """Nor so."""


@pytest.fixture(scope="session")
def one_process() -> Iterator[None]:
    """`Kept` ends with the tests."""
    yield
    if Kept.one is not None:
        worker_process.Processes.kill(Kept.one)


@pytest.fixture
def kept_workers(one_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this process fork their workers from one that waits, and sweep with one, the same for all tests."""
    monkeypatch.setattr("remat_explorer.solvers.sweeps.sweep_run.Processes", Kept)
    worker_process.prepare_worker()

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from remat_explorer.solvers.jobs import worker_process
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
def cache_of_session(own_cache: None) -> Iterator[str]:
    """The cache folder of all tests that have none of their own; `Kept` ends with it."""
    yield os.environ["REMAT_EXPLORER_CACHE"]
    if Kept.one is not None:
        worker_process.Processes.kill(Kept.one)


@pytest.fixture
def kept_workers(cache_of_session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this process fork their workers from one that waits, and sweep with one, the same for all tests.

    What waits fits a command whose environment is the same but for the test and its cache, which workers do not use.
    """
    environment = worker_process._environment

    def of_session() -> dict[str, str]:
        same = {name: entry for name, entry in environment().items() if name != "PYTEST_CURRENT_TEST"}
        return same | {"REMAT_EXPLORER_CACHE": cache_of_session}

    monkeypatch.setattr(worker_process, "_environment", of_session)
    monkeypatch.setattr("remat_explorer.solvers.sweeps.sweep_run.Processes", Kept)
    worker_process.prepare_worker()

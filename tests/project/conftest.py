"""What tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch_fixtures import forgotten_code, one_thread, quick_collection, settings_of_torch  # noqa: F401


@pytest.fixture
def chain(data: Path) -> str:
    """A graph file: the chain of eight layers."""
    return str(data / "graphs" / "linear8.json")

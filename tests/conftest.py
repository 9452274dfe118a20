"""Fixtures that every room shares."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of shared instances."""
    return DATA


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """One thread for torch: small models run no slower, and a busy machine does not multiply their time."""
    import torch

    torch.set_num_threads(1)

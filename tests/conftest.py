"""Shared by all tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """One thread for torch: small models run no slower, and a busy machine does not multiply their time."""
    import torch

    torch.set_num_threads(1)

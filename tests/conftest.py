"""Fixtures that every room shares."""

from collections.abc import Iterator
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


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Profiles of this session only; in the environment, so that kernels and servers started by tests see it too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield

"""Notebooks and their checks run PyTorch."""

from collections.abc import Iterator

import pytest

from tests.notebooks.notebook_runs import SamePython, lasting_kernel
from tests.torch_fixtures import forgotten_code, one_thread, quick_collection, settings_of_torch  # noqa: F401


@pytest.fixture(scope="package")
def kernel() -> Iterator[SamePython]:
    with lasting_kernel() as manager:
        yield manager

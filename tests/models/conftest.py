"""The models of the zoo, one after the other, for the tests of several files."""

from __future__ import annotations

import pytest

import remat_explorer as rx
from remat_explorer.models import LoadedModel
from tests.models.small_models import SMALL
from tests.torch_fixtures import forgotten_code, one_thread, quick_collection, settings_of_torch  # noqa: F401


@pytest.fixture(scope="session", params=sorted(SMALL))
def small(request) -> LoadedModel:
    """A model with a batch of one example, so small that a CPU runs a step in a second."""
    return rx.models.load(request.param, batch=1, **SMALL[request.param])

from typing import Any

import pytest

from remat_explorer.instances import linear
from remat_explorer.solvers import Frontier, solve
from tests.figures.choices import chain_with_choices
from tests.torch_fixtures import forgotten_code, one_thread, quick_collection, settings_of_torch  # noqa: F401


@pytest.fixture(scope="session")
def tight() -> Any:
    """The eight-layer chain within 4 units: nine recomputations."""
    return solve(linear(8), budget=4)


@pytest.fixture(scope="session")
def frontier() -> Any:
    """The eight-layer chain at five budgets, one of them too small, with a heuristic that no other needs."""
    graph = linear(8)
    solutions = [solve(graph, budget) for budget in (2, 4, 6, 8)]
    solutions += [solve(graph, budget, strategy="chen-sqrt-n") for budget in (4, 6, 8)]
    return Frontier(graph, tuple(solutions))


@pytest.fixture(scope="session")
def chosen() -> Any:
    """A schedule that runs more than default implementations."""
    return solve(chain_with_choices(), 3600, "monet", time_limit=60).schedule

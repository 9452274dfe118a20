"""A state with a solved schedule, and the panels that show it."""

from __future__ import annotations

import pytest

import remat_explorer as rx
from remat_explorer.explorer.panels import Panels
from remat_explorer.explorer.solving import show_schedule
from remat_explorer.explorer.state import State


@pytest.fixture
def state() -> State:
    """The eight-layer chain with its optimum within 4 bytes on the screen."""
    solution = rx.solve(rx.linear(8), budget=4)
    found = State(graph=solution.graph, budget=4, checkpoint_all_peak=10)
    show_schedule(found, solution.schedule, solution)
    return found


@pytest.fixture
def panels(state: State) -> Panels:
    return Panels(state)

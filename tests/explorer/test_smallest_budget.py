"""The explorer's budget takes the word for the smallest one."""

import pytest

from remat_explorer.errors import QuantityError
from remat_explorer.explorer.state.state import State
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all_peak, minimum_budget


def test_the_explorer_takes_the_smallest_budget_once_it_is_known():
    state, graph = State(), linear(8)
    with pytest.raises(QuantityError, match="none is known yet"):
        state.set_budget("smallest")
    state.checkpoint_all_peak, state.smallest = checkpoint_all_peak(graph), minimum_budget(graph)
    state.set_budget("smallest")
    assert state.budget == 3

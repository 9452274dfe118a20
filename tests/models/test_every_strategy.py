"""Every strategy on every model of the zoo: what it gives passes the checker and fits, or it says why it has none."""

from __future__ import annotations

import remat_explorer as rx
from remat_explorer.errors import SolverError
from remat_explorer.solution import Status
from remat_explorer.solvers import STRATEGIES

SECONDS = 0.3  # a linear program of a large graph is not solved in that time, and its method has to say so


def test_what_a_strategy_gives_fits_and_where_it_gives_nothing_it_says_why(small):
    graph = small.graph
    smallest = rx.minimum_budget(graph, 1.0)
    budget = (smallest.known_feasible + smallest.checkpoint_all_peak) // 2
    scheduled, refused = [], {}
    for name in STRATEGIES:
        try:
            solution = rx.solve(graph, budget, name, time_limit=SECONDS)
        except SolverError as refusal:
            refused[name] = str(refusal)
            continue
        if solution.schedule is None:
            assert solution.status in (Status.INFEASIBLE, Status.UNKNOWN), name
            continue
        checked = rx.check(graph, solution.schedule.R, solution.schedule.S, budget)
        assert (checked.cost, checked.peak) == (solution.cost, solution.peak), name
        assert checked.peak <= solution.budget == budget, name
        scheduled.append(name)
    assert "optimal" in scheduled
    assert len(scheduled) > 2
    for reason in refused.values():
        assert graph.name in reason
        assert ": use '" in reason or "; use " in reason

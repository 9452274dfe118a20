"""The anytime search: what it streams, that it repeats itself, and that it begins with what is known."""

from __future__ import annotations

import numpy as np
import pytest

from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.anytime.optimal import PlainSearch
from remat_explorer.solvers.base import Limits, Progress
from remat_explorer.solvers.condensed import Condensed, largest_operation
from remat_explorer.solvers.solution import Status
from tests.solvers.drawn_chains import heterogeneous_chain


def between(graph, fraction: float) -> int:
    """A budget between the largest operation's bytes and checkpoint-all's peak."""
    least = largest_operation(graph)[1]
    return int(least + fraction * (checkpoint_all_peak(graph) - least))


def test_costs_fall_and_bounds_rise_until_they_meet(captured):
    graph = captured("vgg16")
    heard: list[Progress] = []
    solution = solve(graph, between(graph, 0.05), on_progress=heard.append)
    assert solution.status is Status.OPTIMAL
    costs = [progress.schedule.cost for progress in heard if progress.schedule is not None]
    bounds = [progress.lower_bound for progress in heard if progress.lower_bound is not None]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    assert len(set(bounds)) > 2
    assert bounds[-1] <= costs[-1] + 1e-9
    assert [progress.seconds for progress in heard] == sorted(progress.seconds for progress in heard)
    assert len({progress.doing for progress in heard}) >= 3


@pytest.mark.parametrize("name", ["vgg16", "unet"])
def test_a_search_run_to_its_end_repeats_itself_on_one_thread_and_on_two(name, captured):
    graph = captured(name)
    found = [solve(graph, between(graph, 0.5), threads=threads, time_limit=300) for threads in (1, 2, 2)]
    assert [solution.status for solution in found] == [Status.OPTIMAL] * 3
    schedules = [solution.schedule for solution in found if solution.schedule is not None]
    for schedule in schedules[1:]:
        assert np.array_equal(schedule.R, schedules[0].R)
    assert len({solution.lower_bound for solution in found}) == 1


def test_a_search_begins_with_what_is_known():
    chain = linear(8)
    known = solve(chain, 4)
    heard: list[Progress] = []
    search = PlainSearch(
        Condensed.of(chain), 4, Limits(30, report=heard.append), known.schedule, known.lower_bound or 0.0
    )
    answer = search.run()
    assert answer.schedule is known.schedule
    assert answer.lower_bound == known.lower_bound
    assert len(heard) == 1  # there was nothing left to do


@pytest.mark.parametrize(
    ("chain", "budget"),
    [(linear(32), 6), (linear(32), 8), (linear(100), 9), (heterogeneous_chain(0, 100), 40)],
    ids=lambda value: value.name if isinstance(value, Graph) else str(value),
)
def test_on_a_chain_what_is_known_before_the_first_bound_is_as_cheap_as_the_methods_for_chains(chain, budget):
    rivals = [solve(chain, budget, strategy).cost for strategy in ("griewank", "rotor")]
    assert any(rivals)
    heard: list[Progress] = []
    limits = Limits(report=heard.append, cancelled=lambda: any("bounding" in progress.doing for progress in heard))
    answer = PlainSearch(Condensed.of(chain), budget, limits).run()
    assert answer.schedule is not None
    assert answer.schedule.cost <= min(cost for cost in rivals if cost is not None)


def test_without_time_the_answer_is_honest():
    solution = solve(linear(8), 4, time_limit=0.0)
    assert solution.status in (Status.UNKNOWN, Status.FEASIBLE)
    assert solution.lower_bound == 26  # in closed form

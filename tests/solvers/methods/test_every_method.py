"""Each method on all graphs that there are, on drawn ones, and against the baselines of Checkmate's authors."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat_explorer.checker import check
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import STRATEGIES, checkpoint_all_peak, solve
from remat_explorer.solvers.solution import Status
from tests.solvers.candidates import ON_CHAINS, WITHOUT_BUDGET, candidates_of, suited
from tests.solvers.drawn_chains import chains
from tests.solvers.drawn_graphs import loose_graphs, problems, training_graphs
from tests.solvers.drawn_settings import DRAWN
from tests.thorough import thorough_but

DATA = Path(__file__).parents[2] / "data"
FILES = sorted([*DATA.glob("captured/*.json"), *DATA.glob("graphs/*.json")])


@pytest.mark.parametrize(
    "path", thorough_but(FILES, *(path for path in FILES if path.stem != "densenet161")), ids=lambda path: path.stem
)
def test_schedules_of_the_zoo_pass_or_the_method_says_why_not(path):
    graph = Graph.load(str(path))
    takes_it, checked = suited(graph), set()  # many begin with what keeps everything
    assert {*WITHOUT_BUDGET} - {*takes_it} <= {*ON_CHAINS}
    for name in WITHOUT_BUDGET:
        candidates = STRATEGIES[name].candidates
        assert candidates is not None
        if name not in takes_it:
            with pytest.raises(SolverError, match=r"is no chain: .*use .*linearized"):
                next(candidates(graph))
            continue
        found = [candidate.schedule for candidate in islice(candidates(graph), 3)]
        assert found
        for schedule in found:
            if schedule.sequence in checked:
                continue
            checked.add(schedule.sequence)
            assert schedule.is_frontier_advancing
            check(graph, schedule.R, schedule.S)


@pytest.mark.parametrize("name", ["keras_vgg_unet", "keras_segnet", "linear16"])
def test_the_cheapest_candidate_that_fits_is_found(name):
    graph = Graph.load(str(DATA / "graphs" / f"{name}.json"))
    budget = int(0.75 * (checkpoint_all_peak(graph) - graph.resident_bytes)) + graph.resident_bytes
    for method in ("ap-greedy", "linearized-greedy"):
        found = [check(graph, each.schedule.R, each.schedule.S) for each in candidates_of(method, graph)]
        fitting = [each.cost for each in found if each.peak <= budget]
        assert 0 < len(fitting) < len(found)
        assert solve(graph, budget, method).cost == min(fitting)


@pytest.mark.parametrize("graphs", thorough_but([20, 60], 20))
def test_no_answer_exceeds_the_budget_and_none_claims_a_proof(graphs):
    @settings(DRAWN, max_examples=graphs)
    @given(problems(st.one_of(training_graphs(), chains(5), loose_graphs())))
    def keep_to_it(problem):
        graph, budget = problem
        for name in suited(graph):
            solution = solve(graph, budget, name)
            if solution.schedule is None:
                continue
            assert check(graph, solution.schedule.R, solution.schedule.S, budget).cost == solution.cost
            assert (solution.status, solution.lower_bound) == (Status.FEASIBLE, None)

    keep_to_it()


@pytest.mark.parametrize("graphs", thorough_but([20, 60], 20))
def test_where_everything_fits_methods_with_a_knob_keep_everything(graphs):
    @settings(DRAWN, max_examples=graphs)
    @given(st.one_of(training_graphs(), chains(5)))
    def keep_everything(graph):
        for name in suited(graph):
            if STRATEGIES[name].knob is not None:
                assert solve(graph, checkpoint_all_peak(graph), name).cost == graph.total_cost

    keep_everything()


@DRAWN
@given(training_graphs())
def test_the_same_graph_gives_the_same_candidates_in_the_same_order_and_none_twice(graph):
    for name in ("ap-greedy", "linearized-sqrt-n", "linearized-greedy"):
        first, second = ([(c.label, c.schedule.R.tobytes()) for c in candidates_of(name, graph)] for _ in range(2))
        assert first == second
        assert len({R for _, R in first}) == len(first)


def test_a_small_budget_on_a_chain_is_met_with_few_slots():
    """Nine values of one byte, all read again: four bytes are enough, at the price of recomputation."""
    solution = solve(Graph.load(str(DATA / "graphs" / "linear8.json")), 4, "griewank")
    assert solution.peak == 4
    assert solution.overhead is not None
    assert solution.overhead > 1


METHODS = {
    "checkpoint_last_node": ("checkpoint-last",),
    "chen_sqrtn": ("chen-sqrt-n", "ap-sqrt-n", "linearized-sqrt-n"),
    "chen_greedy": ("chen-greedy", "ap-greedy", "linearized-greedy"),
}


@pytest.mark.parametrize("method", METHODS)
def test_costs_equal_those_of_the_reference_and_peaks_are_at_most_those(reference, method):
    entries = [entry for entry in reference("baselines_linear.json") if entry["method"] == method]
    assert len(entries) >= 4
    for entry in entries:
        graph = linear(int(entry["graph"].removeprefix("linear")))
        options = {} if entry["segment_mem"] is None else {"segment_bytes": entry["segment_mem"]}
        for strategy in METHODS[method]:
            (candidate,) = candidates_of(strategy, graph, **options)
            found = check(graph, candidate.schedule.R, candidate.schedule.S)
            assert found.cost == entry["cost"], entry
            assert found.peak <= entry["peak"], entry

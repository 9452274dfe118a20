"""Methods that do not ask for the budget, on all graphs that there are; Chen's, and what is kept by any of them."""

import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from remat_explorer.checker import check_schedule
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import STRATEGIES, checkpoint_all_peak, solve
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.methods.chen import (
    articulation_split_points,
    chain_points,
    greedy,
    kept_values,
    linearized_points,
    segment_schedule,
    segment_sizes,
)
from remat_explorer.solvers.methods.static_policy import schedule_of
from remat_explorer.solvers.methods.two_phase_rounding import schedule_of as rounded
from tests.solvers.candidates import ON_CHAINS, WITHOUT_BUDGET, candidates_of, suited
from tests.solvers.drawn_graphs import chains, drawn, loose_graphs, problems, training_graphs
from tests.solvers.helpers import present, simple_graph
from tests.thorough import thorough_but

DATA = Path(__file__).parents[2] / "data"
FILES = sorted([*DATA.glob("captured/*.json"), *DATA.glob("graphs/*.json")])
QUICK = ("unet", "mobilenet_v1", "vgg16", "keras_segnet", "linear8")


@pytest.mark.parametrize(
    "path", thorough_but(FILES, *(path for path in FILES if path.stem in QUICK)), ids=lambda path: path.stem
)
def test_schedules_of_the_zoo_pass_or_the_method_says_why_not(path):
    graph = Graph.load(str(path))
    takes_it, checked = suited(graph), set()  # many begin with what keeps everything
    assert {*WITHOUT_BUDGET} - {*takes_it} <= {*ON_CHAINS}
    for name in WITHOUT_BUDGET:
        candidates = present(STRATEGIES[name].candidates)
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
            check_schedule(schedule)


@drawn(problems(st.one_of(training_graphs(), chains(5), loose_graphs())), 20, 60)
def test_no_answer_exceeds_the_budget_none_claims_a_proof_and_knobs_reach_what_keeps_everything(problem):
    graph, budget = problem
    for name in suited(graph):
        solution = solve(graph, budget, name)
        if solution.schedule is not None:
            assert check_schedule(solution.schedule, budget).cost == solution.cost
            assert (solution.status, solution.lower_bound) == (Status.FEASIBLE, None)
        if STRATEGIES[name].knob is not None and graph.is_backward.any():
            assert solve(graph, checkpoint_all_peak(graph), name).cost == graph.total_cost


@drawn(training_graphs())
def test_the_same_graph_gives_the_same_candidates_in_the_same_order_and_none_twice(graph):
    for name in ("ap-greedy", "linearized-sqrt-n", "linearized-greedy"):
        first, second = ([(c.label, c.schedule.R.tobytes()) for c in candidates_of(name, graph)] for _ in range(2))
        assert first == second
        assert len({R for _, R in first}) == len(first)


WRONG = {
    ("checkmate-approx", "epsilon"): (1.0, float("nan")),
    ("checkmate-approx", "threshold"): (-0.1, "half"),
    ("checkmate-approx-random", "samples"): (0, True),
    ("checkmate-approx-random", "seed"): (1.5,),
    ("checkmate-ilp", "splits"): (0, 1.5, True, "2"),
    ("checkpoint-every-n", "every_n_layers"): (0,),
    ("checkpoint-sequential", "segments"): (0, 9, 2.5, "two", True),
    ("chen-greedy", "segment_bytes"): (-1, 2.5, "8", float("inf")),
    ("dtr", "heuristic"): ("lru", 3, ["eq"]),
    ("griewank", "slots"): (0, 1.5, "two", True, float("nan")),
    ("layer-knapsack", "kept_share"): (2, "all"),
    ("megatron-block", "recompute_num_layers"): (2.5,),
    ("moccasin", "most_runs"): (0, 1.5, "many"),
    ("rotor", "slots"): (0, 2.5, True, "many"),
    ("torchtitan-greedy", "memory_budget"): (0, 2, "all"),
}


@pytest.mark.parametrize(("strategy", "option"), WRONG)
def test_a_value_that_an_option_cannot_have_is_quoted(strategy, option):
    for wrong in WRONG[strategy, option]:
        with pytest.raises(SolverError, match=f"{option} (is )?{re.escape(repr(wrong))}") as refused:
            solve(linear(8), 100, strategy, **{option: wrong})
        assert re.search("expected|give a whole number|knows 'eq', 'full', 'local'", str(refused.value))


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
            found = check_schedule(candidate.schedule)
            assert found.cost == entry["cost"], entry
            assert found.peak <= entry["peak"], entry


@drawn(chains(), 20)
def test_on_chains_the_three_kinds_of_split_points_give_the_same_schedules_that_run_nothing_thrice(graph):
    for rule in ("sqrt-n", "greedy"):
        chen, *others = (
            [candidate.schedule for candidate in candidates_of(f"{kind}-{rule}", graph)]
            for kind in ("chen", "ap", "linearized")
        )
        for schedule in chen:
            assert (schedule.R > 0).sum(axis=0).max() <= 2
            check_schedule(schedule)
        for other in others:
            assert all(np.array_equal(a.R, b.R) for a, b in zip(chen, other, strict=True))


@pytest.mark.parametrize(
    ("phases", "reads", "message"),
    [
        ("fffb", [[], [0], [0, 1], [2]], "forward operation 'v2' (number 2) reads from 'v0', 'v1'"),
        ("fffb", [[], [0], [], [2]], "forward operation 'v2' (number 2) reads from no operation"),
        ("fbfb", [[], [0], [0], [2]], "backward operation 'v1' (number 1) comes before the last forward operation"),
        ("fffb", [[], [0], [1], [0, 2]], "backward operation 'v3' (number 3) reads from the forward operations"),
        ("fffbb", [[], [0], [1], [0], [2, 3]], "reads what 'v2' wrote, after the backward pass has come down to 'v0'"),
    ],
)
def test_the_first_operation_that_breaks_a_chain_is_named(phases, reads, message):
    graph = simple_graph(reads, phases=phases)
    for strategy in ON_CHAINS:
        with pytest.raises(SolverError, match=re.escape(message) + "(?s:.*)use .*linearized"):
            solve(graph, "100%", strategy)


def algorithm_3(graph: Graph, points: list[int], budget: int) -> list[int]:
    """Chen's Algorithm 3, line by line."""
    checkpoints, temp = [], 0
    for k in range(graph.n):
        if graph.is_backward[k]:
            continue
        temp += sum(graph.values[v].bytes for v in kept_values(graph, k))
        if k in points and temp > budget:
            checkpoints.append(k)
            temp = 0
    return checkpoints


def branching_graph() -> Graph:
    """A stem, two branches that are summed, a head and a loss, with one gradient each; the sum is written in place."""
    reads = [[], [0], [1], [1], [2, 3], [4], [5]]
    sizes = [4, 4, 6, 6, 6, 2, 1]
    values = [Value(f"v{k}", size, persistent=k == 6) for k, size in enumerate(sizes)]
    operations = [
        operation(f"o{k}", "forward", inputs, [k], 2, overwrites=2 if k == 4 else None)
        for k, inputs in enumerate(reads)
    ]
    for k in reversed(range(6)):
        gradient = len(values)
        values.append(Value(f"gradient{k}", sizes[k]))
        operations.append(operation(f"b{k}", "backward", sorted({k, gradient - 1} - {6}), [gradient], 3))
    return Graph("branches", tuple(values), tuple(operations))


@drawn(chains())
def test_the_search_finds_every_segmentation_of_a_short_chain(graph):
    points = chain_points(graph)
    total = sum(value.bytes for value in graph.values)
    every = {tuple(algorithm_3(graph, points, budget)) for budget in range(total + 1)}
    assert {tuple(greedy(graph, points, size)) for size in segment_sizes(graph, points, most=1000)} == every


def test_the_search_over_a_large_network_is_bounded_and_reaches_both_ends(captured):
    for name in ("mobilenet_v1", "gpt2"):
        graph = captured(name)
        points = linearized_points(graph)
        found = [tuple(greedy(graph, points, size)) for size in segment_sizes(graph, points)]
        assert 30 <= len(found) <= 40
        assert len(set(found)) == len(found)
        assert found[0] == tuple(points)
        assert found[-1] == ()


def test_a_branch_is_recomputed_from_the_articulation_point_before_it():
    graph = branching_graph()
    assert graph.articulation_points() == (1, 4, 5)
    assert articulation_split_points(graph) == [0, 1, 4, 5]  # and both ends, but not the loss
    assert linearized_points(graph) == [0, 1, 2, 3, 4, 5]
    assert greedy(graph, articulation_split_points(graph), 17) == [4]
    (found,) = candidates_of("ap-greedy", graph, segment_bytes=17)
    assert (found.schedule.R > 0).sum(axis=0).tolist()[:7] == [2, 2, 2, 2, 1, 1, 1]


@pytest.mark.parametrize("strategy", ["chen-greedy", "ap-greedy", "linearized-greedy"])
def test_the_values_of_the_knob_cover_what_the_method_tries_by_itself(strategy):
    graph, knob = linear(12), present(STRATEGIES[strategy].knob)
    costs = [found.schedule.cost for found in candidates_of(strategy, graph)]
    single = [solve(graph, 100, strategy, segment_bytes=value).cost for value in knob.values(graph)]
    assert set(single) == set(costs)


@drawn(st.tuples(training_graphs(), st.randoms(use_true_random=False)))
def test_whatever_is_kept_the_schedule_is_correct_and_computes_nothing_that_could_be_left_out(drawn_pair):
    graph, random = drawn_pair
    condensed = CondensedGraph.of(graph)
    S = np.array([[random.random() < 0.5 for _ in range(condensed.groups)] for _ in range(graph.n)])
    S &= condensed.producer < np.arange(graph.n)[:, None]
    rows = np.array([[random.random() < 0.4 for _ in graph.values] for _ in range(graph.n)])
    for schedule in (rounded(condensed, S), schedule_of(graph, lambda t, retained: rows[t])):
        check_schedule(schedule)
        assert schedule.is_frontier_advancing
        for t, k in np.argwhere(np.tril(schedule.R, -1)):
            fewer = schedule.R.copy()
            fewer[t, k] = 0
            assert Schedule(graph, fewer, schedule.S).violation() is not None


@drawn(st.tuples(training_graphs(), st.sets(st.integers(0, 3))))
def test_gradients_and_the_way_forward_are_never_recomputed(drawn_pair):
    graph, checkpoints = drawn_pair
    forward = ~graph.is_backward
    for once in (True, False):
        R = segment_schedule(graph, sorted(checkpoints), once).R > 0
        assert not np.tril(R[forward], -1).any()
        assert R[:, ~forward].sum(axis=0).max() == 1
        if once:  # values that are computed again stay to their last use: one more forward pass at most
            assert R.sum(axis=0).max() <= 2
            assert R[:, sorted(checkpoints)].sum(axis=0).max(initial=1) == 1


@pytest.mark.parametrize("once", [True, False])
def test_checkpoints_alone_outlive_the_forward_pass(captured, once):
    graph = captured("mobilenet_v1")
    schedule = segment_schedule(graph, [10, 30], once)
    first = int(graph.is_backward.argmax())
    kept = {int(k) for k in graph.producer[schedule.S[first] & ~graph.persistent]}
    assert {10, 30} <= kept
    assert all(k in (10, 30) or k > 30 for k in kept)


@pytest.mark.parametrize("strategy", ["optimal", "checkpoint-all", "checkmate-unpartitioned"])
def test_an_option_that_a_strategy_does_not_have_is_named(strategy):
    with pytest.raises(SolverError, match=f"'{strategy}' has no option 'splits'"):
        solve(linear(2), 4, strategy, splits=2)

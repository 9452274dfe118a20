"""Which implementations may be chosen, selections of one for each operation, and what a relaxation would choose."""

import math
import random

import numpy as np
import pytest

from remat_explorer.capture_options import CaptureOptions
from remat_explorer.checker import check_schedule
from remat_explorer.errors import SolverError, UnknownNameError
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all, checkpoint_all_peak, solve
from remat_explorer.solvers.jobs.solve_job import SolveJob
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, Tables, allowed_codes
from remat_explorer.solvers.monet.joint_problem import JointProblem
from remat_explorer.solvers.monet.relaxation_with_choices import RelaxationWithChoices
from remat_explorer.solvers.monet.selections import default_selection, make_consistent, restricted_to
from remat_explorer.solvers.monet.windows import switch_runs
from remat_explorer.solvers.solver_interface import Limits
from tests.solvers.helpers import present
from tests.solvers.monet.choice_graphs import normalized_chain, random_graph
from tests.thorough import thorough_but

WAYS = (
    Implementation((0,), (1,), 4.0),
    Implementation((0,), (1,), 3.0, name="bits", kinds=("masks",)),
    Implementation((0,), (1,), 2.0, name="from the output, lean", tolerance=1e-6, kinds=("output-activated", "lean")),
    Implementation((0,), (1,), 1.0, name="by hand"),
)


def graph(options: CaptureOptions | None = None, ways: tuple[Implementation, ...] = WAYS) -> Graph:
    values = Value("loss", 1), Value("g", 1, persistent=True)
    operations = operation("loss", "forward", [], [0], 1.0), Operation("g", "backward", ways)
    return Graph("chosen", values, operations, options=options)


@pytest.mark.parametrize(
    ("implementations", "codes"),
    [
        ("all", [1, 2, 3, 4]),
        ("exact", [1, 2, 4]),
        ([], [1]),
        ("masks", [1, 2]),
        ("bits", [1, 2]),
        (["output-activated", "masks"], [1, 2]),
        (["output-activated", "lean"], [1, 3]),
        ("output-activated,lean", [1, 3]),
        ("masks, by hand", [1, 2, 4]),
        ("from the output, lean", [1, 3]),
        ({"masks", "lean", "output-activated"}, [1, 2, 3]),
    ],
)
def test_an_implementation_of_several_kinds_needs_all_of_them(implementations, codes):
    kinds = CaptureOptions(implementations=("masks", "lean", "output-activated"))
    assert allowed_codes(graph(kinds), implementations)[1] == codes
    assert allowed_codes(graph(), implementations)[1] == codes


def test_a_kind_that_was_captured_in_vain_allows_the_defaults_only():
    kinds = CaptureOptions(implementations=("masks", "pooling"))
    assert allowed_codes(graph(kinds), "pooling")[1] == [1]
    assert allowed_codes(graph(kinds, WAYS[:1]), "masks")[1] == [1]


def test_a_kind_that_was_not_captured_is_refused_with_what_to_do():
    with pytest.raises(SolverError, match=r"'chosen' has no .* 'pooling'; capture .*\['pooling'\]"):
        allowed_codes(graph(), "pooling")
    options = CaptureOptions(implementations=("masks",))  # of a graph from before kinds
    with pytest.raises(SolverError, match="capture the model"):
        allowed_codes(graph(options, (WAYS[0], WAYS[3])), ["masks"])


@pytest.mark.parametrize("name", ["mask", ["masks", "bit"], "masks, bit"])
def test_a_name_that_is_none_is_refused_with_those_there_are(name):
    with pytest.raises(UnknownNameError, match=r"did you mean '(masks|bits)'"):
        allowed_codes(graph(), name)


def test_kinds_reach_the_strategies_and_the_worker_process():
    costs = {"all": 1.0, "masks": 3.0, "lean, output-activated": 2.0}
    for implementations, cost in costs.items():
        assert solve(graph(), 10, "monet", implementations=implementations).cost == 1.0 + cost
    assert solve(graph(), 10, "monet-paper", implementations=["masks"]).cost == 4.0
    job = SolveJob.start(graph(), 10, "monet", time_limit=20, implementations=["lean", "output-activated"])
    assert job.wait(120)
    assert job.solution().cost == 3.0


def coded(graph: Graph, name: str) -> tuple[int, int]:
    """The first operation with an implementation of this name, and its code."""
    ways = ((k, [way.name for way in node.implementations]) for k, node in enumerate(graph.operations))
    return next((k, 1 + names.index(name)) for k, names in ways if name in names)


def test_a_selection_has_the_optional_operations_that_it_needs_and_no_others(residual):
    plain, selection = default_selection(residual), restricted_to(residual, dict([coded(residual, "from bits")]))
    defaults = [node.default.cost for node in residual.operations if not node.optional]
    assert [node.default.cost for node in plain.graph.operations] == defaults
    assert selection.graph.n == residual.stages + 1
    assert [residual.operations[i].optional for i in selection.operations].count(True) == 1


@pytest.mark.parametrize("seed", range(5))
def test_any_choice_is_made_consistent_and_lifted_schedules_run_the_chosen_implementations(seed):
    draw, graph = random.Random(seed), random_graph(seed, layers=6)
    for _ in range(20):
        choice = {k: draw.randint(1, len(graph.operations[k].implementations)) for k in graph.mandatory.tolist()}
        consistent = make_consistent(graph, choice)
        selection = restricted_to(graph, consistent)
        lifted = selection.lift(checkpoint_all(selection.graph))
        assert lifted.is_frontier_advancing
        assert check_schedule(lifted).cost == pytest.approx(selection.graph.total_cost)
        for k, code in consistent.items():
            assert lifted.R[graph.first_stage[k], k] == code


def normalized() -> Graph:
    """An operation that saves statistics, with which it runs again for a tenth of the cost."""
    values = (Value("x", 8), Value("y", 8), Value("s", 1), Value("z", 8), Value("g", 1), Value("w", 1, True))
    again = Implementation((0, 2), (1,), 1.0, name="with saved statistics")
    return Graph(
        "normalized",
        values,
        (
            operation("f", "forward", [], [0], 1.0),
            Operation("norm", "forward", (Implementation((0,), (1, 2), 10.0), again)),
            operation("h", "forward", [1], [3], 1.0),
            operation("loss", "backward", [3], [4], 1.0),
            operation("gradient", "backward", [0, 1, 2, 4], [5], 1.0),
        ),
    )


def test_a_rerun_takes_the_cheaper_implementation_and_the_first_run_does_not():
    graph = normalized()
    R = np.eye(5, dtype=int)
    R[4, 1] = 1
    schedule = Schedule(graph, R, np.zeros((5, 6), dtype=bool)).compact()
    assert not schedule.S[4, 2]
    switched = switch_runs(schedule, 2000)
    assert switched.S[4, 2]  # the statistics are small, so they stay in memory until then
    assert switched.R[1, 1] == 1
    assert switched.R[4, 1] == 2
    assert switched.cost == schedule.cost - 9
    assert switch_runs(schedule, Plan.of(schedule).peak) is schedule  # one byte is much there


@pytest.mark.parametrize("seed", range(8))
def test_switched_schedules_are_valid_and_within_the_budget(seed):
    graph = random_graph(seed, layers=4)
    plain = default_selection(graph)
    peak = checkpoint_all_peak(graph)
    for share in (0.8, 0.95, 1.0):
        found = solve(plain.graph, int(share * peak), threads=1).schedule
        if found is None:
            continue
        schedule = plain.lift(found)
        budget = Plan.of(schedule).peak
        switched = switch_runs(schedule, budget)
        assert check_schedule(switched, budget).cost <= schedule.cost
        assert switched is schedule or switched.cost < schedule.cost


def test_only_allowed_implementations_are_taken():
    graph = random_graph(4, layers=5)
    keep = checkpoint_all(graph)
    assert switch_runs(keep, checkpoint_all_peak(graph), [[1] for _ in graph.operations]) is keep


def test_readers_that_go_back_to_their_defaults_take_producers_between_with_them():
    values = tuple(Value(name, 1) for name in ("x", "s", "y", "a", "b"))
    graph = Graph(
        "between",
        values,
        (
            Operation("p", "forward", (Implementation((), (0,), 1.0), Implementation((), (1,), 1.0, name="s"))),
            Operation("q", "forward", (Implementation((), (2,), 1.0), Implementation((), (), 1.0, name="none"))),
            Operation("u", "backward", (Implementation((0, 2), (3,), 1.0), Implementation((1,), (3,), 1.0, name="s"))),
            operation("w", "backward", [0, 3], [4], 1.0),
        ),
    )
    found = make_consistent(graph, {0: 2, 1: 2, 2: 2})
    assert restricted_to(graph, found).codes == (1, 1, 1, 1)


@pytest.mark.parametrize("seed", thorough_but(range(30), *range(4)))
def test_no_bound_is_above_the_joint_optimum(seed):
    graph = random_graph(seed, layers=4 + seed % 3)
    problem = CondensedChoices.of(graph)
    tables, peak = Tables(problem), checkpoint_all_peak(graph)
    for share in (0.75, 0.85, 0.93):
        budget = int(share * peak)
        joint = JointProblem(problem, budget, Milp(relaxed=True))
        joint.build(Limits())
        schedule, _ = joint.solve(Limits())
        optimum = math.inf if schedule is None else schedule.cost
        relaxation = RelaxationWithChoices(tables, budget)
        fractional = relaxation.improve(Limits(), integral=False).bound
        integral = relaxation.improve(Limits(), integral=True).bound
        assert fractional <= integral <= optimum + 1e-6


def test_the_bound_says_more_than_that_everything_runs_once(residual):
    problem = CondensedChoices.of(residual)
    relaxation = RelaxationWithChoices(Tables(problem), int(0.5 * checkpoint_all_peak(residual)))
    nothing = relaxation.improve(Limits(time_limit=0.0), integral=False)
    assert (nothing.bound, nothing.choice()) == (problem.least_cost, {})
    moments = list(relaxation.moments)
    first = relaxation.improve(Limits(), integral=False, columns=0)  # solved to its end, however little work there is
    assert first.bound > problem.least_cost
    assert list(first.moments) == moments  # of one round
    found = relaxation.improve(Limits(), integral=False)
    assert found.bound > problem.least_cost * 1.001
    assert set(found.choice()) == set(residual.mandatory.tolist())
    names = {residual.operations[k].implementations[code - 1].name for k, code in found.choice().items()}
    assert names - {"default"}
    budget = int(0.98 * problem.least_memory.max())  # below one operation
    assert math.isinf(RelaxationWithChoices(Tables(problem), budget).improve(Limits(), integral=False).bound)


def test_half_a_run_of_each_way_does_not_do_with_half_of_an_input():
    normalized = normalized_chain(4)
    budget = 56  # of 104 that keeping everything takes
    problem = CondensedChoices.of(normalized)
    joint = JointProblem(problem, budget, Milp(relaxed=True))
    joint.build(Limits())
    schedule, _ = joint.solve(Limits())
    relaxation = RelaxationWithChoices(Tables(problem), budget)
    bound, cost = relaxation.improve(Limits(), integral=False).bound, present(schedule).cost
    assert bound <= cost + 1e-6
    rerun, proven = cost - normalized.total_cost, bound - normalized.total_cost
    assert proven == pytest.approx(rerun)

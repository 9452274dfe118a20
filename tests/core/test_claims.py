"""What files say of a solution is held against its schedule, and against itself."""

import json

import pytest

from remat_explorer.errors import SolutionError
from remat_explorer.instances import linear
from remat_explorer.solvers.ablation.ablation_result import Ablation
from remat_explorer.solvers.base import checkpoint_all
from remat_explorer.solvers.solution import Solution, Status
from remat_explorer.solvers.sweeps.frontier import Frontier

GRAPH = linear(8)
KEPT = checkpoint_all(GRAPH)
PROVEN = Solution(GRAPH, "optimal", Status.OPTIMAL, 10, KEPT, 17.0, 0.1)
FALSE = [
    ({"lower_bound": 1e9}, "lower_bound 1000000000.0, but its schedule costs 17.0, which is less"),
    ({"lower_bound": 0.0, "gap": 1.0}, 'status "optimal" with lower_bound 0.0, which does not prove a cost of 17.0'),
    ({"lower_bound": None, "gap": None}, 'status "optimal" with lower_bound null'),
    ({"status": "infeasible"}, 'status "infeasible", but there is a schedule'),
    ({"status": "unknown"}, 'status "unknown", but there is a schedule'),
    ({"status": []}, "the status [] of"),
    ({"status": "feasible", "gap": 0.5}, "gap 0.5, but cost and lower_bound have 0.0"),
    ({"cost": 16.0}, "says cost 16.0, but its schedule has 17.0"),
    ({"cost": 10**400}, "is not a number of at least 0"),
    ({"cost": "17"}, 'is not a number of at least 0: "17"'),
    ({"peak": 9}, "says peak 9, but its schedule has 10"),
    ({"budget": {}}, "is not a number of bytes: {}"),
    ({"budget": float("nan")}, "is not a number of bytes: NaN"),
    ({"budget": 2**63 - 1}, "9223372036854775807 bytes, more than 8192 TiB"),
    ({"seconds": float("nan")}, "is not a number of at least 0: NaN"),
    ({"seconds": "soon"}, 'is not a number of at least 0: "soon"'),
    ({"lower_bound": float("nan")}, "is not a number of at least 0: NaN"),
    ({"lower_bound": float("inf")}, "is not a number of at least 0: Infinity"),
    ({"lower_bound": True}, "is not a number of at least 0: true"),
    ({"strategy": ["optimal"]}, 'is not a string: ["optimal"]'),
    ({"strategy": "\ud800"}, "half of a surrogate pair"),
    ({"solver": None}, "is not a string: null"),
    ({"limit": 3}, "is not a string: 3"),
]


@pytest.mark.parametrize(("claims", "message"), FALSE)
def test_a_solution_file_with_a_false_claim_is_refused_and_the_claim_quoted(claims, message):
    with pytest.raises(SolutionError) as caught:
        Solution.from_document(PROVEN.to_document() | claims, GRAPH)
    assert message in str(caught.value)


@pytest.mark.parametrize(("claims", "message"), FALSE)
def test_so_is_a_point_of_a_sweep_and_of_an_ablation(claims, message):
    sweep = Frontier(GRAPH, (PROVEN,)).to_document()
    ablation = Ablation(GRAPH, (), (10,), {((), 10): PROVEN}, {}).to_document()
    sweep["points"][0] |= claims
    ablation["sets"][0]["points"][0] |= claims
    for read, document in ((Frontier.from_document, sweep), (Ablation.from_document, ablation)):
        with pytest.raises(SolutionError) as caught:
            read(document, GRAPH)
        assert message in str(caught.value)


@pytest.mark.parametrize("runs", [[[2**63]], [[-1]], [[True]], [[0.5]], [["0"]], [0], "0", [], [[17 * 9]], [[10**400]]])
def test_runs_that_no_graph_has_are_refused(runs):
    document = Frontier(GRAPH, (PROVEN,)).to_document()
    document["points"][0]["runs"] = runs
    with pytest.raises(SolutionError, match="run"):
        Frontier.from_document(document, GRAPH)


def test_a_schedule_of_so_many_stages_that_memory_would_not_do_is_refused():
    document = Frontier(GRAPH, (PROVEN,)).to_document()
    document["points"][0]["runs"] = [[0]] * (2**28 // 17 + 1)
    with pytest.raises(SolutionError, match="too large"):
        Frontier.from_document(document, GRAPH)


def test_true_claims_are_read_back():
    assert json.loads(json.dumps(PROVEN.to_document()))["gap"] == 0.0
    for solution in (PROVEN, Solution(GRAPH, "optimal", Status.INFEASIBLE, 2, None, None, 0.1)):
        again = Solution.from_document(solution.to_document(), GRAPH)
        assert again.to_document() == solution.to_document()

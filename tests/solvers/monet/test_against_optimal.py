"""With one implementation of each operation, `monet` is `optimal`: on every reference graph, by either of its roads."""

from __future__ import annotations

import pytest

from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.anytime.monet import JointSearch
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.condensed import largest_operation
from remat_explorer.solvers.search.planner import load_search
from remat_explorer.solvers.solution import Status
from tests.thorough import thorough_but


class Joint(JointSearch):
    """The search of the joint problem, which does not take the road of the plain one."""

    def _solve_plain(self) -> bool:
        return False


def jointly(graph: Graph, budget: int) -> tuple[float, float]:
    load_search()
    answer = Joint(graph, budget, Limits(60, threads=2)).run()
    assert answer.schedule is not None
    assert answer.lower_bound is not None
    return answer.schedule.cost, answer.lower_bound


def test_every_reference_chain_has_the_same_optimum(reference):
    for entry in reference("optimal_linear.json"):
        chain = linear(int(entry["graph"].removeprefix("linear")))
        optimal, monet = (solve(chain, entry["budget"], strategy) for strategy in ("optimal", "monet"))
        assert optimal.cost == monet.cost == monet.lower_bound == entry["optimum"], entry["graph"]


def test_every_small_reference_graph_has_the_same_optimum(reference, small_graph):
    for entry in reference("exact_small_graphs.json"):
        graph, optimum = small_graph(entry), entry["exact_global"]
        optimal, monet = (solve(graph, entry["budget"], strategy) for strategy in ("optimal", "monet"))
        assert optimal.cost == monet.cost == monet.lower_bound == optimum, entry
        assert monet.status is Status.OPTIMAL


@pytest.mark.parametrize("name", ["linear4", "linear6"])
def test_the_joint_problem_itself_has_the_optima_of_the_reference_chains(name, reference):
    for entry in reference("optimal_linear.json"):
        if entry["graph"] == name:
            found = jointly(linear(int(name.removeprefix("linear"))), entry["budget"])
            assert found == pytest.approx((entry["optimum"], entry["optimum"]))


def test_the_joint_problem_itself_has_the_optima_of_the_small_reference_graphs(reference, small_graph):
    for entry in reference("exact_small_graphs.json"):
        found = jointly(small_graph(entry), entry["budget"])
        assert found == pytest.approx((entry["exact_global"], entry["exact_global"])), entry


NETWORKS = [("vgg16", "70%"), ("mobilenet_v1", "60%"), ("unet", "50%")]


@pytest.mark.parametrize(("name", "share"), thorough_but(NETWORKS, *NETWORKS[:2]))
def test_captured_networks_have_the_same_cost_and_bound(name, share, captured):
    graph = captured(name)
    optimal, monet = (solve(graph, share, strategy, time_limit=60) for strategy in ("optimal", "monet"))
    assert optimal.status == monet.status == Status.OPTIMAL
    assert monet.cost == pytest.approx(optimal.cost, rel=1e-6)
    assert monet.lower_bound == pytest.approx(optimal.lower_bound, rel=1e-6)


def test_keras_networks_have_the_same_cost(data):
    for name in ("VGG16", "MobileNet"):
        graph = Graph.load(data / "graphs" / f"keras_{name}.json")
        budget = (largest_operation(graph)[1] + checkpoint_all_peak(graph)) // 2
        optimal, monet = (solve(graph, budget, strategy, time_limit=60) for strategy in ("optimal", "monet"))
        assert monet.cost == pytest.approx(optimal.cost, rel=1e-5)
        assert (monet.gap or 0.0) < 1e-3

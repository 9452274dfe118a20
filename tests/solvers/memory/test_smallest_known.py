"""The budget "smallest", and what is said where no schedule was found."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import remat_explorer as rx
from remat_explorer.errors import QuantityError
from remat_explorer.graph import Graph, Implementation, Operation, Value
from remat_explorer.instances import linear
from remat_explorer.quantities import parse_budget
from remat_explorer.solvers import minimum_budget
from remat_explorer.solvers.memory.minimum_budget import smallest_known, with_known
from remat_explorer.solvers.solution import Solution, Status


@pytest.fixture(scope="module")
def unet(data) -> Graph:
    return Graph.load(str(data / "graphs" / "keras_vgg_unet.json"))


def test_the_smallest_budget_has_a_schedule_even_where_the_search_has_no_time(unet):
    solution = rx.solve(unet, "smallest", time_limit=0.0)
    assert solution.budget == smallest_known(unet)
    assert solution.peak is not None
    assert solution.peak <= solution.budget


def test_the_schedule_of_a_smallest_budget_that_was_asked_for_before_is_known_too(unet):
    least = minimum_budget(unet)
    solution = rx.solve(unet, least, time_limit=0.0)
    assert solution.peak == least.known_feasible
    other = linear(8)
    unknown = Solution(other, "optimal", Status.UNKNOWN, least.known_feasible, None, 17.0, 0.0)
    assert with_known(unknown, least) is unknown


def test_a_known_schedule_with_implementations_that_may_not_be_chosen_is_not_given():
    quick = Implementation((0,), (1,), 1.0, workspace=50)
    slow = Implementation((0,), (1,), 5.0, name="slow", tolerance=1e-3)
    operations = Operation("a", "forward", (Implementation((), (0,), 1.0),)), Operation("b", "backward", (quick, slow))
    graph = Graph("two ways", (Value("a", 10), Value("b", 10, persistent=True)), operations)
    least = minimum_budget(graph)
    unknown = Solution(graph, "monet", Status.UNKNOWN, least.known_feasible, None, 1.0, 0.0)
    assert least.known_feasible == 20
    assert with_known(unknown, least).peak == 20
    assert with_known(unknown, least, "exact") is unknown


@pytest.mark.parametrize("text", ["smallest", " Smallest "])
def test_every_function_that_takes_a_budget_takes_the_smallest(text):
    graph = linear(8)
    assert rx.solve(graph, text).budget == 3
    assert rx.relax(graph, text) == rx.relax(graph, 3)
    frontier = rx.sweep(graph, [text, 6], executor=ThreadPoolExecutor(1))
    assert [point.budget for point in frontier.solutions] == [3, 6]
    best = frontier.best(text)
    assert best is not None
    assert best.peak == 3
    assert rx.ablation(graph, [text], time_limit=1).budgets == (3,)


def test_without_a_graph_the_smallest_is_no_budget_and_with_one_it_is_offered():
    with pytest.raises(QuantityError, match=r"'smallest' is not a number of bytes"):
        parse_budget("smallest", 100)
    with pytest.raises(QuantityError, match='"smallest", the smallest budget with a known schedule'):
        rx.solve(linear(2), "tiny")


@pytest.mark.parametrize(
    ("budget", "parts"),
    [
        (2, ["within 2 B before it was ended by the time limit of 1.0 s", "'v9' alone needs 3 B"]),
        (3, ["but there is one that needs 3 B: try the strategy 'optimal', or a larger time limit"]),
    ],
)
def test_a_search_that_found_nothing_names_the_smallest_budget_with_a_schedule(budget, parts):
    text = minimum_budget(linear(8)).explain_unknown("checkmate-ilp", budget, "the time limit of 1.0 s")
    for part in parts:
        assert part in text


def test_a_budget_between_the_bound_and_the_known_schedule_points_to_the_smallest(unet):
    smallest = minimum_budget(unet, 0.0)
    assert smallest.lower_bound < smallest.known_feasible
    text = smallest.explain_unknown("optimal", smallest.known_feasible - 1)
    assert f"({smallest.known_feasible} bytes)" in text
    assert '"smallest"' in text


def test_a_strategy_that_cannot_use_the_known_schedule_does_not_claim_it():
    assert rx.solve(linear(8), "smallest", "checkpoint-all").status is Status.INFEASIBLE

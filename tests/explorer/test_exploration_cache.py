"""The first look at a model that was explored before: what was known then, until its graph is captured again."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.cache_folder import entries, entry_path
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.exploration_cache import (
    NOT_CAPTURED,
    cache_key,
    replace_by_captured,
    show_cached,
    store_exploration,
)
from remat_explorer.explorer.work.loading import find_budget_marks, show_keep_all
from remat_explorer.explorer.work.model_sources import NO_MODULE, ModuleInputs
from remat_explorer.graph import Graph
from remat_explorer.solvers import Frontier, minimum_budget
from remat_explorer.solvers.sweeps.frontier import extend_frontier


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """A state that knows two schedules of a chain, which it takes for a model of the zoo, and an empty cache."""
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    chain = rx.linear(8)
    state = State(model="chain", graph=chain, smallest=minimum_budget(chain), checkpoint_all_peak=10)
    state.frontier = extend_frontier(chain, None, [rx.solve(chain, 4), rx.solve(chain, 10)])
    state.inputs, state.budget = ModuleInputs(None, ()), 5
    return state


def test_what_was_known_is_shown_before_the_model_is_captured(known: State) -> None:
    assert store_exploration(known)
    state = State(model="chain")
    assert show_cached(state)
    assert state.graph == known.graph
    assert (state.budget, state.checkpoint_all_peak) == (5, 10)
    assert state.schedule is not None
    assert state.schedule.cost == 26
    assert state.value == 5  # its dearest recomputation
    assert state.frontier is not None
    assert [solution.budget for solution in state.frontier.solutions] == [4, 10]
    assert (state.inputs, state.no_execution) == (None, NOT_CAPTURED)
    assert show_cached(state, "100%")
    assert state.schedule.cost == 17


def test_the_longest_unused_looks_go(known: State, monkeypatch: pytest.MonkeyPatch) -> None:
    for batch in (1, 2, 3):
        known.batch = batch
        assert store_exploration(known)
        os.utime(entry_path("look", cache_key(known) or {}), (batch, batch))
    assert show_cached(State(model="chain", batch=1))  # and is thereby the last used
    monkeypatch.setattr(
        "remat_explorer.explorer.work.exploration_cache.MAX_CACHE_BYTES", sum(e.bytes for e in entries("look"))
    )
    known.batch = 4
    assert store_exploration(known)
    assert [show_cached(State(model="chain", batch=batch)) for batch in (1, 2, 3, 4)] == [True, False, True, True]


def test_the_captured_graph_takes_its_place_if_it_is_the_same(known: State) -> None:
    store_exploration(known)
    state = State(model="chain")
    show_cached(state)
    state.stage = 12
    again, other = rx.linear(8), rx.linear(7)
    assert not replace_by_captured(state, other, known.inputs, "")
    assert replace_by_captured(state, again, known.inputs, "")
    assert state.graph is again
    assert state.schedule is not None
    assert state.frontier is not None
    assert state.schedule.graph is state.frontier.graph is again
    assert (state.stage, state.inputs, state.no_execution) == (12, known.inputs, "")


@pytest.mark.parametrize("different", [{"batch": 2}, {"implementations": "exact"}, {"measured_costs": True}])
def test_other_choices_have_looks_of_their_own_or_none(known: State, different: dict[str, Any]) -> None:
    store_exploration(known)
    assert not show_cached(State(model="chain", **different))


@pytest.mark.parametrize(("key", "wrong"), [("curve", {}), ("budget", -1), ("graph", {}), ("key", {}), ("version", 9)])
def test_a_damaged_file_is_as_none(known: State, key: str, wrong: Any) -> None:
    store_exploration(known)
    (entry,) = entries("look")
    entry.path.write_text(json.dumps(json.loads(entry.path.read_text()) | {key: wrong}))
    state = State(model="chain")
    assert not show_cached(state)
    assert state.graph is None


def test_what_loading_knows_of_a_captured_graph_can_be_kept(known: State) -> None:
    graph = Graph.load(str(Path(__file__).parents[1] / "data" / "captured" / "vgg16.json"))
    known.frontier = None
    keep_all = show_keep_all(known, known.inputs, graph)
    assert keep_all.cost != graph.total_cost  # sums in different orders
    find_budget_marks(known, keep_all)
    assert store_exploration(known)
    assert show_cached(State(model="chain"))


def test_a_schedule_that_costs_more_than_it_says_is_not_shown(known: State) -> None:
    store_exploration(known)
    (entry,) = entries("look")
    document = json.loads(entry.path.read_text())
    document["curve"]["points"][0]["cost"] = 20.0
    entry.path.write_text(json.dumps(document))
    assert not show_cached(State(model="chain"))


def test_a_model_that_is_none_of_the_zoo_is_known_by_its_graph(known: State, monkeypatch: pytest.MonkeyPatch) -> None:
    known.model = "net.py:make"
    assert not store_exploration(known)  # too small
    monkeypatch.setattr("remat_explorer.explorer.work.exploration_cache.MIN_OPERATIONS", 9)
    assert store_exploration(known)
    state = State(model="net.py:make_again")
    assert not show_cached(state)
    assert not show_cached(state, captured=rx.linear(7))
    again = rx.linear(8)
    assert show_cached(state, captured=again)
    assert replace_by_captured(state, again, None, "no module")
    assert (state.graph, state.no_execution) == (again, "no module")
    assert state.frontier is not None
    assert [solution.budget for solution in state.frontier.solutions] == [4, 10]


def test_a_graph_with_the_name_of_a_model_is_not_taken_for_it(known: State) -> None:
    assert store_exploration(known)
    assert not show_cached(State(model="chain", no_execution=NO_MODULE))
    known.no_execution = NO_MODULE
    assert not store_exploration(known)  # as a graph it is too small


def test_of_a_large_graph_few_schedules_are_kept(known: State, monkeypatch: pytest.MonkeyPatch) -> None:
    assert known.graph is not None
    known.frontier = extend_frontier(known.graph, None, [rx.solve(known.graph, budget) for budget in range(3, 11)])
    monkeypatch.setattr("remat_explorer.explorer.work.exploration_cache.MAX_CHECKED_OPERATIONS", 3 * known.graph.n)
    assert store_exploration(known)
    state = State(model="chain")
    assert show_cached(state)
    assert state.frontier is not None
    assert [solution.budget for solution in state.frontier.solutions] == [3, 5, 7, 10]  # 5 is the state's


def test_schedules_of_a_method_with_its_own_curve_are_kept_without_its_answers_to_budgets(known: State) -> None:
    assert known.graph is not None
    swept = rx.sweep(known.graph, [4, 10], ["optimal", "griewank"], ThreadPoolExecutor(1))
    known.frontier = Frontier(
        known.graph, tuple(point for point in swept.solutions if point.strategy == "optimal"), own=swept.own
    )
    assert store_exploration(known)
    state = State(model="chain")
    assert show_cached(state)
    assert state.frontier is not None
    assert state.frontier.strategies == ("optimal", "griewank")
    peaks = [peak for _, peak in known.frontier.scheduled()]
    assert len(peaks) > 2
    assert [peak for _, peak in state.frontier.scheduled()] == peaks

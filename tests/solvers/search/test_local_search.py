"""Local search by flips: its own account is the plan's, its result is repeatable, and it can be stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from remat_explorer.checker import check
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.solvers import checkpoint_all, checkpoint_all_peak
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.search.annealing import anneal, start
from remat_explorer.solvers.search.compiled_state import BETTER, FlatGraph, FlipState
from remat_explorer.solvers.search.local_search import Guide, LocalSearch, with_first_runs
from remat_explorer.solvers.search.planner import plan_schedule


def loaded(condensed: Condensed, R: np.ndarray) -> tuple[FlatGraph, FlipState]:
    flat, state = FlatGraph.of(condensed), FlipState.empty(condensed.n, condensed.groups)
    stage, operation = np.nonzero(np.tril(R, -1))
    start(flat, state, stage * condensed.n + operation)
    return flat, state


def assert_accounts_agree(condensed: Condensed, state: FlipState) -> None:
    schedule = condensed.schedule(state.runs.T)
    assert np.array_equal(schedule.R, state.runs.T), "a recomputation that nobody reads was left"
    assert np.array_equal(schedule.S[:, condensed.member], state.kept[:, :-1].T)
    assert schedule.violation() is None
    assert int(state.peak.max()) == Plan.of(schedule).peak == schedule.U.max()
    assert state.cost[0] + condensed.graph.total_cost == pytest.approx(schedule.cost)


@pytest.mark.parametrize("seed", range(30))
def test_peak_and_cost_of_any_R_are_those_of_its_plan(seed, random_graph, overwriting_graph):
    graph = (random_graph if seed % 2 else overwriting_graph)(seed, layers=6)
    condensed = Condensed.of(graph)
    R = np.tril(np.random.default_rng(seed).random((graph.n, graph.n)) < 0.3)
    assert_accounts_agree(condensed, loaded(condensed, R)[1])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_schedule_takes_memory_by_its_ones_and_not_by_n_times_n():
    def taken() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    loaded(Condensed.of(linear(2)), np.eye(5))  # what is compiled or read once
    condensed, before = Condensed.of(linear(2000)), taken()
    flat, state = FlatGraph.of(condensed), FlipState.empty(condensed.n, condensed.groups)
    start(flat, state, np.zeros(0, dtype=np.int64))
    assert taken() - before < 0.25 * sum(array.nbytes for array in state)  # with pages of 2 MiB it is a third


@pytest.mark.parametrize("seed", range(30))
def test_after_thousands_of_flips_made_and_taken_back_the_accounts_still_agree(seed, random_graph, overwriting_graph):
    graph = (random_graph if seed % 2 else overwriting_graph)(seed, layers=6)
    condensed = Condensed.of(graph)
    n, low = condensed.n, int(condensed.operation_bytes.max())
    flat, state = loaded(condensed, np.zeros((n, n)))
    settings = np.array([0.1, 0.05, 1.0, np.inf])
    budget = low + (checkpoint_all_peak(graph) - low) // 3
    space = (np.zeros(n, dtype=np.int64), np.zeros(32, dtype=np.int32), np.zeros(1, dtype=np.bool_))
    random = np.array([seed], dtype=np.uint64)
    anneal(flat, state, budget, np.ones(n, dtype=np.bool_), settings, 0, 5000, 5000, random, *space)
    assert_accounts_agree(condensed, state)
    if np.isfinite(settings[-1]):
        schedule = condensed.schedule(with_first_runs(n, state.best[: state.numbers[BETTER]].astype(np.int64)))
        assert check(graph, schedule.R, schedule.S, budget).cost == pytest.approx(settings[-1] + graph.total_cost)


def test_optima_of_linear_chains_are_found_from_nothing(reference):
    attained = []
    for entry in reference("optimal_linear.json"):
        graph = linear(entry["n"] // 2)
        search = LocalSearch(Condensed.of(graph), entry["budget"])
        found = search.run(20_000)
        assert found is not None
        assert check(graph, found.R, found.S, entry["budget"]).cost >= entry["optimum"]
        attained.append(found.cost == entry["optimum"])
    assert np.mean(attained) > 0.8


@pytest.mark.parametrize("name", ["vgg16", "unet", "mobilenet_v1"])
def test_local_search_improves_on_walks_and_stays_within_the_budget(name, captured):
    graph = captured(name)
    condensed = Condensed.of(graph)
    low, high = int(condensed.operation_bytes.max()), checkpoint_all_peak(graph)
    budget = int(low + 0.05 * (high - low))
    planned = plan_schedule(condensed, budget)
    search = LocalSearch(condensed, budget, seed=1)
    search.offer(planned)
    found = search.run(50_000)
    assert planned is not None
    assert found is not None
    assert check(graph, found.R, found.S, budget).cost <= planned.cost


def test_the_proven_optimum_of_unet_at_a_twentieth_of_the_range_is_found(captured):
    """1.26781 was proven by a bound that shares nothing with this search."""
    condensed = Condensed.of(captured("unet"))
    low, high = int(condensed.operation_bytes.max()), checkpoint_all_peak(condensed.graph)
    budget = int(low + 0.05 * (high - low))
    search = LocalSearch(condensed, budget)
    search.offer(plan_schedule(condensed, budget))
    found = search.run(500_000)
    assert found is not None
    assert found.overhead == pytest.approx(1.26781, abs=1e-5)


def test_a_run_in_pieces_gives_the_same_as_a_run_at_once(random_graph):
    condensed = Condensed.of(random_graph(3, layers=10))
    budget = int(condensed.operation_bytes.max()) + 3
    whole, pieces = LocalSearch(condensed, budget, seed=5), LocalSearch(condensed, budget, seed=5)
    at_once = whole.run(30_000)
    for _ in range(30):
        last = pieces.run(1000)
    assert at_once is not None
    assert last is not None
    assert np.array_equal(at_once.R, last.R)
    assert whole.iterations == pieces.iterations == 30_000


def test_only_schedules_within_the_budget_are_taken_when_offered():
    condensed = Condensed.of(linear(8))
    search = LocalSearch(condensed, 9)
    search.offer(None)
    search.offer(checkpoint_all(condensed.graph))
    assert search.best is None
    search.offer(plan_schedule(condensed, 6))
    first = search.best
    assert first is not None
    search.offer(plan_schedule(condensed, 9))
    assert search.best is not None
    assert search.best.cost < first.cost


def test_stop_ends_a_search_in_another_thread_and_it_can_go_on(captured):
    condensed = Condensed.of(captured("unet"))
    search = LocalSearch(condensed, int(condensed.operation_bytes.max() * 1.2))
    search.run(1)
    thread = threading.Thread(target=search.run, args=(10**12,))
    thread.start()
    while search.iterations < 10_000:  # the interpreter is free meanwhile
        time.sleep(0.001)
    search.stop()
    thread.join(timeout=60)
    assert not thread.is_alive()
    before = search.iterations
    search.run(1000)
    assert search.iterations == before + 1000


def test_over_is_asked_before_any_work():
    search = LocalSearch(Condensed.of(linear(8)), 4)
    assert search.run(1000, over=lambda: True) is None
    assert search.iterations == 0


def test_guides_are_followed_where_coolings_begin_anew(random_graph):
    condensed = Condensed.of(random_graph(4, layers=8))
    search = LocalSearch(condensed, int(condensed.operation_bytes.max()) + 2)
    search.guide([Guide.everywhere(np.full(condensed.groups, 0.7), condensed.n)])
    found = search.run(50_000)
    assert found is not None
    check(condensed.graph, found.R, found.S, search.budget)


def test_importing_the_solvers_does_not_import_the_compiler():
    code = "import sys, remat_explorer.solvers; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_machine_code_is_kept_where_the_user_wants_it(tmp_path):
    code = "from remat_explorer.machine_code import folder; print(folder())"
    for name in ("NUMBA_CACHE_DIR", "REMAT_EXPLORER_CACHE"):
        environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
        environment[name] = str(tmp_path)
        ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert ran.stdout.startswith(str(tmp_path))


def test_a_cache_folder_that_cannot_be_made_is_no_reason_to_fail(tmp_path):
    (tmp_path / "file").write_text("")
    code = "import remat_explorer.solvers.search.annealing, remat_explorer.solvers.search.walk"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "file")}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr

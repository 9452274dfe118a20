"""Strategies with planted mistakes: nothing that they say leaves `solve` or `SolveJob`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest

from remat_explorer.errors import ScheduleError, SolverError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import STRATEGIES, SolveJob, checkpoint_all, solve
from remat_explorer.solvers.base import Answer, Limits, Progress
from remat_explorer.solvers.jobs.solve_job import pack_progress
from remat_explorer.solvers.method import Method
from tests.thorough import thorough_but

CHAIN, BUDGET = linear(8), 4


def over_budget(graph: Graph) -> Schedule:
    """Everything is kept, which takes 10 bytes."""
    return checkpoint_all(graph)


def missing_input(graph: Graph) -> Schedule:
    """Everything is computed once and nothing is kept."""
    return Schedule(graph, np.eye(graph.n), np.zeros((graph.n, graph.n)))


def unfinished(graph: Graph) -> Schedule:
    """The last stage is left out."""
    whole = checkpoint_all(graph)
    return Schedule(graph, whole.R[:-1], whole.S[:-1])


MISTAKES = [
    (over_budget, "needs 10 B, above the budget of 4 B"),
    (missing_input, "stage 1 computes 'v1' but its input 'v0' is neither computed nor retained"),
    (unfinished, "'v16' is never computed"),
]


@pytest.mark.parametrize("told_first", [False, True])
@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_a_wrong_schedule_is_refused_by_solve_and_not_even_shown_on_the_way(mistake, message, told_first, monkeypatch):
    def strategy(graph: Graph, budget: int, limits: Limits) -> Answer:
        limits.tell("about to answer", lower_bound=graph.total_cost)
        if told_first:
            limits.tell("found a schedule", mistake(graph), graph.total_cost)
        return Answer(mistake(graph), graph.total_cost)

    monkeypatch.setitem(STRATEGIES, "optimal", dataclasses.replace(STRATEGIES["optimal"], run=strategy))
    seen: list[Progress] = []
    with pytest.raises(ScheduleError, match=message):
        solve(CHAIN, BUDGET, on_progress=seen.append)
    assert [progress.doing for progress in seen] == ["about to answer"]


def claiming(bound: float) -> Method:
    """A strategy that keeps everything, and claims a lower bound."""
    return dataclasses.replace(
        STRATEGIES["optimal"], run=lambda graph, budget, limits: Answer(checkpoint_all(graph), bound)
    )


def test_a_lower_bound_above_the_cost_of_a_schedule_in_hand_is_refused(monkeypatch):
    monkeypatch.setitem(STRATEGIES, "optimal", claiming(18.0))
    with pytest.raises(ScheduleError, match="'optimal' says that no schedule costs less than 18, but its own costs 17"):
        solve(CHAIN, 10)


def test_a_bound_that_the_solvers_tolerance_explains_is_lowered_to_the_cost(monkeypatch):
    monkeypatch.setitem(STRATEGIES, "optimal", claiming(17.0001))
    assert solve(CHAIN, 10).lower_bound == 17


@pytest.fixture
def worker_with(tmp_path, monkeypatch) -> Callable[[str], None]:
    """Make the workers of `SolveJob` run some code before they start."""

    def plant(code: str) -> None:
        (tmp_path / "sitecustomize.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return plant


@pytest.mark.parametrize("told_first", thorough_but([False, True], True))
def test_a_job_whose_strategy_is_wrong_says_so_and_has_no_solution(told_first, worker_with):
    worker_with(
        "import dataclasses\n"
        "from remat_explorer.solvers import STRATEGIES, checkpoint_all\n"
        "from remat_explorer.solvers.base import Answer\n"
        "def strategy(graph, budget, limits):\n"
        f"    if {told_first}:\n"
        "        limits.tell('found a schedule', checkpoint_all(graph))\n"
        "    return Answer(checkpoint_all(graph), 17.0)\n"
        "STRATEGIES['optimal'] = dataclasses.replace(STRATEGIES['optimal'], run=strategy)\n"
    )
    job = SolveJob.start(CHAIN, BUDGET)
    assert job.wait(60)
    assert not [progress for progress in job.poll() if progress.schedule]
    with pytest.raises(SolverError, match=r"needs 10 B, above the budget of 4 B"):
        job.solution()


def test_a_job_does_not_believe_a_worker_that_dies_with_a_wrong_schedule_on_its_lips(worker_with):
    message = {"progress": pack_progress(Progress(0.1, "boasting", checkpoint_all(CHAIN), 17.0), True)}
    worker_with(f"import os\nprint({json.dumps(message)!r}, flush=True)\nos._exit(1)\n")
    job = SolveJob.start(CHAIN, BUDGET)
    assert job.wait(60)
    with pytest.raises(SolverError, match=r"refused: .* above the budget of 4 B"):
        job.solution()


def test_a_job_does_not_believe_a_worker_that_sends_a_wrong_solution(worker_with):
    document = solve(CHAIN, 10).to_document() | {"budget": BUDGET}
    worker_with(f"import os\nprint({json.dumps({'solution': document})!r}, flush=True)\nos._exit(0)\n")
    job = SolveJob.start(CHAIN, BUDGET)
    assert job.wait(60)
    with pytest.raises(SolverError, match=r"refused: .* above the budget of 4 B"):
        job.solution()

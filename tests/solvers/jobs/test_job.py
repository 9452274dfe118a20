"""Solves in their own process: watched, cancelled, failing, orphaned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from remat_explorer.checker import check
from remat_explorer.errors import SolverError
from remat_explorer.graph.file import dump_graph
from remat_explorer.instances import linear
from remat_explorer.solvers import SolveJob, checkpoint_all_peak, minimum_budget, solve
from remat_explorer.solvers.base import Answer, Progress
from remat_explorer.solvers.cache import Question, known_answer
from remat_explorer.solvers.solution import Status
from tests.solvers.waiting import until


@pytest.fixture
def long_job(captured):
    """A job that no solver finishes within the test: problem (9) has a hard time here, and so has `optimal`."""
    graph = captured("mobilenet_v1")
    job = SolveJob.start(graph, checkpoint_all_peak(graph) * 3 // 10, time_limit=120)
    yield job
    job.cancel()


def test_a_job_ends_with_the_same_solution_as_a_call():
    job = SolveJob.start(linear(8), 4, solver="cbc")
    assert job.wait(60)
    solution = job.solution()
    assert (solution.status, solution.cost, solution.lower_bound) == (Status.OPTIMAL, 26.0, 26.0)
    assert [p for p in job.poll() if p.schedule]
    assert job.poll() == []


def test_cancel_stops_within_a_second_and_keeps_the_best_schedule_and_bound(long_job):
    seen = []
    assert until(lambda: seen.extend(long_job.poll()) or any(p.schedule for p in seen))
    started = time.monotonic()
    long_job.cancel()
    assert time.monotonic() - started < 1
    assert long_job.done
    solution = long_job.solution()
    assert solution.status == Status.FEASIBLE
    assert solution.lower_bound >= long_job.graph.total_cost
    check(long_job.graph, solution.schedule.R, solution.schedule.S, long_job.budget)
    assert long_job._worker.process.poll() is not None


def test_a_job_cancelled_before_anything_is_known_is_unknown():
    job = SolveJob.start(linear(8), 4)
    job.cancel()
    assert job.done
    assert job.solution().status in (Status.UNKNOWN, Status.FEASIBLE)
    job.cancel()


def test_an_unfinished_job_has_no_solution(long_job):
    with pytest.raises(SolverError, match="still running"):
        long_job.solution()


def test_the_workers_own_error_is_raised_in_the_parent():
    job = SolveJob.start(linear(8), 4, strategy="optimum")
    assert job.wait(60)
    with pytest.raises(SolverError, match="unknown strategy 'optimum'; did you mean 'optimal'"):
        job.solution()


def test_a_worker_that_is_killed_from_outside_leaves_its_best_schedule_or_a_message(long_job):
    assert until(lambda: any(p.schedule for p in long_job.poll()))
    os.kill(long_job._worker.process.pid, signal.SIGKILL)
    assert long_job.wait(10)
    assert long_job.solution().status == Status.FEASIBLE


def test_jobs_run_side_by_side_from_threads():
    costs = {}

    def run(budget):
        job = SolveJob.start(linear(8), budget)
        job.wait(60)
        costs[budget] = job.solution().cost

    threads = [threading.Thread(target=run, args=(budget,)) for budget in (5, 6, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert costs == {5: 22.0, 6: 21.0, 7: 20.0}


def test_the_worker_ends_when_its_parent_goes_away(captured):
    graph = captured("mobilenet_v1")
    request = {
        "graph": json.loads(dump_graph(graph)),
        "budget": checkpoint_all_peak(graph) * 3 // 10,
        "strategy": "optimal",
        "time_limit": 120.0,
        "solver": "highs",
        "threads": 1,
        "options": {},
        "known": None,
        "lower_bound": None,
    }
    command = [sys.executable, "-m", "remat_explorer.solvers.jobs.job_worker"]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps(request) + "\n")
    worker.stdin.flush()
    assert "begun" in worker.stdout.readline()
    worker.stdin.close()  # what the operating system does when the parent dies
    assert worker.wait(5) != 0
    worker.stdout.close()


def test_the_worker_imports_neither_torch_nor_plotly_nor_widgets():
    code = (
        "import sys, remat_explorer.solvers.jobs.job_worker, mip\n"
        "from remat_explorer.solvers import solve\n"
        "from remat_explorer.instances import linear\n"
        "solve(linear(8), 4)\n"
        "heavy = {'torch', 'plotly', 'ipywidgets', 'anywidget', 'pandas'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_job_that_is_cancelled_keeps_the_schedule_that_it_began_with(captured):
    graph = captured("mobilenet_v1")
    known = minimum_budget(graph)
    job = SolveJob.start(graph, known.known_feasible, known=Answer(known.schedule))
    job.cancel()
    assert job.poll()[0].schedule is known.schedule
    solution = job.solution()
    assert solution.cost is not None
    assert solution.cost <= known.schedule.cost


def test_a_known_schedule_that_exceeds_the_budget_or_is_of_another_graph_is_not_begun_with():
    small = Answer(solve(linear(8), 4).schedule)
    assert [report.schedule for report in begun(3, small)] == []
    assert [report.schedule for report in begun(8, Answer(solve(linear(7), 4).schedule))] == []
    assert [report.schedule for report in begun(5, small)] == [small.schedule]


def begun(budget: int, known: Answer) -> list[Progress]:
    """What a job says of itself before its worker says anything."""
    job = SolveJob(Question(linear(8), budget, "optimal", "highs", 60.0))
    job._know(known_answer(Question(linear(8), budget, "optimal", "highs", 60.0), known, cache=False))
    return job.poll()

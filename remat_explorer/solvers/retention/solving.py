"""CP-SAT on a program of retention intervals: what it finds is told at once, and it can be stopped."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

from remat_explorer.errors import SolverError
from remat_explorer.plan import Plan
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.incumbent import Incumbent
from remat_explorer.solvers.retention.program import RetentionProgram

LOOK = 0.1  # seconds between two looks at whether to stop


def cp_sat() -> ModuleType:
    """The module of ortools, which is an optional package.

    Raises:
        SolverError: if it is not installed.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise SolverError(
            "the strategy 'moccasin' solves its program with ortools, which is not installed: "
            "pip install 'remat-explorer[moccasin]'"
        ) from None
    return cp_model


def solve_program(program: RetentionProgram, limits: Limits, incumbent: Incumbent) -> tuple[float, bool]:
    """Solve a program that was built; every better schedule goes to the incumbent.

    Args:
        program: of a graph and a budget.
        limits: time, threads, and whether to stop, which is looked at ten times a second.
        incumbent: knows the best schedule.

    Returns:
        A lower bound on the cost of the program's schedules, infinity if it has none, and whether the search ended.
    """
    cp_model = cp_sat()
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limits.left
    solver.parameters.num_workers = limits.threads
    ended = threading.Event()

    class Found(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            keep(program, self.value, incumbent)

    def watch() -> None:
        while not ended.wait(LOOK):
            if limits.cancelled():
                solver.stop_search()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        status = solver.solve(program.model, Found())
    finally:
        ended.set()
        watcher.join()
    if status == cp_model.MODEL_INVALID:
        raise SolverError(f"ortools refuses the program of 'moccasin': {program.model.validate()}")
    if status == cp_model.INFEASIBLE:
        return float("inf"), True
    return program.cost(max(0.0, solver.best_objective_bound)), status == cp_model.OPTIMAL


def keep(program: RetentionProgram, value: Any, incumbent: Incumbent) -> None:
    """Take the schedule of a solution; one that exceeds the budget would be an error of the program."""
    schedule = program.schedule(value)
    if Plan.of(schedule).peak > program.budget:
        raise SolverError("the program of 'moccasin' gave a schedule that exceeds its budget")
    incumbent.keep(schedule)

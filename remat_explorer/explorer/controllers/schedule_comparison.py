"""Two schedules of one graph: pin one, swap them, open one from a file, and say how they differ."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from remat_explorer.errors import RematError, SolutionError
from remat_explorer.explorer.controllers.screen import show_schedule
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.strategy_choice import describe_strategy
from remat_explorer.figures import schedule_of
from remat_explorer.graph import Graph
from remat_explorer.offload import TransferSolution
from remat_explorer.quantities import format_bytes, format_overhead, format_share
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import Solution, Status, solve

NOT_PINNED = "A plan that may send values can be A, on the screen, but not B: pin what it is compared with first."


def pin_solution(state: State) -> None:
    """Compare with the solution that is on the screen now, while others take its place."""
    if state.sending is not None:
        state.say(NOT_PINNED, "warning")
        return
    if state.solution is None or state.solution.schedule is None:
        state.say("There is no finished schedule on the screen to compare with: press Find the best first.", "warning")
        return
    state.other = state.solution


def compare_with_keep_all(state: State) -> None:
    """Compare with the schedule that keeps everything and recomputes nothing, as plain PyTorch does."""
    if state.graph is None:
        state.say("There is no model to compare schedules of yet.", "warning")
        return
    state.other = solve(state.graph, "100%", "checkpoint-all")


def swap_compared(state: State) -> None:
    """Put the pinned solution on the screen, and pin the one that was there."""
    shown, other = state.solution, state.other
    if other is None or other.schedule is None:
        state.say("Nothing is compared yet: press “Compare with this” first.", "warning")
        return
    if state.sending is not None:
        state.say(NOT_PINNED, "warning")
        return
    if shown is None:
        state.say("The schedule on the screen is not finished yet; swap when it is.", "warning")
        return
    state.other = shown
    show_schedule(state, other.schedule, other)


def stop_comparing(state: State) -> None:
    """Forget the pinned solution."""
    state.other = None


def open_solution_file(state: State, path: str) -> None:
    """Compare with the solution of a file; what is wrong with it is said in the status line."""
    if not state.permissions.paths:
        state.say("This page opens no files by their path: choose the file in the browser.", "error")
        return
    _compare_with(state, path, lambda graph: Solution.load_schedule(path.strip(), graph))


def open_uploaded_solution(state: State, name: str, content: bytes) -> None:
    """Compare with a solution file that the browser has handed over, as `open_solution_file` does."""

    def read(graph: Graph) -> Solution:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "solution.json"  # a name of ours, whatever the browser says
            path.write_bytes(content)
            try:
                return Solution.load_schedule(path, graph)
            except RematError as error:
                raise SolutionError(str(error).replace(str(path), name)) from None

    _compare_with(state, name, read)


def _compare_with(state: State, name: str, read: Callable[[Graph], Solution]) -> None:
    if state.graph is None:
        state.say("There is no model to compare schedules of yet.", "warning")
        return
    try:
        other = read(state.graph)
    except RematError as error:
        state.say(str(error), "error")
        return
    if other.schedule is None:
        state.say(f"{name}: this solution has no schedule ({other.status}), so there is nothing to compare.", "error")
        return
    state.other = other
    state.say(f"Comparing with {other.strategy} from {name}.")


@dataclass(frozen=True)
class DifferingCells:
    """How many cells of a matrix only A has, and only B."""

    only_a: int
    only_b: int


def count_differing_cells(a: np.ndarray, b: np.ndarray) -> DifferingCells | None:
    """Cells that are set in one of two matrices only; None where their shapes differ.

    >>> count_differing_cells(np.array([[1, 0], [1, 1]]), np.array([[1, 1], [0, 1]]))
    DifferingCells(only_a=1, only_b=1)
    """
    if a.shape != b.shape:
        return None
    first, second = a != 0, b != 0
    return DifferingCells(int((first & ~second).sum()), int((second & ~first).sum()))


def comparison_rows(solution: Solution | TransferSolution) -> list[tuple[str, str]]:
    """What is compared of a solution, as label and text."""
    schedule = solution.schedule if isinstance(solution, Solution) else None
    how = "proven best" if solution.status is Status.OPTIMAL else str(solution.status)
    strategy = ("strategy", f"{describe_strategy(solution.strategy)}, {how}")
    if isinstance(solution, TransferSolution) and solution.plan is not None:
        computes = schedule_of(solution.plan)
        return [
            strategy,
            ("peak of budget", f"{format_bytes(solution.plan.peak)} of {format_bytes(solution.budget)}"),
            ("overhead", f"{format_overhead(solution.overhead or 1.0)}, predicted"),
            ("gap", "not proven" if solution.gap is None else format_share(solution.gap)),
            ("recomputations", f"{computes.recomputations:,}"),
            ("most kept into a stage", f"{format_bytes(max_kept_bytes(computes))}, with the host"),
        ]
    if schedule is None or solution.peak is None:
        return [strategy, ("budget", format_bytes(solution.budget))]
    return [
        strategy,
        ("peak of budget", f"{format_bytes(solution.peak)} of {format_bytes(solution.budget)}"),
        ("overhead", format_overhead(schedule.overhead)),
        ("gap", "not proven" if solution.gap is None else format_share(solution.gap)),
        ("recomputations", f"{schedule.recomputations:,}"),
        ("most kept into a stage", format_bytes(max_kept_bytes(schedule))),
    ]


def max_kept_bytes(schedule: Schedule) -> int:
    """The largest number of bytes that any stage starts with, resident bytes aside.

    >>> from remat_explorer.instances import linear
    >>> max_kept_bytes(Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1)))
    2
    """
    return int(schedule.retained.stage_bytes(schedule.graph, schedule.stages).max(initial=0))

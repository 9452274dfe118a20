"""`remat-explorer solve`: the cheapest schedule within a budget."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import remat_explorer as rx
from remat_explorer.cli.finding import find_graph
from remat_explorer.cli.output import DONE, INFEASIBLE, INTERRUPTED, NOT_IN_TIME, put
from remat_explorer.cli.watching import Watched, watch
from remat_explorer.errors import SolutionError
from remat_explorer.solution import Status

if TYPE_CHECKING:
    from remat_explorer.graph import Graph
    from remat_explorer.solution import Solution


def solve(options: argparse.Namespace) -> int:
    """Solve, print the answer, and write the schedule where that was asked for."""
    require_folder(options)
    watched = solved(options, find_graph(options))
    solution = watched.solution
    if solution.schedule is None and watched.interrupted:
        return report_interrupted()
    if solution.status == "infeasible":
        return report_infeasible(options, solution)
    lines = [str(solution)]
    if solution.lower_bound is not None and solution.cost is not None:
        lines.append(f"cost {solution.cost:.6g}, lower bound {solution.lower_bound:.6g}, peak {solution.peak} bytes")
    lines += remarks(watched)
    if options.output and solution.schedule:
        lines.append(f"written to {options.output}")
    document = without_matrices(solution) | {"from_cache": watched.from_cache, "interrupted": watched.interrupted}
    put(options, document, "\n".join(lines))
    return DONE if solution.status is Status.OPTIMAL else NOT_IN_TIME


def require_folder(options: argparse.Namespace) -> None:
    """Refuse an output in a folder that is not there before any time goes into what is to be written.

    Raises:
        OSError: naming the folder.
    """
    if options.output:
        os.stat(Path(options.output).parent)


def solved(options: argparse.Namespace, graph: Graph) -> Watched:
    """The solution of ``graph``, with progress on a terminal; written to a file if there is a schedule.

    Raises:
        RematError: if nothing was found because the solve failed, or what was found cannot be written.
    """
    watched = watch(options, graph)
    if options.output and watched.solution.schedule:
        try:
            watched.solution.save(options.output)
        except OSError as error:
            raise SolutionError(
                f"{watched.solution}; it could not be written to {options.output!r}: {error.strerror or error}"
            ) from None
    return watched


def remarks(watched: Watched) -> list[str]:
    """What a person should know of how a solution came about."""
    lines = []
    if watched.interrupted:
        lines.append("interrupted: this is the best schedule found until then")
    if watched.from_cache:
        lines.append("found in the cache, with the time of the solve that found it; --no-cache solves anew")
    return lines


def report_interrupted() -> int:
    """Say that Ctrl-C came before there was anything to keep."""
    print("remat-explorer: interrupted before a schedule was found", file=sys.stderr)
    return INTERRUPTED


def report_infeasible(options: argparse.Namespace, solution: Solution) -> int:
    """Say what forbids the budget, and the smallest one worth trying."""
    smallest = rx.minimum_budget(solution.graph)
    document = without_matrices(solution) | {
        "minimum_budget": {
            "lower_bound": smallest.lower_bound,
            "known_feasible": smallest.known_feasible,
            "operation": solution.graph.operations[smallest.operation].name,
        }
    }
    reason = smallest.explain_infeasible(solution.strategy, solution.budget)
    put(options, document, f"{solution}\n{reason}")
    return INFEASIBLE


def without_matrices(solution: Solution) -> dict[str, Any]:
    """The solution file without its matrices."""
    return {key: entry for key, entry in solution.to_document().items() if key not in ("format", "version", "R", "S")}

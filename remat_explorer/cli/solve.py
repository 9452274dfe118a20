"""`remat-explorer solve`: the cheapest schedule within a budget."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

import remat_explorer as rx
from remat_explorer.cli.finding import find_graph
from remat_explorer.cli.output import (
    DONE,
    INFEASIBLE,
    INTERRUPTED,
    NOT_IN_TIME,
    beside_search,
    put,
    require_outputs,
    say,
    written_to,
)
from remat_explorer.cli.shell.streams import complain
from remat_explorer.cli.watching import Watched, watch
from remat_explorer.errors import FileError, SolutionError
from remat_explorer.explanations.wording import in_whole_units
from remat_explorer.quantities import SMALLEST
from remat_explorer.solution import Status
from remat_explorer.solvers.registry import default_strategy

if TYPE_CHECKING:
    from remat_explorer.graph import Graph
    from remat_explorer.solution import Solution
    from remat_explorer.solvers import MinimumBudget


def solve(options: argparse.Namespace) -> int:
    """Solve, print the answer, and write the schedule where that was asked for."""
    from remat_explorer.allocator import predict_allocator
    from remat_explorer.offsets import predict_pool
    from remat_explorer.solvers.reserved import RESERVED

    require_outputs(options)
    watched = solved(options, find_graph(options))
    solution = watched.solution
    if solution.schedule is None and watched.interrupted:
        return report_interrupted()
    if solution.plan is None:
        return report_without_schedule(options, watched)
    lines = [str(solution)]
    if solution.lower_bound is not None and solution.cost is not None:
        unit = "" if in_whole_units(solution.graph) else " s"
        cost, bound = f"{solution.cost:.6g}{unit}", f"{solution.lower_bound:.6g}{unit}"
        lines.append(f"cost {cost}, lower bound {bound}, peak {solution.peak} bytes")
    document = without_matrices(solution) | {"from_cache": watched.from_cache, "interrupted": watched.interrupted}
    if options.json or options.budget_means == RESERVED:  # not for those who see neither: the pool is searched for
        with beside_search(options, "the prediction for a GPU"):
            taken, pool = predict_allocator(solution.plan), predict_pool(solution.plan)
        document |= {
            "predicted_reserved_on_gpu": taken.peak_reserved,
            "predicted_pool_on_gpu": pool.to_document(),
        }
        if options.budget_means == RESERVED:
            lines += [f"{taken} (predicted)", f"{pool} (predicted)"]
    lines += remarks(watched)
    if options.output and solution.schedule:
        lines.append(written_to(options.output))
    put(options, document, "\n".join(lines))
    return DONE if solution.status is Status.OPTIMAL else NOT_IN_TIME


def solved(options: argparse.Namespace, graph: Graph) -> Watched:
    """The solution of ``graph``, with progress on a terminal; written to a file if there is a schedule.

    Raises:
        RematError: if nothing was found because the solve failed, or what was found cannot be written.
    """
    watched = watch(options, graph)
    if options.output and watched.solution.schedule:
        try:
            watched.solution.save(options.output)
        except FileError as error:
            raise SolutionError(
                f"{watched.solution}; it could not be written to {options.output!r}: {error.strerror}"
            ) from None
    return watched


def remarks(watched: Watched) -> list[str]:
    """What a person should know of how a solution came about."""
    lines = []
    if watched.interrupted:
        lines.append("interrupted: this is the best schedule found until then")
    elif watched.solution.limit and watched.solution.schedule is not None:
        lines.append(f"ended by {watched.solution.limit}")
    if watched.from_cache:
        lines.append("found in the cache, with the time of the solve that found it; --no-cache solves anew")
    return lines


def report_interrupted() -> int:
    """Say that Ctrl-C came before there was anything to keep."""
    complain("interrupted before a schedule was found")
    return INTERRUPTED


def report_without_schedule(options: argparse.Namespace, watched: Watched) -> int:
    """Say what forbids the budget, or what ended the search for a schedule, and the smallest one worth trying."""
    from remat_explorer.solvers.reserved import RESERVED, explain_unfit

    solution = watched.solution
    say(options, "looking for the smallest budget that works")
    with beside_search(options, "looking for the smallest budget"):
        smallest = rx.minimum_budget(solution.graph)
    say(options, "")
    infeasible = solution.status is Status.INFEASIBLE
    document = without_matrices(solution) | {
        "minimum_budget": {
            "lower_bound": smallest.lower_bound,
            "known_feasible": smallest.known_feasible,
            "operation": solution.graph.operations[smallest.operation].name,
        }
    }
    if infeasible:
        reason = smallest.explain_infeasible(solution.strategy, solution.budget)
    elif options.budget_means == RESERVED:
        reason = explain_unfit(solution)
    else:
        reason = smallest.explain_unknown(solution.strategy, solution.budget, solution.limit)
    lines = [str(solution), reason, *remarks(watched)]
    if options.budget_means != RESERVED and solution.budget < smallest.known_feasible:
        lines.append(_to_go_on(solution, smallest))
    put(options, document, "\n".join(lines))
    return INFEASIBLE if infeasible else NOT_IN_TIME


def _to_go_on(solution: Solution, smallest: MinimumBudget) -> str:
    """What to type instead of a budget below the smallest that is known to work."""
    better = default_strategy(solution.graph)
    strategy = "" if solution.strategy == better else f" --strategy {better} with"
    share = math.ceil(100 * smallest.known_feasible / max(smallest.checkpoint_all_peak, 1))
    return f"to go on, give{strategy} --budget {share}% or more, or --budget {SMALLEST}"


def without_matrices(solution: Solution) -> dict[str, Any]:
    """The solution file without its matrices."""
    return {key: entry for key, entry in solution.to_document().items() if key not in ("format", "version", "R", "S")}

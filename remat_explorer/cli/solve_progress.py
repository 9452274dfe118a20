"""A solve watched from a shell: a line that is written over while it runs, and Ctrl-C, which keeps the best so far."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remat_explorer.cli.model_lookup import chosen_strategies
from remat_explorer.cli.output import say
from remat_explorer.cli.terminal import complain
from remat_explorer.errors import SolverError, UnknownNameError
from remat_explorer.quantities import format_overhead, format_seconds, format_share

if TYPE_CHECKING:
    from remat_explorer.graph import Graph
    from remat_explorer.solvers import Progress, Setting, Solution


def named_value(text: str) -> tuple[str, Setting]:
    """A name and what it is set to: a number where it is one, else text.

    Raises:
        argparse.ArgumentTypeError: if there is no name, no value, or no = between them.

    >>> named_value("splits=2"), named_value("share=0.4"), named_value("knapsack=dp")
    (('splits', 2), ('share', 0.4), ('knapsack', 'dp'))
    """
    from remat_explorer.solvers import read_option

    try:
        return read_option(text)
    except SolverError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def strategy_options(options: argparse.Namespace) -> dict[str, Any]:
    """What ``--option`` gave, once it is known that the strategy has such options.

    Raises:
        UnknownNameError: if there is no such strategy.
        SolverError: if it has no such option, or one is given twice.
    """
    given: dict[str, Any] = {}
    for name, value in options.strategy_options:
        if name in given:
            raise SolverError(f"--option {name} is given twice, as {given[name]!r} and as {value!r}")
        given[name] = value
    if given:
        from remat_explorer.solvers import STRATEGIES

        if options.strategy not in STRATEGIES:
            raise UnknownNameError("strategy", options.strategy, STRATEGIES)
        STRATEGIES[options.strategy].require_arguments(options.strategy, list(given))
    return given


TICK = 0.1  # seconds between two looks at the solve


@dataclass(frozen=True)
class WatchedSolve:
    """How a watched solve ended.

    Attributes:
        solution: the answer, or the best until the interruption.
        interrupted: whether a person pressed Ctrl-C.
        from_cache: whether the answer was kept from an earlier solve.
        history: what the solve reported on its way.
    """

    solution: Solution
    interrupted: bool = False
    from_cache: bool = False
    history: tuple[Progress, ...] = ()


def watch(options: argparse.Namespace, graph: Graph) -> WatchedSolve:
    """Solve in a process of its own, so that a time limit and Ctrl-C are heard while a back end is at work.

    Raises:
        RematError: if the budget cannot be read, or the solve fails before a schedule is found.
    """
    from remat_explorer.solvers import RESERVED, SolveJob, budget_of, fall_back_on_smallest, require_meaning

    (options.strategy,) = [options.strategy] if options.strategy else chosen_strategies(None, graph)
    chosen = strategy_options(options)
    if require_meaning(options.budget_means, options.budget) == RESERVED:
        chosen["budget_means"] = RESERVED
    budget = budget_of(graph, options.budget)
    choices = {"time_limit": options.time_limit, "solver": options.solver, "threads": options.threads}
    started, interrupted = time.monotonic(), False
    history: list[Progress] = []
    job = SolveJob.start(graph, budget, options.strategy, **choices, cache=not options.no_cache, **chosen)
    try:
        while not job.wait(TICK):
            history += job.poll()
            latest = history[-1] if history else None
            say(options, progress_line(time.monotonic() - started, options.time_limit, latest, graph))
    except KeyboardInterrupt:
        interrupted = True
        job.cancel()
    finally:
        say(options, "")
    for remark in job.remarks:
        complain(remark)
    history += job.poll()
    solution = job.solution()
    if not interrupted:
        solution = fall_back_on_smallest(solution, options.budget, chosen.get("implementations", "all"))
    return WatchedSolve(solution, interrupted, job.from_cache, tuple(history))


def progress_line(seconds: float, time_limit: float, progress: Progress | None, graph: Graph) -> str:
    """What is known of a running solve on one line: time, step, best overhead, bound and gap.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.solver_interface import Progress
    >>> progress_line(3.25, 60, Progress(3.0, "planning", lower_bound=20.4), linear(8))
    '3.2 s of 60.0 s · planning · bound +20.0 %'
    """
    clock = f"{seconds:.1f} s" if seconds < 1 else format_seconds(seconds)
    words = [f"{clock} of {format_seconds(time_limit)}", "starting" if progress is None else progress.doing]
    if progress is not None and progress.schedule is not None:
        words.append(f"best {format_overhead(progress.schedule.overhead)}")
    if progress is not None and progress.lower_bound is not None and graph.total_cost:
        words.append(f"bound {format_overhead(progress.lower_bound / graph.total_cost)}")
    if progress is not None and progress.gap is not None:
        words.append(f"gap {format_share(progress.gap)}")
    return " · ".join(words)

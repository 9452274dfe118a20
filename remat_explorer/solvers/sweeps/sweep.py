"""One call for a trade-off curve; `Sweep` is the same as an iterator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from remat_explorer.entry_checks import Seconds, Threads, Workers, require_arguments
from remat_explorer.graph import Graph
from remat_explorer.solution import Solution
from remat_explorer.solvers.sweeps.frontier import Frontier
from remat_explorer.solvers.sweeps.sweep_points import SweepProgress
from remat_explorer.solvers.sweeps.sweep_run import Sweep


def sweep(
    graph: Graph,
    budgets: int | str | Sequence[str | int | float] = 12,
    strategies: str | Sequence[str] = ("optimal",),
    executor: Executor | None = None,
    *,
    time_limit: Seconds | None = None,
    workers: Workers | None = None,
    solver: str = "highs",
    threads: Threads = 1,
    on_result: Callable[[Solution], None] | None = None,
    on_progress: Callable[[SweepProgress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    cache: bool = False,
) -> Frontier:
    """The trade-off between memory and cost: the best schedules found within several budgets.

    Args:
        graph: the training graph.
        budgets: how many, spaced from the smallest budget with a known schedule to the peak of keeping everything; or
            a list of what `solve` takes.
        strategies: keys of `STRATEGIES`.
        executor: any `concurrent.futures.Executor`, such as a thread pool or Dask's ``client.get_executor()``; it is
            not shut down. None for processes of the sweep's own.
        time_limit: seconds that a worker may spend on each point, on average. None for a curve in seconds, with gaps
            that a longer search would close.
        workers: how many tasks are with the executor at a time; None for the number of cores.
        solver: a key of `BACKENDS`.
        threads: threads of the solver in each worker.
        on_result: called in this thread with each solution as it arrives; a point comes again when it got better.
        on_progress: called in this thread when a result has arrived.
        cancelled: asked between results and twenty times a second; once True the sweep returns what it has.
        cache: take points from the user's cache folder whose kept answers, of `solve` or a sweep, had as much time as
            this sweep gives to a point, or are proven, and keep new ones there.

    Returns:
        All points. Of a method that does not ask for the budget also its own, wherever they fall
        (`Frontier.own_points`). A worker that dies costs its points only, a method that refuses the graph its curve;
        `Frontier.messages` says so.

    Raises:
        QuantityError: if a budget cannot be read.
        UnknownNameError: if there is no such strategy or solver.
        SolverError: if ``budgets`` is a number and the graph has operations with several implementations.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from remat_explorer.instances import linear
    >>> print(sweep(linear(8), [4, 6, 8], executor=ThreadPoolExecutor(1), time_limit=30))
    strategy  budget  peak  cost  overhead  gap  status
    optimal      4 B   4 B    26   +52.9 %  0 %  optimal
    optimal      6 B   6 B    21   +23.5 %  0 %  optimal
    optimal      8 B   8 B    19   +11.8 %  0 %  optimal
    """
    require_arguments(sweep, locals())
    run = Sweep(graph, budgets, strategies, executor, time_limit, workers, solver, threads, cancelled, cache)
    with run:
        for solution in run:
            if on_result is not None:
                on_result(solution)
            if on_progress is not None:
                on_progress(run.progress())
    for remark in run.remarks:
        warnings.warn(remark, RuntimeWarning, stacklevel=2)
    return run.frontier()

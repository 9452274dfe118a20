"""`remat-explorer sweep`: the trade-off between memory and cost."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import remat_explorer as rx
from remat_explorer.cli.finding import chosen_strategies, find_graph
from remat_explorer.cli.output import DONE, INFEASIBLE, INTERRUPTED, NOT_IN_TIME, put, require_outputs, say, written_to
from remat_explorer.cli.shell.streams import complain
from remat_explorer.quantities import format_seconds, format_share
from remat_explorer.solution import Status

if TYPE_CHECKING:
    from remat_explorer.solvers import Frontier, SweepProgress


def sweep(options: argparse.Namespace) -> int:
    """Sweep, print the points as a table, and write them where that was asked for.

    An interrupt ends the sweep, not the command: what was found by then is printed and written.
    """
    require_outputs(options)
    graph = find_graph(options)
    run = rx.Sweep(
        graph,
        budgets=read_budgets(options.budgets),
        strategies=chosen_strategies(options.strategies, graph),
        time_limit=options.time_limit,
        workers=options.workers,
        solver=options.solver,
        threads=options.threads,
        cache=not options.no_cache,
    )
    interrupted = False
    try:
        with run:
            say(options, _describe(run.progress()))
            for _ in run:
                say(options, _describe(run.progress()))
    except KeyboardInterrupt:
        interrupted = True
        run.cancel()
    say(options, "")
    for remark in run.remarks:
        complain(remark)
    return _report(options, run.frontier(), interrupted, run.from_cache)


def read_budgets(text: str) -> int | list[str]:
    """A number of budgets, or budgets with commas between them.

    >>> read_budgets("12"), read_budgets("60%, 8 GiB"), read_budgets("4096,")
    (12, ['60%', '8 GiB'], ['4096'])
    """
    if text.strip().isdecimal() and len(text) < 4000:
        return int(text)
    return [part.strip() for part in text.split(",") if part.strip()]


def _report(options: argparse.Namespace, frontier: Frontier, interrupted: bool, from_cache: int) -> int:
    lines = [str(frontier), f"{len(frontier.nondominated())} non-dominated, {format_seconds(frontier.seconds)}"]
    if from_cache:
        lines.append(f"{from_cache} of {len(frontier.solutions)} points found in the cache; --no-cache searches anew")
    if options.output and frontier.points:
        lines.append(written_to(frontier.save(options.output)))
    if interrupted:
        lines.append("interrupted: the points are the best known by then")
    document = {
        key: entry for key, entry in frontier.to_document(with_runs=False).items() if key not in ("format", "version")
    }
    document |= {"from_cache": from_cache, "interrupted": interrupted}
    put(options, document, "\n".join(lines))
    if interrupted:
        return NOT_IN_TIME if frontier.points else INTERRUPTED
    if not frontier.points:
        return INFEASIBLE if all(s.status is Status.INFEASIBLE for s in frontier.solutions) else NOT_IN_TIME
    return DONE if all(s.status in (Status.OPTIMAL, Status.INFEASIBLE) for s in frontier.solutions) else NOT_IN_TIME


def _describe(progress: SweepProgress) -> str:
    gap = "" if progress.widest_gap is None else f", widest gap {format_share(progress.widest_gap)}"
    return f"{progress.done} of {progress.points} points{gap}, {format_seconds(progress.seconds)}"

"""`remat-explorer ablation`: what each kind of alternative implementations is worth."""

from __future__ import annotations

import argparse
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import remat_explorer as rx
from remat_explorer.cli.finding import find_graph, is_graph_file, read_kinds
from remat_explorer.cli.output import DONE, INFEASIBLE, INTERRUPTED, NOT_IN_TIME, put, require_outputs, say, written_to
from remat_explorer.cli.sweep import read_budgets
from remat_explorer.documents import write_text
from remat_explorer.plain_text import one_line
from remat_explorer.quantities import format_seconds
from remat_explorer.solution import Status

if TYPE_CHECKING:
    from remat_explorer.graph import Graph
    from remat_explorer.solvers import Ablation

TICK = 0.1  # seconds between two looks at whether it is done, and at Ctrl-C


def ablation(options: argparse.Namespace) -> int:
    """Print the table of kinds and budgets, and write it where that was asked for.

    An interrupt ends the search, not the command: what is known once the present step ends is printed and written.
    """
    require_outputs(options)
    graph, kinds = _graph(options)
    stopped = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            rx.ablation,
            graph,
            read_budgets(options.budgets),
            kinds,
            time_limit=options.time_limit,
            solver=options.solver,
            threads=options.threads,
            on_progress=lambda progress: say(options, str(progress)),
            cancelled=stopped.is_set,
            cache=not options.no_cache,
        )
        try:
            while not wait([running], TICK).done:
                pass
        except KeyboardInterrupt:
            stopped.set()
            say(options, "stopping")
        table = running.result()
    say(options, "")
    return _report(options, table, stopped.is_set())


def _graph(options: argparse.Namespace) -> tuple[Graph, tuple[str, ...] | None]:
    """The graph, captured with the kinds that are asked for, and those to try; None for all that it has."""
    chosen = options.implementations
    if is_graph_file(options.model):
        options.implementations = None
        graph = find_graph(options)
        return graph, None if chosen in (None, "all") else _kinds_of_graph(chosen, graph)
    options.implementations = chosen or "all"
    graph = find_graph(options)
    if chosen in (None, "all", "exact"):
        return graph, None
    return graph, tuple(kind for kind in read_kinds(chosen) if kind in graph.kinds)


def _kinds_of_graph(text: str, graph: Graph) -> tuple[str, ...]:
    """Kinds of a graph file; they may be others than those that can be captured."""
    if text == "exact":
        return tuple(kind for kind in read_kinds(text) if kind in graph.kinds)
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _report(options: argparse.Namespace, found: Ablation, interrupted: bool) -> int:
    solutions = list(found.solutions.values())
    lines = [str(found), f"{len(found.sets)} sets of kinds, {format_seconds(found.seconds)}"]
    if options.output:
        lines.append(written_to(found.save(options.output)))
    if options.figure:
        from remat_explorer.figures import ablation as draw

        write_text(options.figure, draw(found).to_html())
        lines.append(f"drawn in {one_line(options.figure)}")
    if interrupted:
        lines.append("interrupted: the points are the best known by then")
    document = {
        key: entry for key, entry in found.to_document(with_runs=False).items() if key not in ("format", "version")
    }
    put(options, document | {"interrupted": interrupted}, "\n".join(lines))
    settled = all(solution.status in (Status.OPTIMAL, Status.INFEASIBLE) for solution in solutions)
    if not any(solution.schedule for solution in solutions):
        return INTERRUPTED if interrupted else INFEASIBLE if settled else NOT_IN_TIME
    return DONE if settled and not interrupted else NOT_IN_TIME

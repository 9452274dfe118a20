"""`remat-explorer run`, `report` and `policy`: execute a plan, write a report, find PyTorch's own best checkpoints."""

from __future__ import annotations

import argparse
import warnings
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import remat_explorer as rx
from remat_explorer.cli.model_lookup import capture_graph, chosen_strategies, find_graph, find_source, is_graph_file
from remat_explorer.cli.output import (
    CONTRADICTED,
    DONE,
    INFEASIBLE,
    NOT_IN_TIME,
    beside_search,
    put,
    require_outputs,
    say,
    written_to,
)
from remat_explorer.cli.solve_progress import watch
from remat_explorer.cli.solving import (
    remarks,
    report_interrupted,
    report_without_schedule,
    solve_watched,
    without_matrices,
)
from remat_explorer.documents import write_text
from remat_explorer.model_source import Source, is_model_file
from remat_explorer.permissions import Permissions

if TYPE_CHECKING:
    from remat_explorer.graph import Graph
    from remat_explorer.report import Origin
    from remat_explorer.runtime import Measurement
    from remat_explorer.solvers import Frontier


def run(options: argparse.Namespace) -> int:
    """Execute the schedule on the device, and print prediction and measurement side by side."""
    require_outputs(options)
    source = find_source(options, options.device)
    inputs = (source.module, source.make_args(), source.kwargs, source.loss)

    def counting(what: str) -> Callable[[int, int], None]:
        return lambda done, total: say(options, f"{what} {done} of {total}")

    graph = capture_graph(options, source)
    with beside_search(options, "the profile"):
        graph = rx.profile(
            graph,
            *inputs,
            device=options.device,
            on_progress=counting("profiling operation"),
            refresh=options.refresh,
        )
    watched = solve_watched(options, graph)
    solution = watched.solution
    if solution.schedule is None and watched.interrupted:
        return report_interrupted()
    if solution.schedule is None:
        return report_without_schedule(options, watched)
    if watched.interrupted:  # who interrupts wants no long execution
        put(options, without_matrices(solution), "\n".join([str(solution), *remarks(watched)]))
        return NOT_IN_TIME
    with beside_search(options, "the execution"):
        measured = rx.measure(
            solution,
            *inputs,
            device=options.device,
            repeats=options.repeats,
            hard_cap=options.hard_cap,
            snapshot=options.snapshot,
            on_progress=counting("executing run"),
        )
    say(options, "")
    if options.trace:
        measured.save_trace(options.trace)
    document = without_matrices(solution) | {"measurement": measured.to_document()}
    put(options, document, "\n".join([str(solution), *remarks(watched), str(measured)]))
    return DONE if measured.sound else CONTRADICTED


def report(options: argparse.Namespace) -> int:
    """Solve, execute and sweep as far as that was asked for, and write the report; infeasible is a report, too.

    Raises:
        RematError: if the model cannot be found, captured, solved or executed.
        OSError: if the file cannot be written.
    """
    require_outputs(options)
    source, graph = _found(options)
    watched = watch(options, graph)
    solution = watched.solution
    if solution.schedule is None and watched.interrupted:
        return report_interrupted()
    measured, frontier = None, None
    if not watched.interrupted:  # who interrupts wants the report now
        if options.execute and solution.schedule is not None:
            measured = _executed(options, source, solution)
        if options.sweep:
            with beside_search(options, "the trade-off curve"):
                frontier = _swept(options, graph)
    if options.interactive:
        path = _write_page(options, solution, frontier, measured)
    else:
        path = rx.report(
            solution,
            options.output,
            measurement=measured,
            frontier=frontier,
            history=watched.history,
            source=_origin(options, source),
        )
    document = without_matrices(solution) | {
        "report": str(path),
        "measurement": measured.to_document() if measured else None,
        "interrupted": watched.interrupted,
    }
    lines = [str(solution), *remarks(watched), *([str(measured)] if measured else []), written_to(path)]
    put(options, document, "\n".join(lines))
    if options.open:
        webbrowser.open(Path(path).resolve().as_uri())
    if measured is not None and not measured.sound:
        return CONTRADICTED
    return {"optimal": DONE, "infeasible": INFEASIBLE}.get(solution.status, NOT_IN_TIME)


def _found(options: argparse.Namespace) -> tuple[Source | None, Graph]:
    """The model, if there is one, and its graph, profiled if it shall be executed."""
    if is_graph_file(options.model) and not options.execute:
        return None, find_graph(options)
    device = options.device if options.execute else "cpu"
    source = find_source(options, device)  # of a graph file it says that there is nothing to execute
    graph = capture_graph(options, source, options.costs)
    if options.execute:
        progress, refresh = _counting(options, "profiling operation"), options.refresh
        with beside_search(options, "the profile"):
            graph = rx.profile(graph, *_inputs(source), device=device, on_progress=progress, refresh=refresh)
    return source, graph


def _executed(options: argparse.Namespace, source: Source | None, solution: rx.Solution) -> Measurement:
    assert source is not None
    progress = _counting(options, "executing run")
    with beside_search(options, "the execution"):
        measured = rx.measure(
            solution, *_inputs(source), device=options.device, repeats=options.repeats, on_progress=progress
        )
    say(options, "")
    return measured


def _swept(options: argparse.Namespace, graph: Graph) -> Frontier:
    """The trade-off curve; Ctrl-C ends it with what it has."""
    run = rx.Sweep(graph, options.sweep, chosen_strategies(None, graph), cache=not options.no_cache)
    try:
        with run:
            for _ in run:
                progress = run.progress()
                say(options, f"trade-off: {progress.done} of {progress.points} points")
    except KeyboardInterrupt:
        run.cancel()
    say(options, "")
    return run.frontier()


def _write_page(
    options: argparse.Namespace, solution: rx.Solution, frontier: Frontier | None, measured: Measurement | None
) -> Path:
    """The live page of the curve with the solution on it, or of the solution alone."""
    from remat_explorer.explorer.live_page import live_page
    from remat_explorer.report import ReportContents

    curve = ReportContents(solution, frontier=frontier).curve or solution
    shows = None if options.no_source else Permissions()
    told = _counting(options, "writing the page: part")
    path = live_page(curve, permissions=shows, measurement=measured, on_progress=told).save(options.output)
    say(options, "")
    return path


def _origin(options: argparse.Namespace, source: Source | None) -> Origin:
    from remat_explorer.report import Origin

    if source is None:
        return Origin("graph", Path(options.model).name, costs="as the graph file has them")
    device = _device(options) if options.execute else ""
    costs = f"measured on {device}" if device else f"estimated for {options.costs or 'cpu'}, without workspace"
    if is_model_file(options.model):
        file, _, function = options.model.rpartition(":")
        return Origin("file", f"{Path(file).name}:{function}", device=device, costs=costs)
    sizes = dict(source.sizes)
    return Origin("zoo", options.model, sizes["batch"], sizes["image"], sizes["sequence"], device, costs)


def _device(options: argparse.Namespace) -> str:
    import torch

    automatic = "cuda" if torch.cuda.is_available() else "cpu"
    return automatic if options.device == "auto" else options.device


def _inputs(source: Source) -> tuple[Any, ...]:
    return source.module, source.make_args(), source.kwargs, source.loss


def _counting(options: argparse.Namespace, what: str) -> Callable[[int, int], None]:
    return lambda done, total: say(options, f"{what} {done} of {total}")


LOADER = Path(rx.__file__).parent / "runtime" / "peers" / "policy_loader.py"


def policy(options: argparse.Namespace) -> int:
    """Solve, search for a policy, print what it costs, and write it.

    Raises:
        RematError: if the model cannot be found, captured or solved, or no policy fits.
        OSError: if the file cannot be written.
    """
    require_outputs(options)
    if options.loader:
        return _give_loader(options)
    watched = watch(options, find_graph(options))
    if watched.solution.schedule is None:
        return report_interrupted() if watched.interrupted else report_without_schedule(options, watched)
    say(options, "looking for a policy")
    with beside_search(options, "the search for a policy"):
        found = rx.policy(watched.solution)
    say(options, "")
    lines = [str(watched.solution), *remarks(watched), str(found)]
    if options.output:
        with warnings.catch_warnings(record=True, action="always") as remarked:
            found.save(options.output)
        lines += [written_to(options.output), *(str(one.message) for one in remarked)]
    put(options, found.to_document() | {"price": found.price, "interrupted": watched.interrupted}, "\n".join(lines))
    return DONE


def _give_loader(options: argparse.Namespace) -> int:
    """Print the program that reads policies, or write it where that was asked for."""
    program = LOADER.read_text(encoding="utf-8")
    text = program.rstrip("\n")
    if options.output:
        write_text(options.output, program)
        text = written_to(options.output)
    put(options, {"loader": program}, text)
    return DONE


class AskForLoader(argparse.Action):
    """Asks for the program that reads policies, for which neither a model nor a budget is needed."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *given: Any) -> None:
        setattr(namespace, self.dest, True)
        for action in parser._actions:
            action.required = False

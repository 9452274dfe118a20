"""`remat-explorer run`: profile, solve, execute, and compare with the prediction."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import remat_explorer as rx
from remat_explorer.cli.finding import captured, find_source
from remat_explorer.cli.output import CONTRADICTED, DONE, NOT_IN_TIME, beside_search, put, require_outputs, say
from remat_explorer.cli.solve import (
    remarks,
    report_interrupted,
    report_without_schedule,
    solved,
    without_matrices,
)


def run(options: argparse.Namespace) -> int:
    """Execute the schedule on the device, and print prediction and measurement side by side."""
    require_outputs(options)
    source = find_source(options, options.device)
    inputs = (source.module, source.make_args(), source.kwargs, source.loss)

    def counting(what: str) -> Callable[[int, int], None]:
        return lambda done, total: say(options, f"{what} {done} of {total}")

    graph = captured(options, source)
    with beside_search(options, "the profile"):
        graph = rx.profile(
            graph,
            *inputs,
            device=options.device,
            on_progress=counting("profiling operation"),
            refresh=options.refresh,
        )
    watched = solved(options, graph)
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

"""`remat-explorer fit`: whether a training step fits into a memory, and what takes it."""

from __future__ import annotations

import argparse

import remat_explorer as rx
from remat_explorer.cli.finding import SIZES, find_source, is_graph_file
from remat_explorer.cli.output import (
    DONE,
    INFEASIBLE,
    NOT_IN_TIME,
    put,
    require_outputs,
    say,
    write_schedule,
    written_to,
)
from remat_explorer.errors import ModelError
from remat_explorer.model_source import is_model_file


def fit(options: argparse.Namespace) -> int:
    """Print the answer, and write the schedule where one was found and asked for."""
    from remat_explorer.fit import RATES

    require_outputs(options)
    if is_graph_file(options.model):
        raise ModelError(
            f"{options.model!r} is a graph file, in which parameters and inputs are not told apart; "
            "give a model's name or path/to/file.py:function"
        )
    sizes = {name: getattr(options, name) for name in SIZES if getattr(options, name) is not None}
    model = options.model
    if is_model_file(model):
        model, sizes = find_source(options, "cuda", runs=False), {}
    found = rx.fit(
        model,
        options.memory,
        optimizer=options.optimizer,
        master_weights=options.master_weights,
        full_gradients=options.full_gradients,
        costs=options.costs or RATES,
        time_limit=options.time_limit,
        on_progress=lambda doing: say(options, doing),
        **sizes,
    )
    say(options, "")
    solution, text = found.solution, str(found)
    if solution.schedule is not None:
        text += write_schedule(options, "fit", solution.schedule, found.memory, solution.seconds, solution.solver)
    if options.graph:
        solution.graph.save(options.graph)
        text += f"\ngraph {written_to(options.graph)}"
    put(options, found.to_document(), text)
    return {"no": INFEASIBLE, "unknown": NOT_IN_TIME}.get(found.verdict, DONE)

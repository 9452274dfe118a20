"""`remat-explorer capture`: a model's training graph as a file."""

from __future__ import annotations

import argparse

from remat_explorer.cli.finding import captured, find_source
from remat_explorer.cli.output import DONE, put, require_outputs, written_to
from remat_explorer.plain_text import one_line
from remat_explorer.quantities import format_bytes


def capture(options: argparse.Namespace) -> int:
    """Capture a model and write its graph file."""
    require_outputs(options)
    graph = captured(options, find_source(options, options.device, runs=False), options.costs)
    kernels = graph.options.kernels if graph.options else None
    graph.save(options.output)
    document = {
        "graph": graph.name,
        "operations": graph.n,
        "values": len(graph.values),
        "resident_bytes": graph.resident_bytes,
        "sha256": graph.sha256,
        "output": options.output,
        **({"kernels": kernels} if kernels else {}),
    }
    text = (
        f"{one_line(graph.name)}: {graph.n} operations, {len(graph.values)} values, "
        f"{format_bytes(graph.resident_bytes)} resident; {written_to(options.output)}"
    )
    if kernels:
        which = kernels if options.costs else f"{kernels} (Ampere; --costs names another GPU)"
        text += f"\nthere is no CUDA device here: operations and bytes are those of {which}, by PyTorch's rules"
    put(options, document, text)
    return DONE

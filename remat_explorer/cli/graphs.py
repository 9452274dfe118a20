"""`remat-explorer models`, `strategies`, `capture` and `show`: what there is, and what a training graph holds."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import numpy as np

from remat_explorer.cli.model_lookup import capture_graph, find_graph, find_source
from remat_explorer.cli.output import DONE, put, require_outputs, table, written_to
from remat_explorer.graph import Graph, Summary, cost_unit
from remat_explorer.plain_text import one_line
from remat_explorer.quantities import format_bytes, format_share


def models(options: argparse.Namespace) -> int:
    """List the models of the zoo with their published sizes."""
    from remat_explorer.models import names, published_size

    sizes = {name: published_size(name) for name in names()}
    width = max(map(len, sizes))
    lines = [f"{name:{width}}  {size}" for name, size in sizes.items()]
    listed = {name: dataclasses.asdict(size) for name, size in sizes.items()}
    put(options, {"models": listed}, "\n".join(lines))
    return DONE


HEADS = ("strategy", "general graphs", "cost aware", "memory aware", "knob", "options")


def strategies(options: argparse.Namespace) -> int:
    """List the strategies with their properties, options and sources."""
    from remat_explorer.solvers import STRATEGIES, table_one_row

    rows = {name: table_one_row(method) for name, method in STRATEGIES.items()}
    cells: list[tuple[str, ...]] = [HEADS]
    for name, one in rows.items():
        properties = (one.general_graphs, one.cost_aware, one.memory_aware, one.knob, ", ".join(one.options))
        cells.append((name, *(cell or "–" for cell in properties)))
    lines = [f"{name}: {one.describe()}" for name, one in rows.items()]
    listed = {name: dataclasses.asdict(one) for name, one in rows.items()}
    put(options, {"strategies": listed}, "\n".join([table(cells, "<" * len(HEADS)), "", *lines]))
    return DONE


def capture(options: argparse.Namespace) -> int:
    """Capture a model and write its graph file."""
    require_outputs(options)
    graph = capture_graph(options, find_source(options, options.device, runs=False), options.costs)
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


BAR = 30  # characters of a bar that stands for everything


def show(options: argparse.Namespace) -> int:
    """Print the summary of a graph, its memory as in Checkmate's figure 3, and its heaviest values and operations."""
    graph = find_graph(options)
    summary = graph.summary()
    values = [int(v) for v in np.argsort(-graph.value_bytes, kind="stable")[: options.top]]
    operations = [int(k) for k in np.argsort(-graph.costs, kind="stable")[: options.top]]
    parts = (_head(summary), _memory(summary), _values(graph, values), _operations(graph, operations))
    put(options, _document(graph, summary, values, operations), "\n\n".join(parts))
    return DONE


def _head(summary: Summary) -> str:
    return "\n".join(str(summary).splitlines()[:2])  # its third line is the table of memory below


def _memory(summary: Summary) -> str:
    parts = {
        "resident (parameters, inputs, buffers)": summary.resident_bytes,
        "parameter gradients": summary.gradient_bytes,
        "features": summary.feature_bytes,
        "largest workspace": summary.workspace_bytes,
    }
    everything = sum(parts.values()) or 1
    rows = [("memory", "bytes", "share", "")]
    for name, size in parts.items():
        share = size / everything
        rows.append((name, format_bytes(size), format_share(share), "#" * round(BAR * share)))
    return table(rows, "<>><")


def _values(graph: Graph, chosen: list[int]) -> str:
    rows = [("heaviest values", "bytes", "pass", "readers", "")]
    for v in chosen:
        value, maker = graph.values[v], graph.operations[int(graph.producer[v])]
        stays = "stays to the end" if value.persistent else ""
        rows.append((value.name, format_bytes(value.bytes), maker.phase, str(len(graph.readers[v])), stays))
    return table(rows, "<><><")


def _operations(graph: Graph, chosen: list[int]) -> str:
    rows = [("costliest operations", "cost", "share", "pass", "workspace")]
    for k in chosen:
        node, way = graph.operations[k], graph.operations[k].default
        cost, share = f"{way.cost:.4g}{cost_unit(graph)}", format_share(way.cost / (graph.total_cost or 1))
        rows.append((node.name, cost, share, node.phase, format_bytes(way.workspace)))
    return table(rows, "<>><>")


def _document(graph: Graph, summary: Summary, values: list[int], operations: list[int]) -> dict[str, Any]:
    return {
        "graph": summary.name,
        "sha256": graph.sha256,
        "operations": graph.n,
        "forward_operations": summary.forward,
        "backward_operations": summary.backward,
        "values": summary.values,
        "resident_bytes": summary.resident_bytes,
        "gradient_bytes": summary.gradient_bytes,
        "feature_bytes": summary.feature_bytes,
        "kept_bytes": summary.kept_bytes,
        "workspace_bytes": summary.workspace_bytes,
        "checkpoint_all_peak": summary.peak,
        "total_cost": summary.cost,
        "articulation_points": list(graph.articulation_points()),
        "heaviest_values": [
            {
                "value": v,
                "name": graph.values[v].name,
                "bytes": graph.values[v].bytes,
                "persistent": graph.values[v].persistent,
                "operation": int(graph.producer[v]),
                "readers": list(graph.readers[v]),
            }
            for v in values
        ],
        "costliest_operations": [
            {
                "operation": k,
                "name": graph.operations[k].name,
                "phase": graph.operations[k].phase,
                "cost": graph.operations[k].default.cost,
                "workspace": graph.operations[k].default.workspace,
            }
            for k in operations
        ],
    }

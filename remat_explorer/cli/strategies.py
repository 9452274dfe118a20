"""`remat-explorer strategies`: the methods, and what Table 1 of the paper says of each."""

from __future__ import annotations

import argparse
import dataclasses

from remat_explorer.cli.output import DONE, put, table

HEADS = ("strategy", "general graphs", "cost aware", "memory aware", "knob", "options")


def strategies(options: argparse.Namespace) -> int:
    """List the strategies with their properties, options and sources."""
    from remat_explorer.solvers import STRATEGIES
    from remat_explorer.solvers.method import row

    rows = {name: row(method) for name, method in STRATEGIES.items()}
    cells: list[tuple[str, ...]] = [HEADS]
    for name, one in rows.items():
        properties = (one.general_graphs, one.cost_aware, one.memory_aware, one.knob, ", ".join(one.options))
        cells.append((name, *(cell or "–" for cell in properties)))
    lines = [f"{name}: {one.describe()}" for name, one in rows.items()]
    listed = {name: dataclasses.asdict(one) for name, one in rows.items()}
    put(options, {"strategies": listed}, "\n".join([table(cells, "<" * len(HEADS)), "", *lines]))
    return DONE

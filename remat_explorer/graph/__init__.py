"""The training graph: its data, its rules, its file, and views of it."""

from __future__ import annotations

from remat_explorer.graph.graph import Graph
from remat_explorer.graph.parts import Implementation, Operation, Phase, Value, operation

__all__ = ["Graph", "Implementation", "Operation", "Phase", "Value", "operation"]

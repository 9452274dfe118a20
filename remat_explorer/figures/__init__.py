"""Figures: pure functions from data to a plotly Figure, for notebooks, reports and the explorer.

>>> import numpy as np
>>> import remat_explorer as rx
>>> graph = rx.linear(2)
>>> figure = schedule_heatmap(rx.Schedule(graph, np.eye(5), np.tril(np.ones((5, 5)), -1)))
>>> figure.layout.title.text
'linear2'
"""

from remat_explorer.figures.compare import compare
from remat_explorer.figures.difference import Difference, difference
from remat_explorer.figures.memory_breakdown import memory_breakdown
from remat_explorer.figures.memory_heatmap import memory_heatmap
from remat_explorer.figures.memory_timeline import memory_timeline
from remat_explorer.figures.model_graph import model_graph
from remat_explorer.figures.schedule_heatmap import schedule_heatmap
from remat_explorer.figures.solver_progress import solver_progress
from remat_explorer.figures.tradeoff import tradeoff

__all__ = [
    "Difference",
    "compare",
    "difference",
    "memory_breakdown",
    "memory_heatmap",
    "memory_timeline",
    "model_graph",
    "schedule_heatmap",
    "solver_progress",
    "tradeoff",
]

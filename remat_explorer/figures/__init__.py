"""Figures: pure functions from data to a plotly Figure, for notebooks, reports and the explorer.

>>> import numpy as np
>>> import remat_explorer as rx
>>> graph = rx.linear(2)
>>> figure = schedule_heatmap(rx.Schedule(graph, np.eye(5), np.tril(np.ones((5, 5)), -1)))
>>> figure.layout.title.text
'linear2'
"""

from remat_explorer.figures.ablation import ablation
from remat_explorer.figures.activation_budget import activation_budget
from remat_explorer.figures.beside_pytorch import beside_pytorch
from remat_explorer.figures.case_study import case_study
from remat_explorer.figures.compare import compare
from remat_explorer.figures.convolution_algorithms import convolution_algorithms
from remat_explorer.figures.memory_breakdown import features_against_parameters, memory_breakdown
from remat_explorer.figures.memory_map import memory_map
from remat_explorer.figures.memory_timeline import memory_timeline
from remat_explorer.figures.model_graph import model_graph
from remat_explorer.figures.plan_stepper import plan_stepper
from remat_explorer.figures.rounding_scatter import rounding_scatter
from remat_explorer.figures.schedule_heatmap import (
    Difference,
    computation_matrices,
    difference,
    memory_heatmap,
    schedule_heatmap,
)
from remat_explorer.figures.solver_progress import solver_progress
from remat_explorer.figures.tradeoff import tradeoff

__all__ = [
    "Difference",
    "ablation",
    "activation_budget",
    "beside_pytorch",
    "case_study",
    "compare",
    "computation_matrices",
    "convolution_algorithms",
    "difference",
    "features_against_parameters",
    "memory_breakdown",
    "memory_heatmap",
    "memory_map",
    "memory_timeline",
    "model_graph",
    "plan_stepper",
    "rounding_scatter",
    "schedule_heatmap",
    "solver_progress",
    "tradeoff",
]

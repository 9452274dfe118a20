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
from remat_explorer.figures.compare import compare
from remat_explorer.figures.convolution_algorithms import convolution_algorithms
from remat_explorer.figures.judged import distance_heat_map, judged_curves
from remat_explorer.figures.memory.features_against_parameters import features_against_parameters
from remat_explorer.figures.memory.memory_breakdown import memory_breakdown
from remat_explorer.figures.memory.memory_map import memory_map
from remat_explorer.figures.memory.memory_timeline import memory_timeline
from remat_explorer.figures.memory.plan_stepper import plan_stepper
from remat_explorer.figures.networks.case_study import case_study
from remat_explorer.figures.networks.model_graph import model_graph
from remat_explorer.figures.rounding_scatter import rounding_scatter
from remat_explorer.figures.schedules.computation_matrices import computation_matrices
from remat_explorer.figures.schedules.difference import Difference, difference
from remat_explorer.figures.schedules.memory_heatmap import memory_heatmap
from remat_explorer.figures.schedules.schedule_heatmap import schedule_heatmap
from remat_explorer.figures.solver_progress import solver_progress
from remat_explorer.figures.tradeoffs.tradeoff import tradeoff

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
    "distance_heat_map",
    "features_against_parameters",
    "judged_curves",
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

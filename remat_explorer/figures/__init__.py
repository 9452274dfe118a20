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
from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.case_study import CaseStudy, case_study, case_study_of, colours_of
from remat_explorer.figures.compare import compare
from remat_explorer.figures.convolution_algorithms import (
    Algorithm,
    Part,
    convolution_algorithms,
    describe_algorithm,
    is_convolution,
    parts_of,
)
from remat_explorer.figures.implementation_images import Use, implementation_colours, implementations_used
from remat_explorer.figures.layers import layers_of
from remat_explorer.figures.memory_breakdown import features_against_parameters, memory_breakdown
from remat_explorer.figures.memory_map import (
    KINDS,
    AnyPlan,
    Journey,
    Lane,
    Piece,
    journeys_of,
    lanes_of,
    memory_map,
    pieces_of,
    rectangles_of,
    schedule_of,
    waits_of,
    widest_journey,
)
from remat_explorer.figures.memory_stack import LAYERS, Stack, host_stack, stack
from remat_explorer.figures.memory_timeline import (
    ON_THE_HOST,
    PLACES,
    Hits,
    Reach,
    hit_trace,
    hits,
    layer_traces,
    line_traces,
    measured_bytes,
    memory_timeline,
    timeline_axes,
)
from remat_explorer.figures.model_graph import folded_picture, model_graph
from remat_explorer.figures.palette import DARK, LIGHT, Palette, Theme
from remat_explorer.figures.plan_stepper import plan_stepper, schedule_stepper
from remat_explorer.figures.play_buttons import player
from remat_explorer.figures.rounding_scatter import rounding_scatter
from remat_explorer.figures.schedule_heatmap import (
    Difference,
    computation_matrices,
    difference,
    kinds_of_computations,
    memory_heatmap,
    schedule_heatmap,
)
from remat_explorer.figures.schedule_images import TITLES, matrix_pictures, png_address
from remat_explorer.figures.snake import snake_layout, snake_picture
from remat_explorer.figures.solver_progress import solver_progress
from remat_explorer.figures.tradeoff import (
    Extent,
    bound_steps,
    curve_traces,
    largest_infeasible,
    mark,
    methods_by_budget,
    overheads,
    pointer_traces,
    points_of,
    tradeoff,
    tradeoff_axes,
)

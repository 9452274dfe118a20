"""Which execution plans cuDNN has for a convolution on a device, with the time that each takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from remat_explorer.capture.alternatives.kernels.cudnn import Built, graph_of, handle_of, library, run_plan
from remat_explorer.capture.alternatives.kernels.execution_plan import ExecutionPlan, Problem
from remat_explorer.capture.model_placement import is_out_of_memory
from remat_explorer.capture.stopwatch import laps_on

UNWANTED = (  # results would differ from run to run, or by more than the stated tolerance
    "NONDETERMINISTIC",
    "REDUCED_PRECISION_REDUCTION",
    "WINOGRAD_TILE_4x4",
    "WINOGRAD_TILE_6x6",
    "WINOGRAD_TILE_13x13",
)
ROUNDING = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS")  # of float32, by TF32
REPEATS = 3


def found_plans(problem: Problem, device: torch.device) -> list[ExecutionPlan]:
    """Every plan that can be built and run on a device, timed with tensors of the problem's sizes.

    Args:
        problem: what is computed.
        device: on which.

    Raises:
        ExecutionError: if the package is missing.
    """
    cudnn, handle = library(), handle_of(device)
    graph, reads, makes = graph_of(cudnn, problem, handle)
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK])
        unwanted = UNWANTED if problem.tf32 or problem.dtype != "float32" else (*UNWANTED, *ROUNDING)
        notes = cudnn.numerical_note
        graph.deselect_numeric_notes([getattr(notes, name) for name in unwanted if hasattr(notes, name)])
        graph.check_support()
    except Exception as error:  # of several classes, by release; there is no plan for such tensors then
        if is_out_of_memory(error):
            raise
        return []
    tensors = [_tensor(problem, place, device) for place in (*problem.reads, problem.makes)]
    plans: list[ExecutionPlan] = []
    for index in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(index)
            engine, knobs = graph.get_engine_and_knobs_at_index(index)
            size = int(graph.get_workspace_size_plan_at_index(index))
            built = Built(graph, reads, makes, index)
            seconds = _seconds(lambda built=built, size=size: run_plan(built, tensors, size, device), device)
        except Exception as error:  # a plan that this device cannot run, or whose workspace it cannot hold
            if is_out_of_memory(error) and device.type == "cuda":
                torch.cuda.empty_cache()
            continue
        named = tuple(sorted((_name_of(knob), int(value)) for knob, value in dict(knobs).items()))
        plans.append(ExecutionPlan(int(engine), named, str(graph.get_plan_name_at_index(index)), size, seconds))
    return plans


def _tensor(problem: Problem, place: int, device: torch.device) -> torch.Tensor:
    shape, strides = problem.sizes[place], problem.strides[place]
    return torch.empty_strided(shape, strides, dtype=getattr(torch, problem.dtype), device=device).fill_(1)


def _seconds(run: Callable[[], None], device: torch.device) -> float:
    """The least of a few runs, after one that warms up."""
    laps = laps_on(device)
    for _ in range(REPEATS + 1):
        with laps.lap():
            run()
    return max(min(laps.seconds()[1:]), 1e-9)


def _name_of(knob: Any) -> str:
    return getattr(knob, "name", str(knob).rpartition(".")[2])

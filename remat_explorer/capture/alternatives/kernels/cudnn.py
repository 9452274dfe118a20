"""Convolutions by an execution plan of cuDNN that is chosen, with its workspace as a tensor of its own.

PyTorch takes the plan that cuDNN's heuristics put first, whose workspace may be larger than all tensors of a network.
Source: the frontend of cuDNN, https://docs.nvidia.com/deeplearning/cudnn/frontend; the package is optional.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from remat_explorer.capture.alternatives.kernels.execution_plan import Knobs, Problem
from remat_explorer.capture.convolution_arguments import ConvolutionArguments, Part, Sizes
from remat_explorer.errors import ExecutionError

PACKAGE = "nvidia-cudnn-frontend"
TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}


@dataclass(frozen=True, eq=False)
class Built:
    """A graph of cuDNN whose plan at ``index`` can run: the tensors that it reads, and the one that it makes."""

    graph: Any
    reads: tuple[Any, Any]
    makes: Any
    index: int


_HANDLES: dict[torch.device, Any] = {}
_BUILT: dict[tuple[Any, ...], Built] = {}


def why_not(device: torch.device) -> str:
    """Why execution plans cannot be chosen on a device, as a sentence, or "" if they can.

    >>> why_not(torch.device("cpu"))
    'execution plans of cuDNN can be chosen on a CUDA device only, not on cpu'
    """
    if device.type != "cuda":
        return f"execution plans of cuDNN can be chosen on a CUDA device only, not on {device}"
    try:
        library()
    except ExecutionError as error:
        return str(error)
    return ""


def library() -> Any:
    """The module of cuDNN's frontend.

    Raises:
        ExecutionError: if it is not installed, or does not find cuDNN.
    """
    try:
        return importlib.import_module("cudnn")
    except ImportError as error:
        raise ExecutionError(
            f"to choose execution plans of cuDNN takes the package {PACKAGE} ({error}); install it with "
            "pip install 'remat-explorer[cudnn]', or leave the kind \"algorithms\" out"
        ) from None


def convolution_by_plan(
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    arguments: ConvolutionArguments,
    size: Sizes,
    strides: Sizes,
    engine: int,
    knobs: Knobs,
    workspace: int,
) -> torch.Tensor:
    """A convolution by one plan; a bias is added afterwards.

    Args:
        source, weight, bias, arguments: of the convolution, which is not transposed.
        size, strides: of the result.
        engine, knobs, workspace: of the plan.
    """
    result = source.new_empty_strided(tuple(size), tuple(strides))
    _compute("forward", (source, weight, result), arguments, engine, knobs, workspace)
    return result if bias is None else result.add_(bias.view(1, -1, *[1] * (result.dim() - 2)))


def input_gradient_by_plan(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    arguments: ConvolutionArguments,
    size: Sizes,
    strides: Sizes,
    engine: int,
    knobs: Knobs,
    workspace: int,
) -> torch.Tensor:
    """The gradient of a convolution's input by one plan.

    Args:
        gradient: of the result; the others as for `convolution_by_plan`, size and strides of the input.
    """
    result = gradient.new_empty_strided(tuple(size), tuple(strides))
    _compute("input", (result, weight, gradient), arguments, engine, knobs, workspace)
    return result


def weight_gradient_by_plan(
    gradient: torch.Tensor,
    source: torch.Tensor,
    with_bias: bool,
    arguments: ConvolutionArguments,
    size: Sizes,
    strides: Sizes,
    engine: int,
    knobs: Knobs,
    workspace: int,
) -> tuple[None, torch.Tensor, torch.Tensor | None]:
    """The gradient of a convolution's weight by one plan, and that of the bias, as `convolution_backward` gives them.

    Args:
        gradient: of the result.
        with_bias: whether the gradient of the bias is wanted.
        source, arguments, engine, knobs, workspace: as for `convolution_by_plan`.
        size, strides: of the weight.
    """
    result = source.new_empty_strided(tuple(size), tuple(strides))
    _compute("weight", (source, result, gradient), arguments, engine, knobs, workspace)
    return None, result, gradient.sum((0, *range(2, gradient.dim()))) if with_bias else None


def problem_of(part: Part, tensors: Sequence[torch.Tensor], arguments: ConvolutionArguments) -> Problem:
    """The problem of source, weight and result, or of what has their sizes and strides."""
    first, second, third = (tuple(map(int, tensor.shape)) for tensor in tensors)
    strides: Any = tuple(tuple(map(int, tensor.stride())) for tensor in tensors)
    settings: Any = tuple(tuple(map(int, sizes)) for sizes in arguments[:3])
    tf32 = tensors[0].dtype == torch.float32 and bool(torch.backends.cudnn.allow_tf32)
    return Problem(part, (first, second, third), strides, settings, str(tensors[0].dtype).removeprefix("torch."), tf32)


def _compute(
    part: Part,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    arguments: ConvolutionArguments,
    engine: int,
    knobs: Knobs,
    workspace: int,
) -> None:
    problem, device = problem_of(part, tensors, arguments), tensors[0].device
    key = (problem, engine, tuple(map(tuple, knobs)), device)
    if key not in _BUILT:
        _BUILT[key] = _again(problem, engine, knobs, device)
    run_plan(_BUILT[key], [tensors[place] for place in (*problem.reads, problem.makes)], workspace, device)


def _again(problem: Problem, engine: int, knobs: Knobs, device: torch.device) -> Built:
    """The plan of that engine with those knobs."""
    cudnn, handle = library(), handle_of(device)
    graph, reads, makes = graph_of(cudnn, problem, handle)
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plan(engine, {getattr(cudnn.knob_type, name): value for name, value in knobs})
        index = graph.get_execution_plan_count() - 1
        graph.build_plan_at_index(index)
    except Exception as error:  # of several classes, by release
        raise ExecutionError(
            f"cuDNN has no engine {engine} with knobs {dict(knobs)} for this convolution here ({error}); capture the "
            "model again on this machine"
        ) from error
    return Built(graph, reads, makes, index)


def run_plan(built: Built, tensors: Sequence[torch.Tensor], workspace: int, device: torch.device) -> None:
    """Run a plan; its workspace comes from PyTorch's allocator, where meters see it."""
    room = torch.empty(max(1, workspace), dtype=torch.uint8, device=device)
    pack = dict(zip((*built.reads, built.makes), tensors, strict=True))
    built.graph.execute_plan_at_index(pack, room, built.index, handle_of(device))


def graph_of(cudnn: Any, problem: Problem, handle: Any) -> tuple[Any, tuple[Any, Any], Any]:
    """A graph of one operation: what it reads, in the order of `Problem.reads`, and what it makes."""
    kind, wide = getattr(cudnn.data_type, TYPES[problem.dtype]), cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        handle=handle, name=problem.part, io_data_type=kind, intermediate_data_type=wide, compute_data_type=wide
    )

    def tensor(place: int, name: str) -> Any:
        sizes, strides = problem.sizes[place], problem.strides[place]
        return graph.tensor(name=name, dim=list(sizes), stride=list(strides), data_type=kind)

    stride, padding, dilation = map(list, problem.setting)
    setting = {"padding": padding, "stride": stride, "dilation": dilation, "compute_data_type": wide}
    if problem.part == "forward":
        reads = tensor(0, "source"), tensor(1, "weight")
        made = graph.conv_fprop(image=reads[0], weight=reads[1], **setting)
    elif problem.part == "input":
        reads = tensor(2, "gradient"), tensor(1, "weight")
        made = graph.conv_dgrad(loss=reads[0], filter=reads[1], **setting)
    else:
        reads = tensor(0, "source"), tensor(2, "gradient")
        made = graph.conv_wgrad(image=reads[0], loss=reads[1], **setting)
    made.set_dim(list(problem.sizes[problem.makes]))  # a gradient's sizes do not follow from what it is made of
    made.set_output(True).set_stride(list(problem.strides[problem.makes])).set_data_type(kind)
    return graph, reads, made


def handle_of(device: torch.device) -> Any:
    """A handle of cuDNN for a device, on PyTorch's stream."""
    cudnn = library()
    if device.type != "cuda":
        return None
    with torch.cuda.device(device):
        if device not in _HANDLES:
            _HANDLES[device] = cudnn.create_handle()
        cudnn.set_stream(handle=_HANDLES[device], stream=torch.cuda.current_stream(device).cuda_stream)
    return _HANDLES[device]

"""Convolutions by an execution plan of cuDNN that is chosen, with its workspace as a tensor of its own.

PyTorch takes the plan that cuDNN's heuristics put first, whose workspace may be larger than all tensors of a network.
Here every plan is found and timed (`found_plans`), and a few are offered (`plans_of`). Which are best depends on times,
which differ from run to run. A graph names its implementations, and its schedules must find them again; so what was
chosen once for a convolution on a machine is kept in `cache_folder`.

Source: MONeT (Shah et al., ICLR 2021), appendix C, for the choice among cuDNN's algorithms; the frontend of cuDNN,
https://docs.nvidia.com/deeplearning/cudnn/frontend; the package is optional.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from remat_explorer.cache_folder import cache_folder, entry_path
from remat_explorer.capture.captured_program import CapturedImplementation, step
from remat_explorer.capture.implementations.call_site import Site, picks, reordered_products
from remat_explorer.capture.model_placement import is_out_of_memory
from remat_explorer.capture.predicted_costs import (
    ConvolutionArguments,
    Part,
    Sizes,
    part_of,
    wanted_gradients,
)
from remat_explorer.capture.stopwatch import laps_on
from remat_explorer.documents import quote, read_json, require_format, require_keys, write_json
from remat_explorer.errors import ExecutionError, RematError

_Sizes = tuple[int, ...]
Knobs = tuple[tuple[str, int], ...]
PACKAGE = "nvidia-cudnn-frontend"
TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}
_HANDLES: dict[torch.device, Any] = {}
_BUILT: dict[tuple[Any, ...], _Built] = {}
UNWANTED = (  # results would differ from run to run, or by more than the stated tolerance
    "NONDETERMINISTIC",
    "REDUCED_PRECISION_REDUCTION",
    "WINOGRAD_TILE_4x4",
    "WINOGRAD_TILE_6x6",
    "WINOGRAD_TILE_13x13",
)
ROUNDING = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS")  # of float32, by TF32
REPEATS = 3
FORMAT, VERSION = "remat-explorer/execution-plans", 1
MOST: dict[Part, int] = {"forward": 3, "input": 3, "weight": 2}  # the rest of an operation's places is for chunks
_KNOWN: dict[str, list[ExecutionPlan]] = {}


def algorithms(site: Site) -> Iterator[CapturedImplementation]:
    """The best plans for result, input gradient or weight gradient of a convolution; on CUDA, with the package."""
    part, arguments = part_of(site.call), ConvolutionArguments.of(site.call)
    result, source, weight, *_ = (site.call, *site.args) if part == "forward" else site.args
    if part is None or arguments.transposed or why_not(site.fake(source).device):
        return
    made = {"forward": result, "input": site.outputs().get(0), "weight": site.outputs().get(1)}[part]
    nodes = {"input": (made, weight, result), "weight": (source, made, result)}.get(part, (source, weight, result))
    if made is None or str(site.fake(source).dtype).removeprefix("torch.") not in TYPES:
        return
    tensors = [site.fake(node) for node in nodes]
    for plan in plans_of(problem_of(part, tensors, arguments), tensors[0].device):
        yield _way(site, plan, part, site.fake(made))


def plans_of(problem: Problem, device: torch.device) -> list[ExecutionPlan]:
    """The plans that are offered: from memory, from their file, or found and timed now."""
    key = {"problem": problem.document(), **_machine(device)}
    text = json.dumps(key, sort_keys=True)
    if text not in _KNOWN:
        plans = load_plans(key)
        if plans is None:
            plans = best_of(found_plans(problem, device), MOST[problem.part])
            store_plans(key, plans)
        _KNOWN[text] = plans
    return _KNOWN[text]


def load_plans(key: dict[str, Any]) -> list[ExecutionPlan] | None:
    """The plans that the file of a key holds, or None if there is none that can be trusted."""
    try:
        document = read_json(entry_path("cudnn", key), RematError)
        require_keys(document, ("format", "version", "key", "plans"), "the execution plans", RematError)
        require_format(document, FORMAT, VERSION, RematError)
        plans = [ExecutionPlan.of(entry) for entry in document["plans"]]
    except (RematError, TypeError):
        return None
    return plans if document["key"] == json.loads(json.dumps(key)) else None


def store_plans(key: dict[str, Any], plans: list[ExecutionPlan]) -> None:
    """Write the plans atomically, or not at all where the folder cannot be written."""
    document = {"format": FORMAT, "version": VERSION, "key": key, "plans": [asdict(plan) for plan in plans]}
    with contextlib.suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_json(entry_path("cudnn", key), document)


def _title(plan: ExecutionPlan) -> str:
    """The name of the implementation: cuDNN's name of the plan, which has engine and knobs in it."""
    return f"cuDNN {plan.name}"


def _way(site: Site, plan: ExecutionPlan, part: Part, made: torch.Tensor) -> CapturedImplementation:
    size, strides = list(made.shape), list(made.stride())
    rest = (ConvolutionArguments.of(site.call), size, strides, plan.engine, plan.knobs, plan.workspace)
    tolerance = reordered_products(made)
    if part == "forward":
        steps = (step(site.call, convolution_by_plan, *site.args[:3], *rest),)
    elif part == "input":
        (result,) = site.outputs().values()
        steps = (step(result, input_gradient_by_plan, site.args[0], site.args[2], *rest),)
    else:
        given = site.args[0], site.args[1], wanted_gradients(site.call)[2]
        steps = (step(site.call, weight_gradient_by_plan, *given, *rest), *picks(site))
        tolerance *= 10
    return CapturedImplementation("algorithms", _title(plan), site.call, steps, tolerance, workspace=plan.workspace)


def _machine(device: torch.device) -> dict[str, Any]:
    """What the plans depend on beside the problem."""
    find: Callable[[torch.device], str] = torch.cuda.get_device_name
    name = find(device) if device.type == "cuda" else str(device)
    return {"device": name, "cudnn": torch.backends.cudnn.version(), "torch": torch.__version__}


@dataclass(frozen=True)
class Problem:
    """One part of a convolution: result, input gradient or weight gradient."""

    part: Part
    sizes: tuple[_Sizes, _Sizes, _Sizes]  # of source, weight and result; a gradient has that of what it belongs to
    strides: tuple[_Sizes, _Sizes, _Sizes]  # of the same, in entries
    setting: tuple[_Sizes, _Sizes, _Sizes]  # stride, padding and dilation; groups show in the sizes
    dtype: str  # of all tensors: "float32", "float16" or "bfloat16"
    tf32: bool  # whether factors in float32 may be rounded to 10 bits

    @property
    def reads(self) -> tuple[int, int]:
        """Which of source, weight and result it reads."""
        return {"forward": (0, 1), "input": (2, 1), "weight": (0, 2)}[self.part]  # type: ignore[return-value]

    @property
    def makes(self) -> int:
        """Which of source, weight and result it makes."""
        return {"forward": 2, "input": 0, "weight": 1}[self.part]

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class ExecutionPlan:
    """What cuDNN calls an engine with its knobs; both together find it again."""

    engine: int  # its number
    knobs: Knobs  # names and values
    name: str  # as cuDNN writes it
    workspace: int  # bytes that it asks for
    seconds: float  # measured

    def __post_init__(self) -> None:
        whole = (self.engine, self.workspace, *(value for _, value in self.knobs))
        if any(isinstance(number, bool) or not isinstance(number, int) for number in whole) or self.workspace < 0:
            raise RematError(f"an execution plan with {quote(whole)}; expected integers, and bytes of at least 0")
        if not isinstance(self.seconds, float) or not self.seconds > 0:
            raise RematError(f"an execution plan of {quote(self.seconds)}; expected seconds above 0")

    @staticmethod
    def of(document: Mapping[str, Any]) -> ExecutionPlan:
        """The plan of a document that `dataclasses.asdict` made; a RematError if it is none."""
        try:
            knobs = tuple((str(name), value) for name, value in document["knobs"])
            rest = (document[key] for key in ("workspace", "seconds"))
            return ExecutionPlan(document["engine"], knobs, str(document["name"]), *rest)
        except (KeyError, TypeError, ValueError) as error:
            raise RematError(f"no execution plan: {quote(document)} ({error})") from None


def best_of(plans: list[ExecutionPlan], most: int) -> list[ExecutionPlan]:
    """The plans that no other one beats in both time and workspace, the fastest first; the leanest is among them."""
    kept: list[ExecutionPlan] = []
    for plan in sorted(plans, key=lambda plan: (plan.seconds, plan.workspace, plan.engine, plan.knobs)):
        if not kept or plan.workspace < kept[-1].workspace:
            kept.append(plan)
    if len(kept) <= most:
        return kept
    if most <= 1:
        return kept[-1:] if most == 1 else []
    return [kept[(len(kept) - 1) * place // (most - 1)] for place in range(most)]


@dataclass(frozen=True, eq=False)
class _Built:
    """A graph of cuDNN whose plan at ``index`` can run: the tensors that it reads, and the one that it makes."""

    graph: Any
    reads: tuple[Any, Any]
    makes: Any
    index: int


def why_not(device: torch.device) -> str:
    """Why execution plans cannot be chosen on a device, as a sentence, or "" if they can."""
    if device.type != "cuda":
        return f"execution plans of cuDNN can be chosen on a CUDA device only, not on {device}"
    try:
        library()
    except ExecutionError as error:
        return str(error)
    return ""


def library() -> Any:
    """The module of cuDNN's frontend; an ExecutionError if it is not installed, or does not find cuDNN."""
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
    """A convolution that is not transposed, by one plan; a bias is added afterwards. ``size`` is that of the result."""
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
    """The gradient of a convolution's input by one plan; ``size`` and ``strides`` are those of the input."""
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

    ``size`` and ``strides`` are those of the weight.
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
    _run_plan(_BUILT[key], [tensors[place] for place in (*problem.reads, problem.makes)], workspace, device)


def _again(problem: Problem, engine: int, knobs: Knobs, device: torch.device) -> _Built:
    """The plan of that engine with those knobs."""
    cudnn, handle = library(), handle_of(device)
    graph, reads, makes = _graph_of(cudnn, problem, handle)
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
    return _Built(graph, reads, makes, index)


def _run_plan(built: _Built, tensors: Sequence[torch.Tensor], workspace: int, device: torch.device) -> None:
    """Run a plan; its workspace comes from PyTorch's allocator, where meters see it."""
    room = torch.empty(max(1, workspace), dtype=torch.uint8, device=device)
    pack = dict(zip((*built.reads, built.makes), tensors, strict=True))
    built.graph.execute_plan_at_index(pack, room, built.index, handle_of(device))


def _graph_of(cudnn: Any, problem: Problem, handle: Any) -> tuple[Any, tuple[Any, Any], Any]:
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


def found_plans(problem: Problem, device: torch.device) -> list[ExecutionPlan]:
    """Every plan that can be built and run on a device, timed with tensors of the problem's sizes."""
    cudnn, handle = library(), handle_of(device)
    graph, reads, makes = _graph_of(cudnn, problem, handle)
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
            built = _Built(graph, reads, makes, index)
            seconds = _seconds(lambda built=built, size=size: _run_plan(built, tensors, size, device), device)
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

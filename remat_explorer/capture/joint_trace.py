"""The joint forward and backward pass of a training step, as one functional fx graph: `trace_joint`.

Nothing is allocated: inputs are FakeTensors. Parameters stay the model's own and are only read, so planning for a
batch that no machine at hand could hold takes seconds.

A model that cannot be traced directly goes through `torch.export` first: libraries such as transformers look into
attention masks to save work, and know better only while they are exported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._functorch._aot_autograd.descriptors import BufferAOTInput, ParamAOTInput
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Interpreter, Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module

from remat_explorer.capture.autocast import cast_cache_in_trace, no_autocast, use_cast_cache
from remat_explorer.capture.content_tracking import ContentTracker, fix_sizes
from remat_explorer.capture.cuda_target import CudaTarget, as_on_cuda
from remat_explorer.capture.eager_kernels import eager_kernels
from remat_explorer.capture.in_place_layouts import LayoutRecorder
from remat_explorer.capture.input_assumptions import Assumption, Content, Evaluation, GivenTensor, UnknownContent
from remat_explorer.capture.propagation import record_calls
from remat_explorer.capture.sharding import is_sharded, whole_like
from remat_explorer.capture.source_locations import ModulePaths, SourceLines, file_name
from remat_explorer.capture.system_questions import SystemQuestions
from remat_explorer.capture.trace_checks import RandomSourceCheck, RepeatedPassCheck, TensorLeakCheck, ThreadCheck
from remat_explorer.capture.trace_errors import explain_error
from remat_explorer.capture.training_step import TrainingStep, substitute_tensors, unwrap
from remat_explorer.errors import CaptureError
from remat_explorer.operation_details import SourceFile

_LOUD = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")


@dataclass(frozen=True)
class JointGraph:
    """The joint graph, and for each of its nodes the path of the module and the line that it comes from.

    Beside it are the modules around it that run once. The descriptors in ``meta["desc"]`` name parameters and buffers
    as the model does. ``reads`` are what was read out of inputs and buffers on the way.
    """

    module: GraphModule
    paths: dict[Node, str]
    around: dict[Node, tuple[str, ...]]
    lines: dict[Node, str]
    files: dict[Node, SourceFile | None]
    reads: tuple[Assumption, ...]


def trace_joint(step: TrainingStep, tensors: tuple[torch.Tensor, ...], target: CudaTarget | None = None) -> JointGraph:
    """The functional forward and backward graph of a training step.

    Tensors without content, FakeTensors and those on the meta device, stand for tensors on the device of the others, or
    on the CPU. A model that cannot be traced directly is exported first and traced then. ``target`` is a CUDA device
    that is not there, whose operations the graph shall have. If neither works, a CaptureError says what the direct
    trace met, and where.
    """
    # Tracing changes settings of the whole process for a while: torch's default kernels, loggers, autograd.Function,
    # and how attributes of modules are read. So there is one trace at a time, and none beside torch.compile.
    from torch._dynamo.convert_frame import compile_lock  # 3 s, for those who trace

    tracker = ContentTracker(Evaluation(dict(step.model.named_buffers()), tensors), on_cuda=target is not None)
    fake = _faker(tracker, step, tensors, target)
    step.hold(lambda tensor: tensor if isinstance(tensor, nn.Parameter) and _is_at_hand(tensor) else fake(tensor))
    fakes = tuple(fake(tensor) for tensor in tensors)
    for place in step.differentiated:
        fakes[place].requires_grad_()
    if target is not None:
        step.surroundings = as_on_cuda
    devices = sorted({t.device.index or 0 for t in step.parameters() if t.device.type == "cuda"})
    paths, lines, questions = ModulePaths(step.model), SourceLines(), SystemQuestions()
    passes = RepeatedPassCheck(questions)

    def where(number: int | None) -> tuple[tuple[Any, str], bool]:
        number = None if step.is_in_forward else number
        return (lines.at(number), paths.path_at(number)), number is not None

    # PyTorch takes the mode of a fake input or buffer; where there is none it would make its own, which takes no others
    alone = not fakes and next(step.buffers(), None) is None
    with (
        compile_lock,
        torch.random.fork_rng(devices),
        _tracing(target),
        tracing(TracingContext(tracker.mode) if alone else None),
        step.reads.recording(),
        step.restore_afterwards(),
        RandomSourceCheck() as random_sources,
        TensorLeakCheck(where) as leaks,
        ThreadCheck() as threads,
    ):
        step.note = leaks.note
        try:
            with paths.watching(random_sources.look), step.within(lines, passes), step.substituted_in_backward():
                graph = _export_joint(step, fakes)
            random_sources.refuse(step.model)
            threads.refuse()
            step.refuse_changes_of_backward()
        except Exception as error:  # whatever a person's model does while it is traced
            leaks.clear_caches()
            if not isinstance(error, CaptureError) or passes.has_refused:
                random_sources.refuse(step.model, error)
            threads.refuse(error)
            explained = explain_error(error, step.model, paths.innermost, tracker.refused)
            if isinstance(error, CaptureError):
                raise explained from error.__cause__
            paths, lines = ModulePaths(step.model), SourceLines()
            tracker.reset()
            try:
                graph = _export_joint(ExportedStep(step, fakes, paths.at), fakes)
            except Exception:  # what the export met says less: it comes later, and is not the person's code
                raise explained from error
            if not any(_is_empty(tensor) for tensor in (*step.model.parameters(), *tensors)):
                warnings.warn(_exported_in_words(step.model, explained), stacklevel=2)
    asked = step.reads.of_objects()
    leaks.require_none_alive(step.model, step.changes, _in_words)
    questions.warn()
    step.variables += [*asked, *questions.answers()]
    tracker.stop()
    fix_sizes(graph)
    if target is None:
        record_calls(graph)
    _use_names_of_the_model(graph, step.names)
    nodes = graph.graph.nodes
    reads = tuple(tracker.assumptions)
    return JointGraph(
        graph,
        {node: paths.of(node) for node in nodes},
        {node: paths.once_around(node) for node in nodes},
        {node: lines.of(node) for node in nodes},
        {node: lines.file_of(node) for node in nodes},
        reads,
    )


def _in_words(place: tuple[Any, str]) -> str:
    """A line and the path of a module: ``at net.py:12 in 'layers.0'``."""
    line, path = place
    parts = (f"at {file_name(line[0])}:{line[1]}" if line else "", f"in {path!r}" if path else "")
    return " ".join(part for part in parts if part)


def _export_joint(step: nn.Module, fakes: tuple[torch.Tensor, ...]) -> GraphModule:
    """The joint graph.

    `decompositions={}` keeps convolution, batch norm, pooling and dropout as single nodes. It is the only keyword
    that every supported release of torch shares.
    """
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors  # 3 s, for those who trace

    with _use_lazy_graph_module(True), contextlib.ExitStack() as stack:  # its code is written if somebody asks for it
        stack.enter_context(LayoutRecorder())
        return aot_export_joint_with_descriptors(stack, step, fakes, decompositions={}).graph_module


def _exported_in_words(model: nn.Module, direct: CaptureError) -> str:
    return (
        f"{type(model).__name__} is captured by torch.export, because a direct trace failed ({direct}). Code that asks "
        "whether it is exported may then compute in another way than in plain PyTorch, so that last digits may differ"
    )


def _is_at_hand(tensor: torch.Tensor) -> bool:
    return not (_is_empty(tensor) or is_sharded(tensor))


def _is_empty(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FakeTensor) or tensor.device.type == "meta"


def _faker(
    tracker: ContentTracker, step: TrainingStep, tensors: tuple[torch.Tensor, ...], target: CudaTarget | None
) -> Any:
    """A function from tensors to FakeTensors, the same for the same tensor; of each it is known what it contains.

    Those of a CUDA device that is not there are on the CPU: `remat_explorer.capture.cuda_target` says why.
    """
    everything = [*step.parameters(), *step.buffers(), *tensors]
    home = next((t.device for t in everything if t.device.type != "meta"), torch.device("cpu"))
    given: dict[int, Content | UnknownContent] = {}
    given |= {id(t): GivenTensor("buffer", name=step.names[name]) for name, t in step.named_buffers()}
    given |= {id(tensor): GivenTensor("input", place) for place, tensor in enumerate(tensors)}
    made: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in made:
            return made[id(tensor)]
        if _is_empty(tensor):
            device = home if tensor.device.type == "meta" else tensor.device
            device = torch.device("cpu") if target else device
            with tracker.mode:
                empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
            made[id(tensor)] = tracker.set_content(
                empty, UnknownContent("inputs or buffers that have a shape but no content")
            )
        else:
            made[id(tensor)] = tracker.set_content(tracker.mode.from_tensor(tensor), given[id(tensor)])
        return made[id(tensor)]

    for name, parameter in step.named_parameters():
        if not _is_empty(parameter):
            unknown = UnknownContent(f"the parameter {step.names[name]!r}, whose content changes from step to step")
            with tracker.mode if is_sharded(parameter) else contextlib.nullcontext():
                whole = whole_like(parameter) if is_sharded(parameter) else parameter
            made[id(parameter)] = tracker.set_content(tracker.mode.from_tensor(whole, static_shapes=True), unknown)
    return fake


def _use_names_of_the_model(graph: GraphModule, names: dict[str, str]) -> None:
    def renamed(meaning: Any) -> Any:
        if isinstance(meaning, ParamAOTInput | BufferAOTInput):
            return dataclasses.replace(meaning, target=names[meaning.target])
        for field in ("grad_of", "mutated_input", "output"):
            if hasattr(meaning, field):
                return dataclasses.replace(meaning, **{field: renamed(getattr(meaning, field))})
        return meaning

    for node in graph.graph.nodes:
        if node.op == "placeholder":
            node.meta["desc"] = renamed(node.meta.get("desc"))
        elif node.op == "output":
            node.meta["desc"] = [renamed(meaning) for meaning in node.meta["desc"]]


@contextlib.contextmanager
def _tracing(target: CudaTarget | None) -> Iterator[None]:
    """What tracing needs, whatever the caller has switched on; torch does not log errors that are explained here."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        with torch.inference_mode(False), no_autocast(), eager_kernels(target), cast_cache_in_trace():
            yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


class ExportedStep(nn.Module):
    """A training step whose forward pass is an exported graph; tensors and their names are those of ``step``.

    ``enter`` is told the path of the module at each operation, and those of the modules around it.
    """

    def __init__(
        self,
        step: TrainingStep,
        tensors: tuple[torch.Tensor, ...],
        enter: Callable[[str, list[str]], None] = lambda *_: None,
    ) -> None:
        super().__init__()
        self._parameters, self._buffers = step._parameters, step._buffers
        self.training = step.training
        quiet = contextlib.redirect_stderr(io.StringIO())
        with substitute_tensors(step.model, _on_one_device(step)), _only_traceable_gradients(), quiet:
            program = torch.export.export(_StepWithModel(step), tensors, strict=False)
        self._graph = (program.module(), enter)  # in a tuple: its parameters are those of the step
        self._aliases = step.aliases()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        graph, enter = self._graph
        held = {**self._parameters, **self._buffers}
        substituted = {f"model.{path}": held[name] for path, name in self._aliases.items()}
        with use_cast_cache():
            return _ExportInterpreter(graph, substituted, enter).run(*tensors)


def _on_one_device(step: TrainingStep) -> dict[int, torch.Tensor]:
    """What stands for each tensor of the model: for one on the meta device the step's FakeTensor, beside the inputs."""
    return {id(own): held if own.device.type == "meta" else own for own, held in step.stand_ins()}


@contextlib.contextmanager
def _only_traceable_gradients() -> Iterator[None]:
    """Refuse what an export silently leaves out: backward passes and hooks that a person wrote."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise CaptureError("torch.export would leave out a custom autograd Function or a gradient hook")

    before = (vars(torch.autograd.Function).get("apply"), torch.Tensor.register_hook)
    torch.autograd.Function.apply, torch.Tensor.register_hook = classmethod(refuse), refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autograd.Function.apply, torch.Tensor.register_hook = before  # type: ignore[method-assign]


class _StepWithModel(nn.Module):
    """The step as `torch.export` wants it: with the model for a child."""

    def __init__(self, step: TrainingStep) -> None:
        super().__init__()
        self.model = unwrap(step.model)
        self._step = (step,)
        self.training = step.training

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self._step[0].results_without_changes(self.model, tensors)


class _ExportInterpreter(Interpreter):
    """Runs an exported graph with other parameters and buffers, and tells in which module it is."""

    def __init__(
        self, module: GraphModule, substituted: Mapping[str, Any], enter: Callable[[str, list[str]], None]
    ) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._substituted = substituted
        self._enter = enter

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self._substituted[target] if target in self._substituted else super().get_attr(target, args, kwargs)

    def run_node(self, n: Node) -> Any:
        stack = (n.meta.get("nn_module_stack") or {}).values()
        paths = [str(path).removeprefix("model").removeprefix(".") for path, _ in stack]
        if n.op == "call_function" and paths:
            self._enter(paths[-1], paths)
        return super().run_node(n)

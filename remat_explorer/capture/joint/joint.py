"""The joint forward and backward pass of a training step, as one functional fx graph.

Nothing is allocated: inputs are FakeTensors. Parameters stay the model's own and are only read, so planning for a
batch that no machine at hand could hold takes seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._functorch._aot_autograd.descriptors import BufferAOTInput, ParamAOTInput
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node

from remat_explorer.capture.joint.explain import explain
from remat_explorer.capture.joint.export import ExportedStep
from remat_explorer.capture.joint.module_paths import ModulePaths
from remat_explorer.capture.joint.source_lines import SourceLines
from remat_explorer.capture.step.autocast import no_autocast
from remat_explorer.capture.step.kernels import kernels_of_plain_pytorch
from remat_explorer.capture.step.training_step import TrainingStep
from remat_explorer.errors import CaptureError

# Tracing changes settings of the whole process for a while: torch's default kernels, loggers, autograd.Function.
_ONE_AT_A_TIME = threading.Lock()
LOUD = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")


@dataclass(frozen=True)
class Joint:
    """The joint graph, and for each of its nodes the path of the module and the line that it comes from.

    The descriptors in ``meta["desc"]`` name parameters and buffers as the model does.
    """

    module: GraphModule
    paths: dict[Node, str]
    lines: dict[Node, str]


def trace_joint(step: TrainingStep, tensors: tuple[torch.Tensor, ...]) -> Joint:
    """The functional forward and backward graph of a training step.

    Tensors without content, FakeTensors and those on the meta device, stand for tensors on the device of the others,
    or on the CPU. A model that cannot be traced directly is exported first and traced then.

    Raises:
        CaptureError: if neither works; the message says what the direct trace met, and where.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fake = _faker(mode, step, tensors)
    step.hold(lambda tensor: fake(tensor) if _is_empty(tensor) else tensor)
    fakes = tuple(fake(tensor) for tensor in tensors)
    devices = sorted({t.device.index or 0 for t in step.parameters() if t.device.type == "cuda"})
    paths, lines = ModulePaths(step.model), SourceLines()
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices), _tracing():
        try:
            with paths.watching(), lines:
                graph = _export_joint(step, fakes)
        except Exception as error:  # whatever a person's model does while it is traced
            explained = explain(error, step.model, paths.innermost)
            if isinstance(error, CaptureError):
                raise explained from error.__cause__
            paths, lines = ModulePaths(step.model), SourceLines()
            try:
                graph = _export_joint(ExportedStep(step, fakes, paths.at), fakes)
            except Exception:  # what the export met says less: it comes later, and is not the person's code
                raise explained from error
    _use_names_of_the_model(graph, step.names)
    nodes = graph.graph.nodes
    return Joint(graph, {node: paths.of(node) for node in nodes}, {node: lines.of(node) for node in nodes})


def _export_joint(step: nn.Module, fakes: tuple[torch.Tensor, ...]) -> GraphModule:
    """The joint graph.

    `decompositions={}` keeps convolution, batch norm, pooling and dropout as single nodes. It is the only keyword
    that every supported release of torch shares.
    """
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors  # 3 s, for those who trace

    with contextlib.ExitStack() as stack:
        return aot_export_joint_with_descriptors(stack, step, fakes, decompositions={}).graph_module


def _is_empty(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FakeTensor) or tensor.device.type == "meta"


def _faker(mode: FakeTensorMode, step: TrainingStep, tensors: tuple[torch.Tensor, ...]) -> Any:
    """A function from tensors to FakeTensors of ``mode``, the same for the same tensor."""
    everything = [*step.parameters(), *step.buffers(), *tensors]
    home = next((t.device for t in everything if t.device.type != "meta"), torch.device("cpu"))
    made: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            if _is_empty(tensor):
                device = home if tensor.device.type == "meta" else tensor.device
                with mode:
                    made[id(tensor)] = torch.empty_strided(
                        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device
                    )
            else:
                made[id(tensor)] = mode.from_tensor(tensor)
        return made[id(tensor)]

    return fake


def _use_names_of_the_model(graph: GraphModule, names: dict[str, str]) -> None:
    def renamed(meaning: Any) -> Any:
        if isinstance(meaning, ParamAOTInput | BufferAOTInput):
            return dataclasses.replace(meaning, target=names[meaning.target])
        for field in ("grad_of", "mutated_input"):
            if hasattr(meaning, field):
                return dataclasses.replace(meaning, **{field: renamed(getattr(meaning, field))})
        return meaning

    for node in graph.graph.nodes:
        if node.op == "placeholder":
            node.meta["desc"] = renamed(node.meta.get("desc"))
        elif node.op == "output":
            node.meta["desc"] = [renamed(meaning) for meaning in node.meta["desc"]]


@contextlib.contextmanager
def _tracing() -> Iterator[None]:
    """What tracing needs, whatever the caller has switched on; torch does not log errors that are explained here."""
    loggers = [logging.getLogger(name) for name in LOUD]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        with torch.inference_mode(False), no_autocast(), kernels_of_plain_pytorch():
            yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled

"""The joint forward and backward pass of a training step, as one functional fx graph.

Nothing is allocated: inputs are FakeTensors. Parameters stay the model's own and are only read, so planning for a
batch that no machine at hand could hold takes seconds.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._C._autograd import _get_sequence_nr
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils import _pytree as pytree

from remat_explorer.errors import CaptureError

Loss = Callable[[Any], torch.Tensor]


class TrainingStep(nn.Module):
    """A model and its loss as one module, from a flat list of tensors to the scalar that backward starts from.

    Args:
        model: the model; its parameters are shared, not copied.
        args: positional inputs of the model, tensors or containers of tensors.
        kwargs: keyword inputs.
        loss: from the model's output to a scalar tensor; None takes a scalar output as it is, and otherwise sums
            every floating-point tensor of the output.
    """

    def __init__(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, loss: Loss | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self._loss = [loss]  # in a list: a loss that is itself a module must not become a child with parameters
        leaves, self._structure = pytree.tree_flatten((tuple(args), kwargs or {}))
        self._constants = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self._places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.training = model.training

    def tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> tuple[torch.Tensor, ...]:
        """The tensors among the inputs, detached, in the order that `forward` takes them.

        Raises:
            CaptureError: if these inputs are nested differently from those of the constructor.
        """
        leaves, structure = pytree.tree_flatten((tuple(args), kwargs or {}))
        if structure != self._structure:
            raise CaptureError(f"the inputs are nested as {structure}, but the model was captured with another nesting")
        return tuple(leaves[i].detach() for i in self._places)

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        leaves = list(self._constants)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self._structure)
        return _scalar(self.model(*args, **kwargs), self._loss[0])


def _scalar(output: Any, loss: Loss | None) -> torch.Tensor:
    if loss is not None:
        value = loss(output)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            shape = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise CaptureError(f"the loss must give a tensor with one element, but it gave {shape}")
        return value
    if isinstance(output, torch.Tensor) and output.numel() == 1:
        return output
    floating = [t for t in pytree.tree_leaves(output) if isinstance(t, torch.Tensor) and t.is_floating_point()]
    if not floating:
        raise CaptureError(f"the model gives {type(output).__name__} without a floating-point tensor; pass loss=...")
    total = floating[0].sum()
    for tensor in floating[1:]:
        total = total + tensor.sum()
    return total


@dataclass(frozen=True)
class Joint:
    """The joint graph, and for each of its nodes the path of the module that it comes from."""

    module: GraphModule
    paths: dict[Node, str]


def trace_joint(step: TrainingStep, tensors: tuple[torch.Tensor, ...]) -> Joint:
    """The functional forward and backward graph of a training step.

    `decompositions={}` keeps convolution, batch norm, pooling and dropout as single nodes. It is the only keyword
    that every supported release of torch shares.

    Raises:
        CaptureError: if nothing needs a gradient, or control flow or shapes depend on data.
    """
    if not any(parameter.requires_grad for parameter in step.parameters()):
        raise CaptureError(f"{type(step.model).__name__} has no parameter that requires a gradient: nothing to train")
    mode = next((t.fake_mode for t in tensors if isinstance(t, FakeTensor)), None)
    mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
    fakes = tuple(t if isinstance(t, FakeTensor) else mode.from_tensor(t) for t in tensors)
    devices = sorted({t.device.index or 0 for t in step.parameters() if t.device.type == "cuda"})
    try:
        with contextlib.ExitStack() as stack, torch.random.fork_rng(devices), _module_spans(step) as spans:
            joint = aot_export_joint_with_descriptors(stack, step, fakes, decompositions={})
    except CaptureError:
        raise
    except Exception as error:  # whatever a person's model does while it is traced
        raise CaptureError(
            f"{type(step.model).__name__} cannot be captured as a static training graph: {_first_line(error)}. "
            "Shapes and control flow must not depend on the data"
        ) from error
    module = joint.graph_module
    return Joint(module, {node: _path_of(node, spans) for node in module.graph.nodes})


@contextlib.contextmanager
def _module_spans(step: TrainingStep) -> Iterator[list[tuple[int, str]]]:
    """Record at which autograd sequence number execution enters which module, or comes back to it.

    The numbers only grow, and the joint graph keeps them on its nodes, for a backward node that of its forward node.
    """
    names = {id(module): name for name, module in step.model.named_modules()}
    wrapped = list(step.model.named_children())
    if len(wrapped) == 1 and any(True for _ in wrapped[0][1].children()):  # a mere wrapper: its name tells nothing
        names = {key: name.removeprefix(wrapped[0][0]).removeprefix(".") for key, name in names.items()}
    spans: list[tuple[int, str]] = []
    entered: list[str] = []

    def enter(module: nn.Module, _: Any) -> None:
        entered.append(names.get(id(module), entered[-1] if entered else ""))
        spans.append((_get_sequence_nr(), entered[-1]))

    def leave(module: nn.Module, _: Any, __: Any) -> None:
        if entered:
            entered.pop()
        spans.append((_get_sequence_nr(), entered[-1] if entered else ""))

    handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)]
    try:
        yield spans
    finally:
        for handle in handles:
            handle.remove()


def _path_of(node: Node, spans: list[tuple[int, str]]) -> str:
    number = node.meta.get("seq_nr")
    if number is None:
        return ""
    at = bisect_right(spans, number, key=lambda span: span[0])
    return spans[at - 1][1] if at else ""


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__

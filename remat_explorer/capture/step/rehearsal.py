"""Forward passes with nothing at stake: which attributes a model changes once, and which again and again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from remat_explorer.capture.fake_mode import fake_tensor_mode
from remat_explorer.capture.step.attributes import Attributes, Changes, Place
from remat_explorer.capture.step.borrowed import borrowed
from remat_explorer.capture.step.contents import Content
from remat_explorer.capture.step.left_behind import is_left, leave, left_of
from remat_explorer.capture.step.losses import Loss
from remat_explorer.capture.step.sharding import is_sharded, whole_like
from remat_explorer.capture.step.training_step import TrainingStep, unwrapped
from remat_explorer.errors import ExecutionError


@dataclass(frozen=True)
class Rehearsal:
    """What forward passes, one after another, do to the attributes of a model, and to variables around it.

    Attributes:
        settled: what the first pass changes and the second leaves alone, such as caches, with what it holds then.
        left: tensors that each pass leaves behind and none reads before it writes them, such as attention maps.
        restless: what else the second pass changes again, such as a counter.
        from_data: what only the first pass changes, but from inputs, parameters or random numbers, or in a way that
            makes the second pass compute something else.
    """

    settled: dict[Place, Content] = field(default_factory=dict)
    left: dict[Place, Content] = field(default_factory=dict)
    restless: Changes = field(default_factory=dict)
    from_data: Changes = field(default_factory=dict)


def rehearse(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], loss: Loss | None = None) -> Rehearsal:
    """Run the forward pass twice, and once more without what it left behind, and leave the model as it was.

    Inputs and parameters are FakeTensors, and so is what depends on them; constants are computed for real. So nothing
    large is allocated, and what a cache holds in the end can be told from what depends on data.

    Raises:
        Exception: whatever a model does that looks into its inputs.

    >>> class Counts(nn.ReLU):
    ...     steps = 0
    ...     def forward(self, x):
    ...         self.steps, self.ones = self.steps + 1, torch.ones(3)
    ...         return super().forward(x)
    >>> found = rehearse(nn.Sequential(nn.Linear(2, 2), Counts()), (torch.ones(1, 2),), {})
    >>> list(found.restless), list(found.settled)
    ([('1', 'steps')], [('1', 'ones')])
    """
    step = TrainingStep(model, args, kwargs, loss)
    mode = fake_tensor_mode()
    own = dict((*step.named_parameters(), *step.named_buffers()))

    def hollow(tensor: torch.Tensor) -> torch.Tensor:
        if is_sharded(tensor):
            with mode:
                return whole_like(tensor)
        return mode.from_tensor(tensor) if isinstance(tensor, nn.Parameter) else tensor.clone()

    step.hold(hollow)
    held = dict((*step.named_parameters(), *step.named_buffers()))
    tensors = step.leaves(tuple(mode.from_tensor(tensor) for tensor in step.tensors(args, kwargs)))
    inner = unwrapped(model)
    devices = sorted({tensor.device.index or 0 for tensor in held.values() if tensor.device.type == "cuda"})
    with (
        torch.inference_mode(False),
        torch.random.fork_rng(devices),
        borrowed(model, {id(own[name]): tensor for name, tensor in held.items()}),
    ):
        start = Attributes(inner, step.variables)
        try:
            first, calls_of_first = _pass(step, inner, tensors)
            again, calls_of_second = _pass(step, inner, tensors)
            left = {place: left_of(before, after) for place, (before, after) in again.items() if is_left(before, after)}
            leave(inner, left)
            if left and not _is_without(step, inner, tensors, calls_of_second):
                left = {}
        finally:
            start.restore()
    alike = calls_of_first == calls_of_second
    once = {place: change for place, change in first.items() if place not in again}
    settled = {place: after for place, (_, after) in once.items() if alike and not _is_from_data(after)}
    restless = {place: change for place, change in again.items() if place not in left}
    from_data = {place: change for place, change in once.items() if place not in settled}
    return Rehearsal(settled, left, restless, from_data)


def _pass(step: TrainingStep, model: nn.Module, tensors: tuple[torch.Tensor, ...]) -> tuple[Changes, list[Any]]:
    """What a forward pass changes, and what it computes."""
    attributes, calls = Attributes(model, step.variables), _Calls()
    with calls:
        step.results_of(model, tensors)
    return attributes.changes(), calls.made


def _is_without(
    step: TrainingStep, model: nn.Module, tensors: tuple[torch.Tensor, ...], calls_of_second: list[Any]
) -> bool:
    """Whether a pass computes the same where marks are in place of what was left behind."""
    try:
        return _pass(step, model, tensors)[1] == calls_of_second
    except ExecutionError:
        return False


class _Calls(TorchDispatchMode):
    """Lists the operators that read what depends on data, and those that draw random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = [] if func.namespace == "prim" else pytree.tree_leaves((args, kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags or any(isinstance(leaf, FakeTensor) for leaf in leaves):
            self.made.append((func, *map(_told, leaves)))
        return func(*args, **(kwargs or {}))


def _told(leaf: Any) -> Any:
    return (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, torch.Tensor) else repr(leaf)


def _is_from_data(content: Content) -> bool:
    if content.kind == "tensor" and isinstance(content.value.tensor, FakeTensor):
        return True
    return any(_is_from_data(item) for _, item in content.items)

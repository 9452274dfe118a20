"""Dry-run forward passes: which attributes a model changes once, which in every pass, and which it only writes.

What is only written, such as attention maps, is no obstacle for a plan: placeholders are stored there
(`store_placeholders`), and to compute with one is an error, so that nothing old is used.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from remat_explorer.capture.attributes import AttributeSnapshot, Changes, Place
from remat_explorer.capture.fake_tensors import fake_tensor_mode
from remat_explorer.capture.inputs_and_outputs import Loss
from remat_explorer.capture.sharding import is_sharded, whole_like
from remat_explorer.capture.snapshots import Snapshot
from remat_explorer.capture.training_step import TrainingStep, substitute_tensors, unwrap
from remat_explorer.capture.variables import UNSET, Variable
from remat_explorer.errors import ExecutionError

_IS_NOT_THERE = "is not there after a training step by a plan, which does not run forward"
_OF_FORWARD = "Return it from forward, or keep it in a buffer (register_buffer), which plans update"
_OF_HOOKS = (
    "Hooks compute it when the model is called: before it is read, such as to prune it further, call the model once "
    "within torch.no_grad() and in evaluation mode, model.eval()"
)


@dataclass(frozen=True)
class DryRun:
    """What forward passes, one after another, do to the attributes of a model, and to variables around it.

    ``changed_once`` is what the first pass changes and the second leaves alone, such as caches, with what it holds
    then. ``write_only`` are tensors that each pass writes and none reads before, such as attention maps.
    ``changed_every_pass`` is what else the second pass changes again, such as a counter. ``changed_from_data`` is what
    only the first pass changes, but from inputs, parameters or random numbers, or in a way that makes the second pass
    compute something else.
    """

    changed_once: dict[Place, Snapshot] = field(default_factory=dict)
    write_only: dict[Place, Snapshot] = field(default_factory=dict)
    changed_every_pass: Changes = field(default_factory=dict)
    changed_from_data: Changes = field(default_factory=dict)


def dry_run_forward(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], loss: Loss | None = None
) -> DryRun:
    """Run the forward pass twice, and once more without what it only writes, and leave the model as it was.

    Inputs and parameters are FakeTensors, and so is what depends on them; constants are computed for real. So nothing
    large is allocated, and what a cache holds in the end can be told from what depends on data.

    Raises:
        Exception: whatever a model does that looks into its inputs.

    >>> class Counts(nn.ReLU):
    ...     steps = 0
    ...     def forward(self, x):
    ...         self.steps, self.ones = self.steps + 1, torch.ones(3)
    ...         return super().forward(x)
    >>> found = dry_run_forward(nn.Sequential(nn.Linear(2, 2), Counts()), (torch.ones(1, 2),), {})
    >>> list(found.changed_every_pass), list(found.changed_once)
    ([('1', 'steps')], [('1', 'ones')])
    """
    step = TrainingStep(model, args, kwargs, loss)
    mode = fake_tensor_mode()
    own = dict((*step.named_parameters(), *step.named_buffers()))

    def without_content(tensor: torch.Tensor) -> torch.Tensor:
        if is_sharded(tensor):
            with mode:
                return whole_like(tensor)
        return mode.from_tensor(tensor) if isinstance(tensor, nn.Parameter) else tensor.clone()

    step.hold(without_content)
    held = dict((*step.named_parameters(), *step.named_buffers()))
    tensors = step.leaves(tuple(mode.from_tensor(tensor) for tensor in step.tensors(args, kwargs)))
    inner = unwrap(model)
    devices = sorted({tensor.device.index or 0 for tensor in held.values() if tensor.device.type == "cuda"})
    with (
        torch.inference_mode(False),
        torch.random.fork_rng(devices),
        substitute_tensors(model, {id(own[name]): tensor for name, tensor in held.items()}),
    ):
        start = AttributeSnapshot(inner, step.variables)
        try:
            first, calls_of_first = _pass(step, inner, tensors)
            again, calls_of_second = _pass(step, inner, tensors)
            write_only = {
                place: _written_tensors(before, after)
                for place, (before, after) in again.items()
                if _differs_in_tensors_only(before, after)
            }
            store_placeholders(inner, write_only)
            if write_only and not _is_same_with_placeholders(step, inner, tensors, calls_of_second):
                write_only = {}
        finally:
            start.restore()
    is_repeated = calls_of_first == calls_of_second
    once = {place: change for place, change in first.items() if place not in again}
    changed_once = {place: after for place, (_, after) in once.items() if is_repeated and not _is_from_data(after)}
    every_pass = {place: change for place, change in again.items() if place not in write_only}
    from_data = {place: change for place, change in once.items() if place not in changed_once}
    return DryRun(changed_once, write_only, every_pass, from_data)


def _pass(step: TrainingStep, model: nn.Module, tensors: tuple[torch.Tensor, ...]) -> tuple[Changes, list[Any]]:
    """What a forward pass changes, and what it computes."""
    attributes, calls = AttributeSnapshot(model, step.variables), _Calls()
    with calls:
        results = step.results_of(model, tensors)
    changes = attributes.changes()
    del results  # what is only held weakly was there until now
    return changes, calls.made


def _is_same_with_placeholders(
    step: TrainingStep, model: nn.Module, tensors: tuple[torch.Tensor, ...], calls_of_second: list[Any]
) -> bool:
    """Whether a pass computes the same where placeholders are in place of what is only written."""
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


def _is_from_data(content: Snapshot) -> bool:
    if content.kind == "tensor" and isinstance(content.value.tensor, FakeTensor):
        return True
    return any(_is_from_data(item) for _, item in content.items)


def _differs_in_tensors_only(before: Snapshot, after: Snapshot) -> bool:
    """Whether tensors, in lists and dictionaries of the same keys, are all in which two snapshots differ."""
    if before == after:
        return True
    if before.kind == after.kind == "container" and before.value is after.value:
        keys = [[key for key, _ in content.items] for content in (before, after)]
        pairs = zip(before.items, after.items, strict=False)
        return keys[0] == keys[1] and all(_differs_in_tensors_only(then, now) for (_, then), (_, now) in pairs)
    return before.kind == after.kind == "tensor"


def _written_tensors(before: Snapshot, after: Snapshot) -> Snapshot:
    """What a pass left, of two snapshots that differ in tensors only, without tensors of dictionaries that stayed."""
    if after.kind != "container" or not isinstance(after.value, type) or before.kind != "container":
        return after
    pairs = zip(before.items, after.items, strict=False)
    items = [(key, then, _written_tensors(then, now)) for (_, then), (key, now) in pairs]
    in_dict = issubclass(after.value, dict)
    kept = [(key, now) for key, then, now in items if not (in_dict and now.kind == "tensor" and then == now)]
    return Snapshot("container", after.value, tuple(kept))


class TensorPlaceholder(torch.Tensor):
    """Stands where forward would have stored a tensor; to compute with it is an error, so that nothing old is used.

    >>> placeholder = TensorPlaceholder.of("the map is not there")
    >>> isinstance(placeholder, torch.Tensor), placeholder
    (True, <the map is not there>)
    >>> torch.ones(2) + placeholder
    Traceback (most recent call last):
        ...
    remat_explorer.errors.ExecutionError: the map is not there
    """

    words: str

    @staticmethod
    @functools.cache
    def of(words: str) -> TensorPlaceholder:
        """The placeholder that says so, the same for the same words: attributes hold the same after each step."""
        placeholder = torch.empty(0).as_subclass(TensorPlaceholder)
        placeholder.words = words
        return placeholder

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__self__.__name__ if func.__name__ == "__get__" else func.__name__
        if name in ("_version", "is_inference", "data_ptr"):  # by which changes are noticed
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        leaves = pytree.tree_leaves((args, kwargs or {}))
        raise ExecutionError(next(leaf.words for leaf in leaves if isinstance(leaf, TensorPlaceholder)))

    def __deepcopy__(self, memo: Any) -> TensorPlaceholder:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(None), ()  # pickled as None: who reads it need not have this class

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"<{self.words}>"


def has_placeholder(content: Snapshot) -> bool:
    """Whether a placeholder is among what was held."""
    if content.kind == "tensor":
        return isinstance(content.value.tensor, TensorPlaceholder)
    return any(has_placeholder(item) for _, item in content.items)


def store_placeholders(model: nn.Module, write_only: Mapping[Place, Snapshot]) -> None:
    """Store placeholders where a forward pass would have stored tensors that nobody reads.

    Args:
        model: its attributes are changed.
        write_only: places, and what a forward pass writes there.
    """
    for (path, name), content in write_only.items():
        if isinstance(path, Variable):
            placeholder = TensorPlaceholder.of(f"{path.words} {_IS_NOT_THERE}. Return it from forward")
            path.put(_with_placeholders(path.get(), content, placeholder))
            continue
        module = model.get_submodule(path)
        of = f"{path!r} ({type(module).__name__})" if path else f"the model ({type(module).__name__})"
        advice = _OF_HOOKS if module._forward_pre_hooks else _OF_FORWARD
        placeholder = TensorPlaceholder.of(f"the attribute {name} of {of} {_IS_NOT_THERE}. {advice}")
        held = vars(module)
        held[name] = _with_placeholders(held.get(name, UNSET), content, placeholder)


def _with_placeholders(value: Any, content: Snapshot, placeholder: TensorPlaceholder) -> Any:
    """``value`` with a placeholder for each tensor of a snapshot; lists and dictionaries are changed in place."""
    if content.kind == "tensor":
        return placeholder
    kind = content.value if content.kind == "container" and isinstance(content.value, type) else None
    if kind is None or not issubclass(kind, list | dict | tuple | deque):
        return None if value is UNSET else value
    if issubclass(kind, tuple) or type(value) is not kind:
        parts = {key: _with_placeholders(UNSET, item, placeholder) for key, item in content.items}
        return parts if issubclass(kind, dict) else (deque if issubclass(kind, deque) else list)(parts.values())
    for key, item in content.items:
        if isinstance(value, dict) or key < len(value):
            there = value.get(key, UNSET) if isinstance(value, dict) else value[key]
            value[key] = _with_placeholders(there, item, placeholder)
        elif key == len(value):
            value.append(_with_placeholders(UNSET, item, placeholder))
    return value

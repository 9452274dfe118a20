"""The step that a graph was captured from, run in plain PyTorch and with the checkpoints of a policy.

What a policy of the graph may save is what PyTorch really runs; and a policy is written only if the loss, gradients
and buffers with it are those without it, bit for bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from remat_explorer.capture import (
    Example,
    Placement,
    TrainingStep,
    exact_kernels,
    fake_tensor_mode,
    first_line,
    model_device,
    place,
    substitute_tensors,
    tensors_in,
    unwrap,
)
from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.checker import replay
from remat_explorer.errors import ExecutionError, OutOfMemoryError, SolverError
from remat_explorer.free_memory import free_bytes
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes
from remat_explorer.runtime.autograd_order import ObservedCall, ObservedModule, region_plan
from remat_explorer.runtime.comparison import Comparison, FinalState, compare
from remat_explorer.runtime.eager import Eager, InitialState, ModelChange
from remat_explorer.runtime.peers import policy_loader


def observed_modules(graph: Graph, modules: Sequence[str]) -> dict[str, ObservedModule] | None:
    """What modules of a captured graph do in one step, by their paths; None where that step does not run here.

    A module that never runs is missing. Keys and values are not kept, as with a policy. The model, its gradients and
    buffers, and random numbers stay as they are.
    """
    example: Example = graph.example
    observation = _Observation(example.model, modules)
    if _is_without_content(example):
        try:
            with example.as_captured(), _without_cache(example.model), observation.watching():
                _run_without_content(example)
        except Exception:  # whatever a person's model does where tensors have no content
            return None
        return observation.found()
    try:
        with _runnable_step(graph) as (training, _), _without_cache(example.model), training.explained():
            training.run(observation.watching)
    except (ExecutionError, OutOfMemoryError):
        return None
    return observation.found()


def require_equal(graph: Graph, regions: list[dict[str, Any]], budget: int) -> str:
    """Run a policy on the step that its graph was captured from; a SolverError if it fails or gives other results.

    The sentence says why it could not be run here, or that it took more than the budget, resident bytes included; or
    "".
    """
    if graph.example is None:
        return _untried("the graph does not know the step that it was captured from; capture it with contract=False")
    if _is_without_content(graph.example):
        return _untried("the model or its inputs have shapes, but no content")
    try:
        with _runnable_step(graph) as (training, placed), _without_cache(placed.model):
            change = functools.partial(_with_policy, placed.model, regions)
            found = _compared(training, placed, change)
            peak = graph.resident_bytes + (_peak(training, placed, change) if found.equal else 0)
    except (ExecutionError, OutOfMemoryError) as error:
        return _untried(str(error))
    if not found.equal and not found.as_plain_varies:
        raise SolverError(
            f"the policy is not written, since a step with it differs from plain PyTorch:\n{found}\nTake a larger "
            "budget, or train with remat_explorer.rematerialize, which needs none"
        )
    if peak <= budget:
        return ""
    return (
        f"a step with the policy took {format_bytes(peak)} here, more than the budget of {format_bytes(budget)}: plain "
        "PyTorch holds more than was traced, such as casts that autocast keeps. Take a smaller budget"
    )


def _untried(reason: str) -> str:
    return f"the policy was not tried on the model before it was written: {reason}"


def _compared(training: Eager, placed: Placement, change: ModelChange) -> Comparison:
    """A step with a change of the model beside plain PyTorch's, which runs again where they differ."""
    start = InitialState(training, placed.device)
    buffers = {name: buffer.detach().to("cpu", copy=True) for name, buffer in placed.model.named_buffers()}

    def final(changed: ModelChange = contextlib.nullcontext) -> FinalState:
        start.rewind()
        return FinalState(training.run(changed).copied(), start.states())

    with training.explained():
        plain = final()
    try:
        found = compare(final(change), plain, buffers)
    except Exception as error:  # whatever PyTorch or the loader says of a checkpoint that does not hold
        raise SolverError(
            f"the policy is not written, since a step with it fails: {first_line(error)}. Take a larger budget, or "
            "train with remat_explorer.rematerialize, which needs none"
        ) from error
    if found.equal:
        return found
    return dataclasses.replace(found, varying=compare(final(), plain, buffers).differences)


def _peak(training: Eager, placed: Placement, change: ModelChange) -> int:
    """The peak of a step that ran before, in bytes, without what is there before it."""
    training.reset()
    meter = memory_meter(placed.device)
    with training.prepared(change) as run, meter, meter.section():
        run()
    return max(reading.highest for reading in meter.readings)


@contextlib.contextmanager
def _with_policy(model: nn.Module, regions: list[dict[str, Any]]) -> Iterator[None]:
    """The checkpoints of a policy, for a while."""
    with contextlib.ExitStack() as stack:
        for region in regions:
            module = policy_loader.find_module(model, region["module"])
            stack.enter_context(_forward_set(module, module.forward))
        policy_loader.put_checkpoints(model, regions)
        yield


@contextlib.contextmanager
def _runnable_step(graph: Graph) -> Iterator[tuple[Eager, Placement]]:
    """The step that a graph was captured from, in plain PyTorch; an ExecutionError if it cannot run here."""
    example: Example = graph.example
    home = model_device(example.model, example.args, example.kwargs)
    if graph.options is not None and graph.options.kernels is not None and home.type != "cuda":
        raise ExecutionError("it was captured for the kernels of CUDA, and the model is not on such a device")
    more, free = replay(region_plan(graph, []))[1] - graph.resident_bytes, free_bytes(str(home))
    if more > free:
        raise ExecutionError(
            f"plain PyTorch, with which it is compared, takes {format_bytes(more)} beside what is there already, and "
            f"{format_bytes(free)} are free"
        )
    with (
        example.as_captured(),
        exact_kernels(),
        torch.random.fork_rng([home] if home.type == "cuda" else []),
        warnings.catch_warnings(action="ignore"),
    ):
        placed = place(example.model, example.args, example.kwargs, None)
        yield Eager(placed, example.loss), placed


def _is_without_content(example: Example) -> bool:
    tensors = (*example.model.parameters(), *example.model.buffers(), *tensors_in((example.args, example.kwargs)))
    return any(isinstance(tensor, FakeTensor) or tensor.device.type == "meta" for tensor in tensors)


def _run_without_content(example: Example) -> None:
    """The forward pass on FakeTensors; what lies on the meta device is taken for the CPU's."""

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        device = "cpu" if tensor.device.type == "meta" else tensor.device
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)

    step = TrainingStep(example.model, example.args, example.kwargs, example.loss)
    with fake_tensor_mode(), torch.random.fork_rng([]):
        step.hold(fake)
        leaves = step.leaves(tuple(fake(tensor) for tensor in tensors_in((example.args, example.kwargs))))
        with substitute_tensors(example.model, {id(own): held for own, held in step.stand_ins()}):
            step.results_of(unwrap(example.model), leaves)


@contextlib.contextmanager
def _without_cache(model: nn.Module) -> Iterator[None]:
    """Without keys and values kept for later, which a module that runs again would keep again."""
    config = getattr(model, "config", None)
    kept = getattr(config, "use_cache", False)
    if kept:
        config.use_cache = False  # type: ignore[union-attr]
    try:
        yield
    finally:
        if kept:
            config.use_cache = kept  # type: ignore[union-attr]


class _Observation(TorchDispatchMode):
    """Records the calls of modules, and what is written over later."""

    def __init__(self, model: nn.Module, paths: Sequence[str]) -> None:
        super().__init__()
        self._model, self._paths = model, paths
        self._within: list[str] = []
        self._calls: dict[str, list[ObservedCall]] = {}
        self._changed: dict[str, bool] = {}
        self._wrote: dict[int, list[ObservedCall]] = {}  # calls whose results lie in a storage

    def found(self) -> dict[str, ObservedModule]:
        """What each module did, by its path."""
        return {
            path: ObservedModule(tuple(calls), self._changed[path])
            for path, calls in self._calls.items()
            if path in self._changed
        }

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Meanwhile the model is observed."""
        with contextlib.ExitStack() as stack:
            for path in self._paths:
                with contextlib.suppress(ValueError, AttributeError, RuntimeError):  # not there, or it takes no other
                    module = policy_loader.find_module(self._model, path)
                    run = functools.partial(self._run, path, module.forward, module)
                    stack.enter_context(_forward_set(module, run))
            stack.enter_context(self)
            yield

    def _run(self, path: str, forward: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if path in self._calls:  # once more, as in a checkpoint of the person's own
            return forward(*args, **kwargs)
        self._calls[path] = []
        self._within.append(path)
        before = _state_of(self._model, module)
        try:
            result = forward(*args, **kwargs)
        finally:
            self._within.remove(path)
        self._changed[path] = before != _state_of(self._model, module)
        return result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        read = {_storage(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        in_place = policy_loader.is_in_place(func)
        call = ObservedCall(policy_loader.name_of(func), policy_loader.has_gradient((args, kwargs)), not in_place)
        result = func(*args, **kwargs)
        if in_place:
            for place, argument in enumerate(func._schema.arguments):
                written = args[place] if place < len(args) else kwargs.get(argument.name)
                if argument.is_write and isinstance(written, torch.Tensor):
                    for earlier in self._wrote.get(_storage(written), ()):
                        earlier.is_savable = False
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                kept = self._wrote.get(_storage(leaf), []) if _storage(leaf) in read else []
                self._wrote[_storage(leaf)] = [*kept, call]
        for path in self._within:
            self._calls[path].append(call)
        return result


def _storage(tensor: torch.Tensor) -> int:
    """What tells storages apart while they live; views of one have the same."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # sparse tensors and subclasses have none
        return -id(tensor)


def _state_of(model: nn.Module, module: nn.Module) -> list[Any]:
    """What a pass of ``module`` may change for good: buffers of the model, its own numbers, texts, containers."""
    state: list[Any] = [(id(one), -1 if one.is_inference() else one._version) for one in model.buffers()]
    for part in module.modules():
        for value in vars(part).values():
            if isinstance(value, bool | int | float | str):
                state.append(value)
            elif isinstance(value, list | dict | set):
                state.append(len(value))
    return state


@contextlib.contextmanager
def _forward_set(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Another forward for a while."""
    before = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        vars(module).pop("forward", None)
        if before is not None:
            vars(module)["forward"] = before

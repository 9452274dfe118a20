"""One training step as one function: from parameters, buffers and inputs to what backward starts from.

`TrainingStep` runs the person's own model with other tensors (`substitute_tensors`), and leaves it as it was. An
`Example` is the step that a graph was captured from, so that what is made of the graph can be tried on it.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from remat_explorer.capture.attributes import AttributeReads, AttributeSnapshot, Changes, InputSnapshot, Place
from remat_explorer.capture.autocast import Autocast, use_cast_cache
from remat_explorer.capture.inputs_and_outputs import Loss, OutputStructure, map_tensors, results_of_output, tensors_in
from remat_explorer.capture.parameter_guard import ParameterGuard
from remat_explorer.capture.sharding import remove_gather_hooks
from remat_explorer.capture.snapshots import ABSENT
from remat_explorer.capture.variables import Variable, reachable_variables
from remat_explorer.errors import CaptureError

_CONTAINERS = (list, dict, set, OrderedDict, defaultdict, deque)
_REGISTRIES = ("_parameters", "_buffers", "_modules")


@contextlib.contextmanager
def restore_afterwards(model: nn.Module) -> Iterator[None]:
    """Undo every change of attributes, and of containers held by attributes, in ``model`` and its parts.

    Hooks are such dictionaries: a library may add its own in the first pass, and note on an attribute that it has.

    A forward pass may keep an output or fill a cache. While it is traced, those are tensors without content, which
    neither a second pass nor the person may find there. The contents of tensors are not looked after.
    """
    saved = [(module, dict(module.__dict__)) for module in model.modules()]
    contents: list[tuple[Any, Any]] = []
    for _, attributes in saved:
        contents += [(value, value.copy()) for value in attributes.values() if type(value) in _CONTAINERS]
        contents += [(attributes[name], attributes[name].copy()) for name in _REGISTRIES]
    try:
        yield
    finally:
        for module, attributes in saved:
            module.__dict__.clear()
            module.__dict__.update(attributes)
        for value, content in contents:
            value.clear()
            value.extend(content) if isinstance(value, list | deque) else value.update(content)


@contextlib.contextmanager
def substitute_tensors(model: nn.Module, tensors: dict[int, torch.Tensor]) -> Iterator[None]:
    """Let ``model`` run with ``tensors`` in place of its own parameters and buffers, and leave it as it was.

    Hooks that would gather sharded parameters do not run; what stands for such a parameter is all of it.
    A tensor that has several names, or whose module has, is replaced in every place. A buffer that the model assigns
    anew is written into the given tensor, as an assignment in place would do.

    Args:
        model: any module.
        tensors: by the identity of the tensor that each stands for.

    Raises:
        CaptureError: if a buffer is assigned anew with another shape or type.
    """
    with restore_afterwards(model):
        remove_gather_hooks(model)
        for module in model.modules():
            registry: dict[str, Any]
            for registry in (module._parameters, module._buffers):
                registry.update({name: tensors[id(t)] for name, t in registry.items() if t is not None})
            if isinstance(module, nn.RNNBase):  # keeps a second list of its weights
                weights = [getattr(module, name, None) for name in module._flat_weights_names]
                references = [weight if weight is None else weakref.ref(weight) for weight in weights]
                module._flat_weights, module._flat_weight_refs = weights, references  # or it would notice
        substituted = dict(model.named_buffers(remove_duplicate=False))
        yield
        for path, buffer in model.named_buffers(remove_duplicate=False):
            if path in substituted and buffer is not substituted[path]:
                _write_back(path, buffer, substituted[path])


def _write_back(path: str, new: torch.Tensor, before: torch.Tensor) -> None:
    if (new.shape, new.dtype) != (before.shape, before.dtype):
        raise CaptureError(
            f"the buffer {path!r} is {before.dtype} of shape {list(before.shape)} before the forward pass, and "
            f"{new.dtype} of shape {list(new.shape)} after it: it must keep both. If the model makes it in its first "
            "pass, run one pass before, on inputs of this size"
        )
    with torch.no_grad():
        before.copy_(new)


_PLAIN_TENSORS = torch.Tensor, nn.Parameter, FunctionalTensor
_OF_TRACE: dict[str, Any] = dict.fromkeys(["elem"])
_IN_BACKWARD = "a custom function or gradient hook"


def unwrap(model: nn.Module) -> nn.Module:
    """The module inside data-parallel wrappers, which add nothing on one device.

    >>> unwrap(nn.DataParallel(nn.ReLU()))
    ReLU()
    """
    while isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        model = model.module
    return model


class TrainingStep(nn.Module):
    """A model and its loss as one module, from a flat list of tensors to the loss, or to the outputs where it has none.

    The step holds each parameter and buffer of the model once, however many names it has there, under a name of its
    own; the model runs with whatever the step holds. So a tied weight has one gradient, which autograd itself adds up,
    and nothing has to be copied to run the model with other tensors.

    Args:
        model: the model; its parameters and buffers are shared, not copied.
        args: positional inputs of the model, tensors or containers of tensors. Those that require a gradient get one.
        kwargs: keyword inputs.
        loss: from the model's output to a scalar tensor; None as in `remat_explorer.capture`.

    Attributes:
        names: for each tensor that the step holds, the first name that the model has for it.
        differentiated: the places of the input tensors that get a gradient.
        returned: how the results lie in what the model returns; known once the step has run.
        reads: which attributes the model was asked for, where that was recorded.
        changes: which attributes, variables and inputs the model has changed in the last pass that was traced.
        variables: what the code of model and loss reaches outside of the model.
        surroundings: what the model runs in, beside autocast.
        is_in_forward: whether the forward pass runs now, in a trace.
        note: told of tensors that forward makes in a trace.

    >>> layer = nn.Linear(2, 2, bias=False)
    >>> step = TrainingStep(nn.Sequential(layer, layer), (torch.ones(1, 2),))
    >>> step.names
    {'parameter_0': '0.weight'}
    """

    def __init__(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, loss: Loss | None = None
    ) -> None:
        super().__init__()
        self._parts = (model, loss)  # in a tuple: neither may become a child with parameters
        self._inputs = (tuple(args), dict(kwargs or {}))
        self.differentiated = frozenset(i for i, t in enumerate(tensors_in(self._inputs)) if t.requires_grad)
        self._autocast = Autocast.ambient()
        self.names: dict[str, str] = {}
        self._stands_for: dict[str, torch.Tensor] = {}
        for number, (name, parameter) in enumerate(model.named_parameters()):
            self.register_parameter(f"parameter_{number}", parameter)
            self.names[f"parameter_{number}"] = name
        for number, (name, buffer) in enumerate(model.named_buffers()):
            self.register_buffer(f"buffer_{number}", buffer)
            self.names[f"buffer_{number}"] = name
        self._stands_for = {**self._parameters, **self._buffers}  # type: ignore[dict-item]
        self.training = model.training
        self.returned: OutputStructure | None = None
        self.changes: Changes = {}
        self._changes_of_inputs: Changes = {}
        self._moved: set[Place] = set()  # what any pass has changed
        self.variables, names, classes = reachable_variables(model, loss)
        self.reads = AttributeReads(model, self.variables, names, classes)
        self.surroundings: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
        self._modes: tuple[contextlib.AbstractContextManager[object], ...] = ()
        self.is_in_forward = False
        self.note: Callable[[torch.Tensor], None] = lambda tensor: None
        self._substituted: list[tuple[torch.Tensor, torch.Tensor]] = []  # by the last forward pass

    @property
    def model(self) -> nn.Module:
        """The person's own model."""
        return self._parts[0]

    def hold(self, choose: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Hold what ``choose`` gives for each tensor; the model keeps its own.

        A parameter stays a parameter and requires a gradient as before.
        """
        for name, parameter in self._parameters.items():
            assert parameter is not None
            if (chosen := choose(parameter)) is not parameter:
                self._parameters[name] = nn.Parameter(chosen.detach(), parameter.requires_grad)
        for name, buffer in self._buffers.items():
            assert buffer is not None
            self._buffers[name] = choose(buffer)

    @contextlib.contextmanager
    def within(self, *modes: contextlib.AbstractContextManager[object]) -> Iterator[None]:
        """Meanwhile model and loss run within ``modes``, of torch for example, and nothing else does."""
        before, self._modes = self._modes, modes
        try:
            yield
        finally:
            self._modes = before

    def stand_ins(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each parameter and buffer of the model, and what the step holds for it."""
        held = {**self._parameters, **self._buffers}
        return [(own, held[name]) for name, own in self._stands_for.items()]  # type: ignore[misc]

    def aliases(self) -> dict[str, str]:
        """For every name in the model, of one tensor possibly several, the step's own name."""
        own = {id(tensor): name for name, tensor in self._stands_for.items()}
        model = unwrap(self.model)
        everything = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        return {path: own[id(tensor)] for path, tensor in everything}

    def tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> tuple[torch.Tensor, ...]:
        """The tensors among the inputs, detached, in the order that `forward` takes them.

        Raises:
            CaptureError: if these inputs are nested differently from those of the constructor, or have other shapes.
        """
        given = (tuple(args), dict(kwargs or {}))
        expected, actual = pytree.tree_structure(self._inputs), pytree.tree_structure(given)
        if expected != actual:
            raise CaptureError(f"the inputs are nested as {actual}, but the model was captured with {expected}")
        tensors = tensors_in(given)
        for number, (mine, theirs) in enumerate(zip(tensors_in(self._inputs), tensors, strict=True)):
            if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
                raise CaptureError(
                    f"input tensor {number} is {theirs.dtype} of shape {list(theirs.shape)}, but the model was "
                    f"captured with {mine.dtype} of shape {list(mine.shape)}; shapes are static: capture it again"
                )
        return detached_inputs(args, kwargs)

    def leaves(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """What `tensors` gave, or FakeTensors in place of it, as leaves of autograd that require a gradient if the
        inputs do.
        """
        wanted = self.differentiated
        return tuple(t.detach().requires_grad_() if place in wanted else t for place, t in enumerate(tensors))

    @contextlib.contextmanager
    def substituted_in_backward(self) -> Iterator[None]:
        """Meanwhile the backward pass of a trace, `torch.autograd.grad`, finds in the model what `forward` found there.

        Custom functions and gradient hooks may run modules there, and differentiate with respect to parameters.
        """
        grad, thread = torch.autograd.grad, threading.get_ident()

        def grad_of_trace(*args: Any, **kwargs: Any) -> Any:
            if not self._substituted or threading.get_ident() != thread:  # of another thread, or within either pass
                return grad(*args, **kwargs)
            substituted, self._substituted = self._substituted, []
            model = unwrap(self.model)
            with substitute_tensors(self.model, {id(own): held for own, held in substituted}):
                attributes, guard = AttributeSnapshot(model), ParameterGuard(model, _IN_BACKWARD)
                written = _TensorAttributes([tensor for pair in substituted for tensor in pair], _IN_BACKWARD)
                with guard.watching_gradients():
                    gradients = grad(*args, **kwargs)
                guard.require_unexchanged()
                written.require_none_new(())
                for path, name in attributes.changes().keys() - self.changes:  # what runs again may do so again
                    raise CaptureError(
                        f"{_IN_BACKWARD} changes the attribute {name!r} of {repr(path) if path else 'the model'}, "
                        "which no step by a plan would do; change it in forward, or between steps; what is filled "
                        "once, as caches are, can be filled before by one step in plain PyTorch"
                    )
            return gradients

        before = [(parameter, parameter.grad) for parameter in self.model.parameters()]
        torch.autograd.grad = grad_of_trace
        try:
            yield
        finally:
            torch.autograd.grad, self._substituted = grad, []
            for parameter, gradient in before:
                if parameter.grad is not gradient:  # of the trace
                    parameter.grad = gradient

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self._substituted = []
        substituted = self.stand_ins()
        with substitute_tensors(self.model, {id(own): held for own, held in substituted}):
            results = self.results_without_changes(unwrap(self.model), tensors)
        self._substituted = substituted
        return results

    def results_without_changes(self, model: nn.Module, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """The same as `results_of`; what it changes in attributes is noted in ``changes``, and undone."""
        attributes, guard = AttributeSnapshot(model, self.variables), ParameterGuard(model, note=self.note)
        self.is_in_forward = True
        try:
            with guard:
                results = self.results_of(model, tensors)
            guard.require_unexchanged()
            self.changes = {**attributes.changes(), **self._changes_of_inputs}
            self._moved |= self.changes.keys()
            return results
        finally:
            self.is_in_forward = False
            attributes.restore()

    @contextlib.contextmanager
    def restore_afterwards(self) -> Iterator[None]:
        """Leave attributes, variables and every ``.grad`` as they were, also those that the backward pass changes."""
        inputs = ((f"input {place}", tensor) for place, tensor in enumerate(tensors_in(self._inputs)))
        tensors = [*self._stands_for.items(), *self.named_parameters(), *inputs]
        self._gradients = [(name, tensor, tensor.grad) for name, tensor in tensors if tensor.is_leaf]
        self._around = AttributeSnapshot(unwrap(self.model), self.variables)
        try:
            yield
        finally:
            self._around.restore()
            for _, tensor, gradient in self._gradients:
                if tensor.grad is not gradient:
                    tensor.grad = gradient

    def refuse_changes_of_backward(self) -> None:
        """Raise an error if attributes, variables or a ``.grad`` have changed, which forward alone does not leave so.

        Raises:
            CaptureError: with the first of them.
        """
        subject = f"{type(self.model).__name__} cannot be captured as a static training graph:"
        for name, tensor, gradient in self._gradients:
            if tensor.grad is not gradient:
                raise CaptureError(
                    f"{subject} its backward pass adds to .grad of {self.names.get(name, name)!r} itself, as "
                    "torch.autograd.backward in the backward of a custom Function does, which a plan cannot do. Take "
                    "gradients there by torch.autograd.grad, with parameters as inputs of the Function, and return them"
                )
        for (place, name), (_, after) in self._around.changes().items():
            if (place, name) in self._moved and (
                after.kind == "state" or after == self.changes.get((place, name), (ABSENT, ABSENT))[1]
            ):
                continue  # forward has done it, and nobody can put it back, such as an iterator
            at = f"of {place!r}" if place else "of the model"
            what = name if isinstance(place, Variable) else f"the attribute {name!r} {at}"
            raise CaptureError(
                f"{subject} a hook on its backward pass, or the backward of a custom Function, changes {what}, and a "
                "plan does not run it again. Take gradients from .grad, and count in the training loop; what is filled "
                "once, as caches are, can be filled before by one step in plain PyTorch"
            )

    def results_of(self, model: nn.Module, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Loss or outputs of ``model`` as it is, for inputs in the order that `tensors` gives."""
        remaining = iter(tensors)
        args, kwargs = map_tensors(lambda _: next(remaining), self._inputs)
        with (
            self._autocast.on(),
            _without_compilation(),
            torch.enable_grad(),
            use_cast_cache(model),
            _with_own_parametrizations(),
        ):
            loss, given = self._parts[1], [*tensors, *model.parameters(), *model.buffers()]
            inputs, written = InputSnapshot(model, args, kwargs), _TensorAttributes(given)
            try:
                with self.reads.calling(), self.surroundings(), contextlib.ExitStack() as stack:
                    for mode in self._modes:
                        stack.enter_context(mode)
                    output = model(*args, **kwargs)
                    written.require_none_new(tensors_in(output))
                    results, self.returned = results_of_output(output, loss, given)
                self._changes_of_inputs = inputs.changes(output, self.returned.filled(results))
            finally:
                inputs.restore()
            return results


class _TensorAttributes:
    """What ``doer`` writes on tensors that outlive it, as ``y.aux = ...`` and ``y.retain_grad()`` do."""

    def __init__(self, known: Sequence[torch.Tensor], doer: str = "forward") -> None:
        self._doer = doer
        self._known = [(tensor, dict(vars(tensor))) for tensor in known]

    def require_none_new(self, returned: Sequence[torch.Tensor]) -> None:
        """Raises a `CaptureError` with the first that was written."""
        advice = "which a plan would not write: return it from forward, or keep it in an attribute of the model"
        if self._doer == _IN_BACKWARD:
            advice = "which a plan would not write: take gradients from .grad, or by a hook on the parameter itself"
        known = {id(tensor) for tensor, _ in self._known}
        new = [(tensor, _OF_TRACE) for tensor in returned if id(tensor) not in known and type(tensor) in _PLAIN_TENSORS]
        for tensor, before in [*self._known, *new]:
            for name, value in vars(tensor).items():
                if name not in before or (before is not _OF_TRACE and value is not before[name]):
                    raise CaptureError(
                        f"{self._doer} writes the attribute {name!r} on a tensor of shape {list(tensor.shape)}, "
                        f"{advice}"
                    )
        for tensor, _ in new:
            if tensor.retains_grad and not tensor.is_leaf:
                raise CaptureError(
                    f"forward calls retain_grad() on a tensor of shape {list(tensor.shape)} that it returns, and a "
                    "plan would not; call it on what the model returns"
                )


def detached_inputs(args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> tuple[torch.Tensor, ...]:
    """The tensors among a model's inputs, detached, in the order that `TrainingStep.forward` takes them."""
    with torch.inference_mode(False):  # what inference mode made can take no part in training, but a copy can
        return tuple(t.clone() if t.is_inference() else t.detach() for t in tensors_in((tuple(args), kwargs or {})))


@contextlib.contextmanager
def _with_own_parametrizations() -> Iterator[None]:
    """Neither take parametrized weights that the person's `parametrize.cached` keeps, nor leave some there."""
    before, parametrize._cache = parametrize._cache, {}
    try:
        yield
    finally:
        parametrize._cache = before


@contextlib.contextmanager
def _without_compilation() -> Iterator[None]:
    """Run what `torch.compile` wraps as plain PyTorch."""
    with torch.compiler.set_stance("force_eager"):
        yield


@dataclass(frozen=True, eq=False)
class Example:
    """A model with its inputs and loss, and how it was set when its graph was captured.

    A graph keeps it as long as it lives, where each call of PyTorch is an operation. It is neither copied nor pickled.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss: Loss | None
    autocast: Autocast
    training: tuple[bool, ...]
    trained: tuple[bool, ...]

    @staticmethod
    def of(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None, loss: Loss | None) -> Example:
        """The example of a capture that is done now."""
        return Example(
            model,
            tuple(args),
            dict(kwargs or {}),
            loss,
            Autocast.ambient(),
            tuple(module.training for module in model.modules()),
            tuple(parameter.requires_grad for parameter in model.parameters()),
        )

    @contextlib.contextmanager
    def as_captured(self) -> Iterator[None]:
        """Meanwhile training mode, frozen parameters and autocast are as they were; the model is left as it is."""
        parameters = list(self.model.parameters())
        before = [parameter.requires_grad for parameter in parameters]
        with restore_afterwards(self.model), self.autocast.on():
            for module, training in zip(self.model.modules(), self.training, strict=False):
                module.training = training
            for parameter, trained in zip(parameters, self.trained, strict=False):
                parameter.requires_grad_(trained)
            try:
                yield
            finally:
                for parameter, trained in zip(parameters, before, strict=True):
                    parameter.requires_grad_(trained)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()

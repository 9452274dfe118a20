"""What a plan was made for, apart from the model: inputs, how they were passed, autocast, and settings of PyTorch.

`Signature` is compared in every step. By `CallingConvention` a call by position and one by name can be the same call.
`ExampleInputs` are those before the first step, adapted to what a training loop passes; `counts_to_tensors` keeps
numbers that loops count anew from being constants.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as global_hooks
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from remat_explorer.capture import Autocast, map_leaves
from remat_explorer.errors import ExecutionError

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape, type, device and strides of a tensor, and whether it requires a gradient."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    strides: tuple[int, ...]
    gradient: bool = False

    @staticmethod
    def of(tensor: torch.Tensor) -> Layout:
        """The layout of ``tensor``."""
        return Layout(tuple(tensor.shape), tensor.dtype, tensor.device, tensor.stride(), tensor.requires_grad)

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        end = ", which requires a gradient" if self.gradient else ""
        return f"{dtype} of shape {list(self.shape)} with strides {list(self.strides)} on {self.device}{end}"


@dataclass(frozen=True)
class Signature:
    """What a static plan depends on besides the model; equal signatures can share a plan."""

    nesting: tuple[Any, ...]  # containers of the inputs
    leaves: tuple[Any, ...]  # `Layout` of each input tensor, and every other input as it is
    autocast: Autocast
    settings: dict[str, Any]  # those of PyTorch that decide which numbers come out
    hooks: tuple[Any, ...]  # for all modules

    @staticmethod
    def of(args: tuple[Any, ...], kwargs: dict[str, Any], model: nn.Module | None = None) -> Signature:
        """The signature of a call of ``model``; without it, that of its inputs."""
        nesting: list[Any] = []
        leaves: list[Any] = []
        _flatten((args, kwargs), nesting, leaves)
        shares = model is not None and shares_parametrizations(model)
        settings = {**current_settings(), "torch.nn.utils.parametrize.cached()": "on" if shares else "off"}
        return Signature(tuple(nesting), tuple(leaves), Autocast.ambient(), settings, _hooks_of_all())

    def matches(self, other: Signature) -> bool:
        """Whether a plan for one serves the other."""
        return self.takes(other) and self.surroundings == other.surroundings

    def takes(self, other: Signature) -> bool:
        """Whether the inputs of ``other`` are like those of this one."""
        return (
            self.nesting == other.nesting
            and len(self.leaves) == len(other.leaves)
            and all(map(is_same_leaf, self.leaves, other.leaves))
        )

    def serves_with_fewer(self, other: Signature) -> bool:
        """Whether a plan for this one computes what the other one wants, and gradients of inputs beyond that."""
        return (
            self.nesting == other.nesting
            and len(self.leaves) == len(other.leaves)
            and all(map(serves_leaf, self.leaves, other.leaves))
            and self.surroundings == other.surroundings
        )

    def wants_less_than(self, other: Signature) -> bool:
        """Whether an input requires no gradient that does so in a plan for the other one."""
        return any(
            isinstance(mine, Layout) and isinstance(theirs, Layout) and theirs.gradient and not mine.gradient
            for mine, theirs in zip(self.leaves, other.leaves, strict=False)
        )

    @property
    def surroundings(self) -> tuple[Any, ...]:
        """What is neither the model's nor the inputs'."""
        return self.autocast, self.settings, self.hooks


def is_same_leaf(first: Any, second: Any) -> bool:
    """Whether two inputs, or their layouts, are alike."""
    try:
        return type(first) is type(second) and bool(first == second)
    except Exception:  # whatever comparing a person's own objects does
        return first is second


def serves_leaf(planned: Any, now: Any) -> bool:
    """Whether a plan for one input serves another: one that is alike, and that may do without its gradient."""
    if isinstance(planned, Layout) and isinstance(now, Layout) and planned.gradient:
        return dataclasses.replace(now, gradient=True) == planned
    return is_same_leaf(planned, now)


def with_gradients_of(planned: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The same inputs, of which those require a gradient, too, that do so in another call, if they are alike in number.

    A plan for them serves both calls.
    """
    now = Signature.of(args, kwargs)
    if now.nesting != planned.nesting or not now.wants_less_than(planned):
        return args, kwargs
    leaves = iter(planned.leaves)

    def like_planned(leaf: Any) -> Any:
        other = next(leaves)
        if not (isinstance(leaf, torch.Tensor) and isinstance(other, Layout) and other.gradient):
            return leaf
        if leaf.requires_grad or not (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
        with torch.inference_mode(False):  # what inference mode made can require no gradient, but a copy can
            return (leaf.clone() if leaf.is_inference() else leaf.detach()).requires_grad_()

    return map_leaves(like_planned, (args, kwargs))


def differs_only_in_sizes(first: Any, second: Any) -> bool:
    """Whether one input serves as another, by `serves_leaf`, or if tensors differ in sizes and strides beyond that."""
    if not (isinstance(first, Layout) and isinstance(second, Layout)):
        return is_same_leaf(first, second)
    same = (first.dtype, first.device, len(first.shape)) == (second.dtype, second.device, len(second.shape))
    return same and first.gradient >= second.gradient


def current_settings() -> dict[str, Any]:
    """The settings of PyTorch that change numbers, or the kernels that compute them.

    The number of threads is left out, since it changes neither the graph nor its schedule.
    """
    backends: Any = torch.backends
    return {
        "torch.get_default_dtype()": torch.get_default_dtype(),
        "torch.get_default_device()": torch.get_default_device(),
        "torch.get_float32_matmul_precision()": _matmul_precision(),
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "torch.backends.mkldnn.enabled": backends.mkldnn.enabled,
        "torch.backends.cudnn.enabled": backends.cudnn.enabled,
        "torch.backends.cudnn.conv.fp32_precision": backends.cudnn.conv.fp32_precision,
        "torch.backends.cuda.matmul.fp32_precision": backends.cuda.matmul.fp32_precision,
        "torch.backends.mkldnn.matmul.fp32_precision": backends.mkldnn.matmul.fp32_precision,
        "torch.backends.mkldnn.conv.fp32_precision": backends.mkldnn.conv.fp32_precision,
        "torch.backends.mkldnn.rnn.fp32_precision": backends.mkldnn.rnn.fp32_precision,
        "torch.backends.cuda.flash_sdp_enabled()": backends.cuda.flash_sdp_enabled(),
        "torch.backends.cuda.mem_efficient_sdp_enabled()": backends.cuda.mem_efficient_sdp_enabled(),
        "torch.backends.cuda.math_sdp_enabled()": backends.cuda.math_sdp_enabled(),
        "torch.backends.cuda.cudnn_sdp_enabled()": backends.cuda.cudnn_sdp_enabled(),
        "torch.backends.opt_einsum.strategy": _einsum_strategy(),
    }


def shares_parametrizations(model: nn.Module) -> bool:
    """Whether `torch.nn.utils.parametrize.cached` is on, and ``model`` has anything that it keeps."""
    return bool(parametrize._cache_enabled) and any(map(parametrize.is_parametrized, model.modules()))


def _matmul_precision() -> str:
    """PyTorch refuses to tell it where precisions were set backend by backend."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "that of each backend"


def _einsum_strategy() -> str | None:
    """In which order `torch.einsum` multiplies several tensors."""
    einsum: Any = torch.backends.opt_einsum
    return einsum.strategy if einsum.is_available() and einsum.enabled else None


def _hooks_of_all() -> tuple[Any, ...]:
    kinds = ("forward", "forward_pre", "backward", "backward_pre")
    return tuple(hook for kind in kinds for hook in getattr(global_hooks, f"_global_{kind}_hooks").values())


def _flatten(nested: Any, nesting: list[Any], leaves: list[Any]) -> None:
    """As `torch.utils._pytree`, but dataclasses are opened, too."""
    flat, structure = pytree.tree_flatten(nested)
    nesting.append(structure)
    for leaf in flat:
        if isinstance(leaf, torch.Tensor):
            leaves.append(Layout.of(leaf))
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            names = [field.name for field in dataclasses.fields(leaf) if hasattr(leaf, field.name)]
            nesting.append((type(leaf), tuple(names)))
            for name in names:
                _flatten(getattr(leaf, name), nesting, leaves)
        else:
            leaves.append(leaf)


@dataclass(frozen=True)
class CallingConvention:
    """How a model was called: how many inputs came by position, and the names of the others."""

    parameters: inspect.Signature | None  # those of forward; None where Python does not know them
    count: int
    named: tuple[str, ...]  # parameters of the inputs by position; fewer where forward takes *args
    keys: tuple[str, ...]

    @staticmethod
    def of(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallingConvention:
        """How ``model`` is called with these inputs."""
        try:
            parameters = inspect.signature(model.forward)
        except (TypeError, ValueError):  # not every callable has one
            return CallingConvention(None, len(args), (), tuple(kwargs))
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [name for name, parameter in parameters.parameters.items() if parameter.kind in kinds]
        return CallingConvention(parameters, len(args), tuple(names[: len(args)]), tuple(kwargs))

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same inputs, by position or by name as in the call that this one is about.

        What is left out has its default, and what that call did not give is given by name. Inputs that cannot be given
        in that way come back as they are. An ExecutionError if one is missing, or forward does not take it.
        """
        if self.parameters is None or (len(args), tuple(kwargs)) == (self.count, self.keys):
            return args, kwargs
        try:
            bound = self.parameters.bind(*args, **kwargs)
        except TypeError as error:
            names = self.parameters.replace(return_annotation=inspect.Signature.empty)
            raise ExecutionError(f"forward takes {names}, which does not fit the inputs: {error}") from None
        passed = {*bound.arguments, *kwargs}
        bound.apply_defaults()
        given: dict[str, Any] = dict(bound.arguments)
        rest: tuple[Any, ...] = ()
        kinds = {name: parameter.kind for name, parameter in self.parameters.parameters.items()}
        for name, kind in kinds.items():
            if kind is inspect.Parameter.VAR_POSITIONAL:
                rest = given.pop(name)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                given |= given.pop(name)
        wanted = (*self.named, *self.keys)
        defaults = {name: p.default for name, p in self.parameters.parameters.items()}
        beyond = [name for name in given if name not in wanted and given[name] is not defaults.get(name, given)]
        if any(kinds.get(name) is inspect.Parameter.POSITIONAL_ONLY for name in beyond):
            return args, kwargs
        if len(rest) != self.count - len(self.named) or not all(name in given for name in wanted):
            return args, kwargs
        keys = [*(name for name in self.keys if name in passed), *beyond] if beyond else self.keys
        return (*(given[name] for name in self.named), *rest), {name: given[name] for name in keys}


def paths_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """What to call each tensor or other value among the inputs, in the order of `Signature.leaves`.

    >>> paths_of((1, {"a": [2, 3]}), {"mask": 4})
    ['input 0', "input 1['a'][0]", "input 1['a'][1]", "input 'mask'"]
    """
    named = [*((f"input {i}", held) for i, held in enumerate(args)), *((f"input {n!r}", h) for n, h in kwargs.items())]
    return [path for name, held in named for path in _paths(name, held)]


def _paths(name: str, nested: Any) -> list[str]:
    found: list[str] = []
    for keys, leaf in pytree.tree_flatten_with_path(nested)[0]:
        place = name + pytree.keystr(keys)
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type | torch.Tensor):
            fields = [field.name for field in dataclasses.fields(leaf) if hasattr(leaf, field.name)]
            found += [path for field in fields for path in _paths(f"{place}.{field}", getattr(leaf, field))]
        else:
            found.append(place)
    return found


COUNT_INPUTS = ("num_items_in_batch",)


def counts_to_tensors(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The inputs by name, with a tensor in place of a number that loops count anew for every step.

    A number would be a constant of the plan. ``num_items_in_batch`` is how many labels the loss of a transformers model
    is divided by; some versions of its Trainer pass a number, others a tensor.
    """
    if not any(type(kwargs.get(name)) is int for name in COUNT_INPUTS):
        return kwargs
    return {
        n: torch.tensor(given) if n in COUNT_INPUTS and type(given) is int else given for n, given in kwargs.items()
    }


@dataclass(frozen=True, eq=False)
class ExampleInputs:
    """Inputs that were given before the first step, as large as they get."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    signature: Signature
    paths: tuple[str, ...]

    @staticmethod
    def of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExampleInputs:
        """The example of a call."""
        return ExampleInputs(args, kwargs, Signature.of(args, kwargs), tuple(paths_of(args, kwargs)))

    def adapt_to_loop(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """The inputs to plan for in a first step with these inputs: as large as the example's, as the loop has them.

        A loop may add inputs by name, leave some out, and pass a number in another type. None where the inputs differ
        in more than that and in sizes.
        """
        now = Signature.of(args, kwargs)
        then, leaves = self._by_path(), dict(zip(paths_of(args, kwargs), now.leaves, strict=True))
        alone = set(map(_input, then)) ^ set(map(_input, leaves))
        whole = all(_input(path) in alone and "'" in _input(path) for path in then.keys() ^ leaves.keys())
        pairs = [(then[path], leaves[path]) for path in then.keys() & leaves.keys()]
        others = [pair for pair in pairs if not all(map(_is_number, pair))]
        if not (whole and pairs and all(differs_only_in_sizes(*pair) for pair in others)):
            return None
        if all(is_same_leaf(*pair) for pair in others):
            return args, kwargs
        return self.args, {name: self._or(name, given) for name, given in kwargs.items()}

    def _or(self, name: str, given: Any) -> Any:
        is_number = isinstance(given, torch.Tensor) and given.dim() == 0
        return given if is_number else self.kwargs.get(name, given)

    def _by_path(self) -> dict[str, Any]:
        return dict(zip(self.paths, self.signature.leaves, strict=True))


def _is_number(layout: Any) -> bool:
    return isinstance(layout, Layout) and layout.shape == ()


def _input(path: str) -> str:
    """The input that a path leads into.

    >>> _input("input 'extra'['a'][1]"), _input("input 0.x")
    ("input 'extra'", 'input 0')
    """
    found = re.match(r"input (\d+|'\w+')", path)
    return found[0] if found else path

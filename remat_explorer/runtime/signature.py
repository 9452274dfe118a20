"""What a plan was made for, apart from the model: inputs, autocast, and settings of PyTorch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as global_hooks
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from remat_explorer.capture.autocast import Autocast
from remat_explorer.capture.inputs_and_outputs import map_leaves

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
    """What a static plan depends on besides the model; equal signatures can share a plan.

    Attributes:
        nesting: containers of the inputs.
        leaves: `Layout` of each input tensor, and every other input as it is.
        autocast: what was on.
        settings: settings of PyTorch that decide which numbers come out, by their names.
        hooks: hooks for all modules.
    """

    nesting: tuple[Any, ...]
    leaves: tuple[Any, ...]
    autocast: Autocast
    settings: dict[str, Any]
    hooks: tuple[Any, ...]

    @staticmethod
    def of(args: tuple[Any, ...], kwargs: dict[str, Any], model: nn.Module | None = None) -> Signature:
        """The signature of a call of ``model``; without it, that of its inputs.

        >>> first, second = (Signature.of((torch.ones(count, 3),), {}) for count in (2, 1))
        >>> first.matches(second), first.matches(Signature.of((torch.zeros(2, 3),), {}))
        (False, True)
        """
        nesting: list[Any] = []
        leaves: list[Any] = []
        _flatten((args, kwargs), nesting, leaves)
        shares = model is not None and shares_parametrizations(model)
        settings = {**settings_now(), "torch.nn.utils.parametrize.cached()": "on" if shares else "off"}
        return Signature(tuple(nesting), tuple(leaves), Autocast.ambient(), settings, _hooks_of_all())

    def matches(self, other: Signature) -> bool:
        """Whether a plan for one serves the other."""
        return self.takes(other) and self.surroundings == other.surroundings

    def takes(self, other: Signature) -> bool:
        """Whether the inputs of ``other`` are like those of this one."""
        return (
            self.nesting == other.nesting
            and len(self.leaves) == len(other.leaves)
            and all(map(same_leaf, self.leaves, other.leaves))
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


def same_leaf(first: Any, second: Any) -> bool:
    """Whether two inputs, or their layouts, are alike."""
    try:
        return type(first) is type(second) and bool(first == second)
    except Exception:  # whatever comparing a person's own objects does
        return first is second


def serves_leaf(planned: Any, now: Any) -> bool:
    """Whether a plan for one input serves another: one that is alike, and that may do without its gradient.

    >>> plain, trained = torch.ones(2), torch.ones(2, requires_grad=True)
    >>> serves_leaf(Layout.of(trained), Layout.of(plain)), serves_leaf(Layout.of(plain), Layout.of(trained))
    (True, False)
    """
    if isinstance(planned, Layout) and isinstance(now, Layout) and planned.gradient:
        return dataclasses.replace(now, gradient=True) == planned
    return same_leaf(planned, now)


def with_gradients_of(planned: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The same inputs, of which those require a gradient, too, that do so in another call, if they are alike in number.

    A plan for them serves both calls.

    >>> x = torch.ones(2)
    >>> (found,), _ = with_gradients_of(Signature.of((torch.ones(3, requires_grad=True),), {}), (x,), {})
    >>> found.requires_grad, found.data_ptr() == x.data_ptr(), x.requires_grad
    (True, True, False)
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


def alike_but_for_sizes(first: Any, second: Any) -> bool:
    """Whether one input serves as another, by `serves_leaf`, or if tensors differ in sizes and strides beyond that.

    >>> whole, part, flat = (Layout.of(torch.ones(*shape)) for shape in ((4, 3), (2, 3), (12,)))
    >>> alike_but_for_sizes(whole, part), alike_but_for_sizes(whole, flat), alike_but_for_sizes(3, 4)
    (True, False, False)
    """
    if not (isinstance(first, Layout) and isinstance(second, Layout)):
        return same_leaf(first, second)
    same = (first.dtype, first.device, len(first.shape)) == (second.dtype, second.device, len(second.shape))
    return same and first.gradient >= second.gradient


def settings_now() -> dict[str, Any]:
    """The settings of PyTorch that change numbers, or the kernels that compute them.

    The number of threads is left out, since it changes neither the graph nor its schedule.

    >>> settings_now()["torch.get_default_dtype()"]
    torch.float32
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

"""FakeTensors with the strides and the storage that kernels really give, where torch predicts others.

Torch describes many operators by Python code that computes the same numbers in another way. Shapes are right then, but
strides may not be, and where a kernel leaves its result in a larger storage (``mse_loss`` has its mean in the memory of
all squares), that does not show. Found by comparing every operator of some hundred models with its kernels (torch
2.13); what is not listed here, a profile finds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._prims_common import make_channels_last_strides_for, make_contiguous_strides_for, suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from remat_explorer.capture.cuda_operators import FUSED_CELLS
from remat_explorer.capture.cuda_target import SeenOnCuda
from remat_explorer.capture.fake_mode import fake_tensor_mode
from remat_explorer.capture.joint.recurrent_layers import RECURRENT_LAYERS
from remat_explorer.capture.joint.single_entries import with_strides_of_kernel

aten = torch.ops.aten
_HAS_OVERLAP: Any = torch._debug_has_internal_overlap  # type: ignore[reportPrivateImportUsage]
NO_REDUCTION = 0  # of a loss: one entry for each of the input
Layout = Callable[[torch.Tensor, Sequence[Any]], torch.Tensor]  # from a result and the arguments


def kernel_layouts(on_cuda: bool = False) -> FakeTensorMode:
    """A mode for FakeTensors that knows what kernels give, and lets real tensors in, such as parameters.

    It is no class of its own, since torch looks up what higher-order operators do by the class of a mode.

    Args:
        on_cuda: whether the tensors stand for those of a CUDA device that is not there.

    >>> with kernel_layouts():
    ...     y = torch.nn.functional.mse_loss(torch.ones(8, 8), torch.ones(8, 8))
    >>> y.shape, y.untyped_storage().nbytes()
    (torch.Size([]), 256)
    """
    mode = fake_tensor_mode()
    predicted = SeenOnCuda(mode.dispatch) if on_cuda else mode.dispatch

    def dispatch(func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func in _WRITTEN:
            with mode:
                return _WRITTEN[func](*args, **(kwargs or {}))
        result = predicted(func, types, args, kwargs or {})
        if not isinstance(result, torch.Tensor | tuple | list):
            return result  # such as the device of a tensor, which is asked for as often as operators are called
        layout = _LAYOUTS.get(func)
        if layout is None and func in _LAYOUTS_ON_CPU and args[0].device.type == "cpu" and not on_cuda:
            layout = _LAYOUTS_ON_CPU[func]
        if layout is None:
            return with_strides_of_kernel(mode, func, result, args, kwargs or {})
        with torch.no_grad(), mode:
            return pytree.tree_map_only(torch.Tensor, lambda tensor: layout(tensor, args), result)

    mode.dispatch = dispatch  # type: ignore[method-assign]
    return mode


def _in_format(result: torch.Tensor, args: Sequence[Any], form: torch.memory_format) -> torch.Tensor:
    """A new tensor without gaps in this format: ``result`` itself where it is one, which is nearly always."""
    if all(type(n) is int for n in (*result.shape, *result.stride(), result.storage_offset())):
        last = form in (torch.channels_last, torch.channels_last_3d)
        strides: Any = make_channels_last_strides_for if last else make_contiguous_strides_for
        storage = result.untyped_storage()
        if result.stride() == tuple(strides(result.shape)) and storage.nbytes() == result.nbytes:
            given = {part.untyped_storage()._cdata for part in args if isinstance(part, torch.Tensor)}
            if storage._cdata not in given:
                return result
    return torch.empty_like(result, memory_format=form)


def _contiguous(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    return _in_format(result, args, torch.contiguous_format)


def _contiguous_like(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """Contiguous where the first argument is, even where it could be said to have channels last; else as suggested."""
    return _contiguous(result, args) if args[0].is_contiguous() else _suggested(0)(result, args)


def _like(position: int) -> Layout:
    """Laid out as an argument: `torch.empty_like`."""
    return lambda result, args: torch.empty_like(args[position])


def _suggested(position: int) -> Layout:
    """In the memory format of an argument, without gaps."""

    def layout(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
        if result.dim() != args[position].dim():
            return result
        return _in_format(result, args, suggest_memory_format(args[position]))

    return layout


def _elementwise(*positions: int) -> Layout:
    """As an operation on these arguments, in this order, gives its result."""

    def layout(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
        first, *others = (args[position] for position in positions)
        for other in others:
            first = aten.add.Tensor(first, other)
        return first if first.dtype == result.dtype else torch.empty_like(first, dtype=result.dtype)

    return layout


def _reduced_in_place(reduction: int, *operands: int) -> Layout:
    """One number in the storage of what was added up, or what is not reduced.

    Args:
        reduction: position of the argument that says how entries are reduced; the mean (1) is the default.
        operands: positions of what the entries are computed from.
    """

    def layout(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
        if (args[reduction] if len(args) > reduction else 1) == NO_REDUCTION:
            return result if len(operands) > 1 else torch.empty_like(args[0])
        shape = torch.broadcast_shapes(*(args[position].shape for position in operands))
        return _in_storage_of(shape.numel() * result.element_size(), result)

    return layout


def _folded(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """`col2im` makes room for its input first, and that remains where it is larger."""
    return _in_storage_of(args[0].numel() * args[0].element_size(), result)


def _window(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """A periodic window, the default, is a longer symmetric one without the last entry."""
    periodic = args[1] if len(args) > 1 else True
    return _in_storage_of((result.numel() + 1) * result.element_size(), result) if periodic else result


def _all_of_storage(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """A copy of the whole storage of the first argument, whatever part of it the argument sees."""
    source = args[0]
    if _HAS_OVERLAP(source) == 1 or not source.untyped_storage().nbytes():
        return result
    return _in_storage_of(source.untyped_storage().nbytes(), source)


def _in_storage_of(size: int, like: torch.Tensor) -> torch.Tensor:
    """A tensor laid out as ``like`` is in a new storage of ``size`` bytes, or in a larger one where it has no room."""
    room = like.storage_offset() + sum((n - 1) * step for n, step in zip(like.shape, like.stride(), strict=True)) + 1
    made = torch.empty(max(size // like.element_size(), room), dtype=like.dtype, device=like.device)
    return made.as_strided_(like.shape, like.stride(), like.storage_offset())


_WRITTEN = {**RECURRENT_LAYERS, **FUSED_CELLS}
_LAYOUTS: dict[OpOverload, Layout] = {
    aten.mse_loss.default: _reduced_in_place(2, 0, 1),
    aten.smooth_l1_loss.default: _reduced_in_place(2, 0, 1),
    aten.soft_margin_loss.default: _reduced_in_place(2, 0, 1),
    aten.binary_cross_entropy.default: _reduced_in_place(3, 0),
    aten.binary_cross_entropy_backward.default: _like(1),
    aten.mse_loss_backward.default: _contiguous,
    aten.smooth_l1_loss_backward.default: _contiguous,
    aten.huber_loss_backward.default: _contiguous,
    aten.elu_backward.default: _elementwise(0, 5),
    aten.softplus_backward.default: _elementwise(0, 1),
    aten.hardswish_backward.default: _elementwise(0, 1),
    aten.hardsigmoid_backward.default: _elementwise(0, 1),
    aten.hardtanh_backward.default: _elementwise(0, 1),
    aten.native_layer_norm_backward.default: _contiguous,
    aten.xlogy.Tensor: _elementwise(0, 1),
    aten.uniform.default: _like(0),
    aten.poisson.default: _contiguous,
    aten.col2im.default: _folded,
    aten.copy.default: _all_of_storage,
    aten.slice_scatter.default: _all_of_storage,
    aten.select_scatter.default: _all_of_storage,
    aten.diagonal_scatter.default: _all_of_storage,
    aten.as_strided_scatter.default: _all_of_storage,
    aten.hann_window.default: _window,
    aten.hamming_window.default: _window,
    aten.blackman_window.default: _window,
}
_LAYOUTS_ON_CPU: dict[OpOverload, Layout] = {
    aten.log_sigmoid_forward.default: _contiguous,
    aten.glu_backward.default: _contiguous,
    aten.roll.default: _suggested(0),
    aten.max_unpool2d.default: _suggested(0),
    aten.reflection_pad2d_backward.default: _suggested(1),
    aten.replication_pad2d_backward.default: _suggested(1),
    aten._native_batch_norm_legit_functional.default: _contiguous_like,
    aten._native_batch_norm_legit_no_training.default: _contiguous_like,
    aten._native_batch_norm_legit.no_stats: _contiguous_like,
    aten.native_batch_norm.default: _contiguous_like,
    aten.native_batch_norm_backward.default: _suggested(1),
}

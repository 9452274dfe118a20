"""Gradients whose strides are others than those of the captured graph: who takes them as they come, and who does not.

Eager autograd hands a gradient on as it is, so plain PyTorch's kernels get the expanded gradient of a sum or the
permuted one of a transposed output, and their last bits depend on it. Here they get the same. Where a formula of
autograd makes a gradient contiguous before the kernel, as that of group norm does, nothing of it is left in a graph
that was captured with contiguous gradients, and the kernel may read past the end. So only calls that are known to look
at strides get others than the captured ones.

Calls in place are here, too: the memory may be that of a gradient which somebody else still reads (`write_over`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from remat_explorer.capture import IN_PLACE, OVER_GRADIENT, Overwriting

aten = torch.ops.aten
RESHAPES = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)  # eager autograd calls reshape
BOUND_TO_STRIDES = (
    aten.as_strided.default,
    aten._reshape_alias.default,
    aten.view.dtype,
    aten.view_as_complex.default,
)
FROM_SHAPES = frozenset(  # what these give depends on the shape of their tensor alone
    {
        aten.new_zeros.default,
        aten.new_ones.default,
        aten.new_full.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
        aten.zeros_like.default,
        aten.ones_like.default,
        aten.full_like.default,
        aten.empty_like.default,
    }
)
_ANY_STRIDES = frozenset(
    {
        aten.split.Tensor,
        aten.split_with_sizes.default,
        aten.unbind.int,
        aten.mm.default,
        aten.bmm.default,
        aten.mv.default,
        aten.dot.default,
        aten.addmm.default,
        aten.baddbmm.default,
        aten._to_copy.default,
        aten.copy.default,
        aten.cat.default,
        aten.stack.default,
        aten.cumsum.default,
        aten.flip.default,
        aten.roll.default,
        aten.constant_pad_nd.default,
        aten.select_backward.default,
        aten.slice_backward.default,
        aten.select_scatter.default,
        aten.slice_scatter.default,
        aten.index.Tensor,
        aten.index_select.default,
        aten.index_put.default,
        aten.index_add.default,
        aten.gather.default,
        aten.scatter.src,
        aten.scatter_add.default,
        aten.where.ScalarSelf,
        aten.where.ScalarOther,
        aten.convolution_backward.default,
        aten.native_batch_norm_backward.default,
        aten.native_layer_norm_backward.default,
        aten._softmax_backward_data.default,
        aten._log_softmax_backward_data.default,
        aten.max_pool2d_with_indices_backward.default,
        aten.avg_pool2d_backward.default,
        aten._adaptive_avg_pool2d_backward.default,
        aten.embedding_dense_backward.default,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
        aten.mish_backward.default,
        aten.glu_backward.default,
        aten.log_sigmoid_backward.default,
        aten._prelu_kernel_backward.default,
        aten.hardshrink_backward.default,
        aten.softshrink_backward.default,
        aten.rrelu_with_noise_backward.default,
        aten.mse_loss_backward.default,
        aten.smooth_l1_loss_backward.default,
        aten.huber_loss_backward.default,
        aten.soft_margin_loss_backward.default,
        aten.binary_cross_entropy_backward.default,
        aten.unfold_backward.default,
        *FROM_SHAPES,
        *IN_PLACE,
        *OVER_GRADIENT,
    }
)


def takes_any_strides(target: Callable[..., Any]) -> bool:
    """Whether a call computes the same from tensors in other strides, up to the order in which it adds."""
    if not isinstance(target, OpOverload) or target in BOUND_TO_STRIDES:
        return False
    if target.namespace != "aten":
        return False
    tags = {tag.name for tag in target.tags}
    return target in _ANY_STRIDES or target in RESHAPES or target.is_view or bool(tags & {"pointwise", "reduction"})


def may_alias(target: Callable[..., Any]) -> bool:
    """Whether what a call gives may be memory of its first argument."""
    if not isinstance(target, OpOverload):
        return target is with_strides
    return target in RESHAPES or any(entry.alias_info is not None for entry in target._schema.returns)


def with_strides(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """The tensor itself if it has these strides, where sizes are not 1, else a copy that has them."""
    sides = zip(tensor.shape, tensor.stride(), strides, strict=True)
    if all(size == 1 or mine == wanted for size, mine, wanted in sides):
        return tensor
    made = torch.empty_strided(tensor.shape, tuple(strides), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


def share_memory(first: Any, second: Any) -> bool:
    """Whether both are tensors in one storage."""
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return False
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def copy_if_shared(result: torch.Tensor, others: Sequence[torch.Tensor]) -> torch.Tensor:
    """The result, or a copy where it shares memory with one of ``others``."""
    if any(share_memory(result, other) for other in others):
        return result.clone(memory_format=torch.contiguous_format)
    return result


_PLAIN = {in_place: plain for plain, in_place in IN_PLACE.items()}


def overwriting(target: Callable[..., Any]) -> Overwriting | None:
    """What a call of a body overwrites, and which call takes new memory instead; None if it overwrites nothing."""
    if isinstance(target, Overwriting):
        return target
    return Overwriting(_PLAIN[target]) if target in _PLAIN else None  # type: ignore[index]


def write_over(
    plain: OpOverload,
    position: int,
    swapped: bool,
    rivals: Sequence[torch.Tensor],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> torch.Tensor:
    """Write the result of a call over one of its arguments, or into new memory where that argument must stay.

    It must stay if one of ``rivals`` is in the same memory. It also stays where operands of one shape have different
    strides: the result of the plain call may then have the strides of another one, in a sum those of the first, which
    is the second of ``args`` if they are ``swapped``.
    """
    operand = args[position]
    others = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.shape == operand.shape]
    stays = any(share_memory(operand, rival) for rival in rivals)
    if stays or any(other.stride() != operand.stride() for other in others):
        return plain(*(reversed(args) if swapped else args), **kwargs)
    return Overwriting(plain, position)(*args, **kwargs)

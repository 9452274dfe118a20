"""The kernel that runs for a call of the joint graph: that of plain PyTorch, where a trace notes another operator.

Batch normalization on CUDA is cuDNN's in plain PyTorch. While torch traces, it replaces cuDNN's operator, which changes
running statistics that its schema does not name, by its own (``torch/_decomp/decompositions.py``). The last digits
differ, and a deep network makes much of them: so a plan runs cuDNN's wherever plain PyTorch would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture.fake_tensors import traced_kernel

aten = torch.ops.aten
Tensor = torch.Tensor
BY_CUDNN = torch._C._BatchNormBackend.Cudnn  # type: ignore[attr-defined]


def kernel_of(node: Node) -> Callable[..., Any]:
    """What runs for a call: its target, or a function that calls the kernel of plain PyTorch."""
    if node.target in _BY_CUDNN and is_by_cudnn(*_arguments(node)):
        return _BY_CUDNN[node.target]  # type: ignore[index]
    return traced_kernel(node)


def is_by_cudnn(
    source: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, variance: Tensor | None,
    training: bool, epsilon: float,
) -> bool:  # fmt: skip
    """Whether plain PyTorch normalizes such tensors by cuDNN, with nothing reserved for the backward pass.

    What cuDNN reserves is no value of the graph, so it is asked.

    >>> x, w = torch.ones(2, 3, 4, 4), torch.ones(3)
    >>> is_by_cudnn(x, w, w, w, w, True, 1e-5)  # on the CPU
    False
    """
    if source.device.type != "cuda" or weight is None or bias is None or not torch.cuda.is_available():
        return False
    if not all(isinstance(size, int) for size in source.shape):
        return False  # cuDNN needs to know it
    torch_c: Any = torch._C
    running = (weight, weight) if mean is None and training else (mean, variance)  # as good as none in training
    if torch_c._select_batch_norm_backend(source, weight, bias, *running, training, epsilon) != BY_CUDNN:
        return False
    return not training or not torch_c._get_cudnn_batch_norm_reserve_space_size(source, True)


def _arguments(node: Node) -> tuple[Any, ...]:
    """The arguments of `is_by_cudnn` for a call of one of `_BY_CUDNN`, as FakeTensors."""
    args: Any = map_arg(node.args, lambda source: source.meta["val"])
    if node.target is aten.native_batch_norm_backward.default:
        _, source, weight, mean, variance, _, _, training, epsilon, _ = args
        bias = weight if training else None  # it has no part in the gradients; cuDNN has those of training only
        return source, weight, bias, mean, variance, training, epsilon
    if node.target is aten._native_batch_norm_legit.no_stats:
        source, weight, bias, training, _, epsilon = args
        return source, weight, bias, None, None, training, epsilon
    if node.target is aten._native_batch_norm_legit_no_training.default:
        return *args[:5], False, args[-1]
    return *args[:6], args[-1]


def batch_norm(
    source: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
    training: bool, momentum: float, epsilon: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """``_native_batch_norm_legit_functional`` by cuDNN: output, statistics of the batch, running ones."""
    mean, variance = mean.clone(), variance.clone()
    made = aten.cudnn_batch_norm.default(source, weight, bias, mean, variance, training, momentum, epsilon)
    return *made[:3], mean, variance


def batch_norm_without_running_statistics(
    source: Tensor, weight: Tensor, bias: Tensor, training: bool, momentum: float, epsilon: float
) -> tuple[Tensor, ...]:
    """``_native_batch_norm_legit.no_stats`` by cuDNN: output, statistics of the batch."""
    return aten.cudnn_batch_norm.default(source, weight, bias, None, None, training, momentum, epsilon)[:3]


def batch_norm_in_evaluation(
    source: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, momentum: float, epsilon: float
) -> tuple[Tensor, ...]:
    """``_native_batch_norm_legit_no_training`` by cuDNN: output, and two tensors without entries."""
    return aten.cudnn_batch_norm.default(source, weight, bias, mean, variance, False, momentum, epsilon)[:3]


def batch_norm_backward(
    gradient: Tensor, source: Tensor, weight: Tensor, running_mean: Tensor | None, running_variance: Tensor | None,
    mean: Tensor, deviation: Tensor, training: bool, epsilon: float, wanted: list[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """``native_batch_norm_backward`` of a training step by cuDNN: gradients of input, weight and bias."""
    gradient = gradient.contiguous(memory_format=suggest_memory_format(source))
    nothing = source.new_empty(0, dtype=torch.uint8)
    running, saved = (running_mean, running_variance), (mean, deviation)
    made = aten.cudnn_batch_norm_backward.default(source, gradient, weight, *running, *saved, epsilon, nothing)
    return tuple(tensor if asked else None for tensor, asked in zip(made, wanted, strict=True))


_BY_CUDNN: dict[Any, Callable[..., Any]] = {
    aten._native_batch_norm_legit_functional.default: batch_norm,
    aten._native_batch_norm_legit.no_stats: batch_norm_without_running_statistics,
    aten._native_batch_norm_legit_no_training.default: batch_norm_in_evaluation,
    aten.native_batch_norm_backward.default: batch_norm_backward,
}

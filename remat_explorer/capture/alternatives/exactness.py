"""How far apart two kernels may be that compute the same: by the type of the tensors, and by the device.

What is called equal bit for bit is equal in tests on the CPU. On CUDA, the kernels that a library takes depend on the
GPU, and some add in an order that changes from run to run, so only what holds for any order is called exact there:
comparisons, choices, and the same kernel with the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

ROUNDING = {torch.float64: 1e-14, torch.float32: 3e-6, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
TF32 = 2e-3  # of products whose factors cuDNN rounds to 10 bits


def reordered(tensor: torch.Tensor) -> float:
    """Tolerance of results whose sums come in another order, relative to the largest entry.

    Args:
        tensor: a result, or its FakeTensor.

    >>> reordered(torch.ones(1)), reordered(torch.ones(1, dtype=torch.float64))
    (3e-06, 1e-14)
    """
    return ROUNDING.get(tensor.dtype, ROUNDING[torch.bfloat16])


def reordered_products(tensor: torch.Tensor) -> float:
    """As `reordered`, for convolutions, whose products may be less accurate on CUDA than the type of the tensors."""
    if tensor.device.type == "cuda" and tensor.dtype == torch.float32 and torch.backends.cudnn.allow_tf32:
        return TF32
    return reordered(tensor)


def equal_on_cpu(tensor: torch.Tensor, elsewhere: Callable[[torch.Tensor], float] = reordered) -> float:
    """Tolerance of what tests on the CPU find equal bit for bit, and what need not be elsewhere.

    >>> equal_on_cpu(torch.ones(1)), equal_on_cpu(torch.ones(1, device="meta"))
    (0.0, 3e-06)
    """
    return 0.0 if on_cpu(tensor) else elsewhere(tensor)


def on_cpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor, or what a FakeTensor stands for, lies on the CPU."""
    return tensor.device.type == "cpu"

"""The CUDA device that a graph is made for where there is none: what PyTorch's choice of kernels asks of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from remat_explorer.capture_options import CUDA, capability_of

AMPERE = (8, 0)


@dataclass(frozen=True)
class CudaTarget:
    """A device that need not be there.

    Attributes:
        capability: compute capability, major and minor.

    >>> str(CudaTarget((9, 0)))
    'sm_90'
    """

    capability: tuple[int, int]

    def __str__(self) -> str:
        return "sm_{}{}".format(*self.capability)


def cuda_target(kernels: str, capability: tuple[int, int] | None = None) -> CudaTarget:
    """The device whose kernels are meant.

    Args:
        kernels: "cuda", or a compute capability such as "sm_90".
        capability: that of the device whose rates give the costs, which "cuda" takes; None for Ampere, the first
            with every kernel of attention.

    Raises:
        UnknownNameError: if it is neither.

    >>> cuda_target("cuda", (9, 0)).capability, cuda_target("cuda").capability, cuda_target("sm_120").capability
    ((9, 0), (8, 0), (12, 0))
    """
    if kernels == CUDA:
        return CudaTarget(capability or AMPERE)
    return CudaTarget(capability_of(kernels))


def target_of(
    kernels: str | None, tensors: Iterable[torch.Tensor], capability: tuple[int, int] | None
) -> CudaTarget | None:
    """The device that is not there and whose kernels are meant, or None for those of where the tensors lie.

    Args:
        kernels: as `cuda_target` takes them; None for where the tensors lie.
        tensors: of the model, and its inputs.
        capability: as for `cuda_target`.
    """
    on_cuda = any(tensor.device.type == "cuda" for tensor in tensors)
    if on_cuda and torch.cuda.is_available() and kernels in (None, CUDA):
        return None  # the device itself is asked
    if kernels is None:
        return cuda_target(CUDA, capability) if on_cuda else None
    return cuda_target(kernels, capability)

"""FakeTensors of a device that is not there.

Autograd asks the driver for a stream of every tensor on CUDA, and aborts the process where torch was built for the CPU
(``InputMetadata`` of torch/csrc/autograd). So a trace for CUDA has FakeTensors that say they are on the CPU, and they
say CUDA only while torch's fake kernels look at them, with autograd excluded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

aten = torch.ops.aten
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
Dispatch = Callable[..., Any]
_NO_DRIVER = re.compile("not linked with support for cuda|hasPrimaryContext expects")


class SeenOnCuda:
    """The dispatch of a FakeTensorMode, with the fake kernels of CUDA.

    Args:
        dispatch: that of the mode.
    """

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch, self._inside = dispatch, False

    def __call__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._inside or not isinstance(func, torch._ops.OpOverload) or func.namespace == "prim":
            return self._dispatch(func, types, args, kwargs)
        if func in CONVOLUTIONS:  # torch would ask cuDNN's library how it lays out the result
            source, weight = args[:2] if func is aten.convolution.default else args[1:3]
            return _laid_out_by_cudnn(self._dispatch(func, types, args, kwargs), source, weight)
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
        self._inside = True
        try:
            with labelled(given), torch._C._AutoDispatchBelowAutograd():
                result = self._dispatch(func, types, args, kwargs)
        except RuntimeError as error:
            if not _NO_DRIVER.search(str(error)):
                raise
            result = None
        finally:
            self._inside = False
        if result is None:  # Python code in place of a fake kernel, which makes tensors; it is the same for the CPU
            return self._dispatch(func, types, args, kwargs)
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, FakeTensor) and leaf.fake_device.type == "cuda":
                leaf.fake_device = CPU
        return result


@contextmanager
def labelled(tensors: Sequence[FakeTensor]) -> Iterator[None]:
    """Let FakeTensors on the CPU be on CUDA."""
    moved = [tensor for tensor in tensors if tensor.fake_device.type == "cpu"]
    for tensor in moved:
        tensor.fake_device = CUDA
    try:
        yield
    finally:
        for tensor in moved:
            tensor.fake_device = CPU


def _laid_out_by_cudnn(result: Any, source: torch.Tensor, weight: torch.Tensor) -> Any:
    """Channels last where input or weight have them so, but not in double precision.

    Source: PyTorch 2.13, ``aten/src/ATen/native/ConvUtils.h``, `cudnn_conv_suggest_memory_format`.
    """
    wanted, form = torch.contiguous_format, LAST.get(weight.dim(), torch.contiguous_format)
    if torch.float64 not in (source.dtype, weight.dtype) and form in map(suggest_memory_format, (source, weight)):
        wanted = form
    bias_gradient = 2

    def layout(place: int, tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor) or place == bias_gradient or tensor.dim() != weight.dim():
            return tensor
        return tensor.contiguous(memory_format=wanted)

    if isinstance(result, tuple | list):
        return tuple(layout(place, tensor) for place, tensor in enumerate(result))
    return layout(0, result)

"""The CUDA device that a graph is made for where there is none: its capability, its tensors, and what a model is told.

Autograd asks the driver for a stream of every tensor on CUDA, and aborts the process where torch was built for the CPU
(``InputMetadata`` of torch/csrc/autograd). So a trace for CUDA has FakeTensors that say they are on the CPU, and they
say CUDA only while torch's fake kernels look at them, with autograd excluded (`SeenOnCuda`), or while a model asks
where its tensors are (`as_on_cuda`).
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from remat_explorer.capture_options import CUDA, capability_of
from remat_explorer.errors import CaptureError

aten = torch.ops.aten
AMPERE = (8, 0)
CPU, _CUDA_DEVICE = torch.device("cpu"), torch.device("cuda", 0)
CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
Dispatch = Callable[..., Any]
_NO_DRIVER = re.compile("not linked with support for cuda|hasPrimaryContext expects")
AUTOCAST = (
    "a graph with autocast for CUDA cannot be made without a device, as PyTorch leaves that off where there is none; "
    "take a model in half precision, such as model.bfloat16()"
)
_ANSWERS: dict[Any, Any] = {
    torch.Tensor.device.__get__: _CUDA_DEVICE,  # type: ignore[attr-defined]
    torch.Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: False,  # type: ignore[attr-defined]
    torch.Tensor.get_device: _CUDA_DEVICE.index,
}
_CASTS_OF_CPU = DispatchKeySet(DispatchKey.AutocastCPU)
_DISABLED = "(User provided device_type of 'cuda', but )?CUDA is not available"  # as torch.autocast warns


@dataclass(frozen=True)
class CudaTarget:
    """A device that need not be there, by its compute capability, major and minor."""

    capability: tuple[int, int]

    def __str__(self) -> str:
        return "sm_{}{}".format(*self.capability)


def cuda_target(kernels: str, capability: tuple[int, int] | None = None) -> CudaTarget:
    """The device whose kernels are meant: "cuda", or a compute capability such as "sm_90".

    "cuda" takes that of the device whose rates give the costs; without one it is Ampere, the first with every kernel of
    attention.
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


class SeenOnCuda:
    """The dispatch of a FakeTensorMode, with the fake kernels of CUDA."""

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
            with _labelled(given), torch._C._AutoDispatchBelowAutograd():
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
def _labelled(tensors: Sequence[FakeTensor]) -> Iterator[None]:
    """Let FakeTensors on the CPU be on CUDA."""
    moved = [tensor for tensor in tensors if tensor.fake_device.type == "cpu"]
    for tensor in moved:
        tensor.fake_device = _CUDA_DEVICE
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


@contextlib.contextmanager
def as_on_cuda() -> Iterator[None]:
    """Run a model as if it lay on CUDA.

    A CaptureError if it enters `torch.autocast` for CUDA, which PyTorch leaves off without a device.
    """
    with warnings.catch_warnings(), _OnCuda():
        warnings.filterwarnings("error", message=_DISABLED, category=UserWarning)
        try:
            yield
        except UserWarning as warning:
            raise CaptureError(f"{AUTOCAST}; or capture on a device") from warning


class _OnCuda(TorchFunctionMode):
    """While entered, tensors say that they are on CUDA; what is sent or made there goes to the CPU.

    Autocast for the CPU does nothing, then, as on a device.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _ANSWERS and not (kwargs or args[0].device.type != "cpu"):
            return _ANSWERS[func]
        if any(_is_elsewhere(leaf) for leaf in pytree.tree_leaves((args, kwargs))):
            args, kwargs = pytree.tree_map(_brought_here, (tuple(args), kwargs))
        if torch.is_autocast_enabled("cpu"):
            with _ExcludeDispatchKeyGuard(_CASTS_OF_CPU):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _is_elsewhere(leaf: Any) -> bool:
    name = leaf.type if isinstance(leaf, torch.device) else leaf
    return isinstance(name, str) and name.partition(":")[0] == "cuda"


def _brought_here(leaf: Any) -> Any:
    return CPU if _is_elsewhere(leaf) else leaf

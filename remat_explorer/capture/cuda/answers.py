"""What a model is told that asks where its tensors are, while it is traced for a device that is not there."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from remat_explorer.capture.cuda.fakes import CPU, CUDA
from remat_explorer.errors import CaptureError

AUTOCAST = (
    "a graph with autocast for CUDA cannot be made without a device, as PyTorch leaves that off where there is none; "
    "take a model in half precision, such as model.bfloat16()"
)
_ANSWERS: dict[Any, Any] = {
    torch.Tensor.device.__get__: CUDA,  # type: ignore[attr-defined]
    torch.Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: False,  # type: ignore[attr-defined]
    torch.Tensor.get_device: CUDA.index,
}
_CASTS_OF_CPU = DispatchKeySet(DispatchKey.AutocastCPU)
_DISABLED = "(User provided device_type of 'cuda', but )?CUDA is not available"  # as torch.autocast warns


@contextlib.contextmanager
def as_on_cuda() -> Iterator[None]:
    """Run a model as if it lay on CUDA.

    Raises:
        CaptureError: if it enters `torch.autocast` for CUDA, which PyTorch leaves off without a device.
    """
    with warnings.catch_warnings(), OnCuda():
        warnings.filterwarnings("error", message=_DISABLED, category=UserWarning)
        try:
            yield
        except UserWarning as warning:
            raise CaptureError(f"{AUTOCAST}; or capture on a device") from warning


class OnCuda(TorchFunctionMode):
    """While entered, tensors say that they are on CUDA; what is sent or made there goes to the CPU.

    Autocast for the CPU does nothing, then, as on a device.

    >>> with OnCuda():
    ...     x = torch.ones(2, device="cuda")
    ...     print(x.device, x.is_cuda, x.to("cuda:0").is_cpu)
    cuda:0 True False
    >>> x.device
    device(type='cpu')
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

"""Which kernel of attention CUDA takes, and how it is called: PyTorch's rules as tables.

Source: PyTorch 2.11 to 2.14, ``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`` (`select_sdp_backend` and the
conditions of each kernel), ``sdp_utils_cpp.h`` and ``attention.cpp`` (`scaled_dot_product_attention`, which pads). What
a person has switched off with `torch.nn.attention.sdpa_kernel` is off here, too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad

from remat_explorer.errors import CaptureError

aten = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)
KINDS = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}  # by the numbers of `torch.nn.attention.SDPBackend`
USUAL = ["flash", "efficient", "math", "cudnn"]  # PyTorch's own order, where no person has set another
ALIGNED = 8  # entries: flash attention's widths, and rows of the mask of efficient attention
CUDNN_PREFERRED = 91500  # cuDNN's versions above it; older ones fail for some lengths
SIXTEENTHS = (2, 12)  # PyTorch that gives cuDNN no other shares to drop (pull request 174245)


@dataclass(frozen=True)
class Call:
    """A call of `scaled_dot_product_attention` on a device of some compute capability."""

    capability: tuple[int, int]
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None = None
    dropout: float = 0.0
    causal: bool = False
    scale: float | None = None
    grouped: bool = False

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value."""
        return self.query, self.key, self.value

    @property
    def trains(self) -> bool:
        """Whether a backward pass will follow."""
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)


def chosen_kernel(call: Call) -> str:
    """ "cudnn", "flash", "efficient" or "math".

    >>> x = torch.empty(2, 4, 128, 64, dtype=torch.bfloat16)
    >>> [chosen_kernel(Call(c, x, x, x)) for c in [(7, 0), (8, 0)]]
    ['math', 'flash']
    >>> chosen_kernel(Call((8, 0), x.float(), x.float(), x.float()))
    'efficient'

    Raises:
        CaptureError: if every kernel that would do is switched off.
    """
    switches = torch.backends.cuda
    allowed: dict[str, Callable[[], bool]] = {
        "cudnn": switches.cudnn_sdp_enabled,
        "flash": switches.flash_sdp_enabled,
        "efficient": switches.mem_efficient_sdp_enabled,
        "math": switches.math_sdp_enabled,
    }
    fits = {"cudnn": _fits_cudnn, "flash": _fits_flash, "efficient": _fits_efficient, "math": lambda call: True}
    order = [KINDS[number] for number in torch._C._get_sdp_priority_order() if number in KINDS]
    if order == USUAL and _prefers_cudnn(call.capability):
        order = ["cudnn", *order[:-1]]
    for kind in order:
        if allowed[kind]() and fits[kind](call):
            return kind
    raise CaptureError("no kernel of attention that is switched on takes these tensors on CUDA; allow math, too")


def attention(call: Call) -> torch.Tensor:
    """The call as CUDA makes it: by the operator of its kernel, padded where that needs it."""
    kind = chosen_kernel(call)
    query, key, value = call.tensors
    mask = _additive(call.mask, query.dtype)
    setting: dict[str, Any] = {"scale": call.scale}
    given = call.dropout, call.causal
    if kind == "flash":
        width = query.shape[-1]
        padded = [_padded(tensor) for tensor in call.tensors]
        setting["scale"] = 1 / math.sqrt(width) if call.scale is None else call.scale
        output = aten._scaled_dot_product_flash_attention.default(*padded, *given, False, **setting)[0]
        return output if output.shape[-1] == width else output[..., :width]
    if kind == "math":
        return aten._scaled_dot_product_attention_math.default(
            query, key, value, mask, *given, None, **setting, enable_gqa=call.grouped
        )[0]
    if kind == "cudnn":
        return aten._scaled_dot_product_cudnn_attention.default(
            query, key, value, mask, call.trains, *given, False, **setting
        )[0]
    if mask is not None:
        mask = _aligned(mask).expand(*query.shape[:3], key.shape[2])
    return aten._scaled_dot_product_efficient_attention.default(
        query, key, value, mask, call.trains, *given, **setting
    )[0]


def _prefers_cudnn(capability: tuple[int, int]) -> bool:
    """Whether cuDNN's attention comes first: on Hopper and on data-centre Blackwell, with a new cuDNN.

    Where this build of torch has none, the one is meant that comes with its build for CUDA 13.
    """
    if os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1":
        return False
    version = torch.backends.cudnn.version() if torch.backends.cuda.is_built() else None
    return capability[0] in (9, 10) and (version is None or version > CUDNN_PREFERRED)


def _pytorch() -> tuple[int, ...]:
    """PyTorch's version, its first two numbers."""
    return tuple(map(int, torch.__version__.split(".")[:2]))


def _fits_cudnn(call: Call) -> bool:
    widths = call.query.shape[-1], call.value.shape[-1]
    return (
        call.capability >= (8, 0)
        and _fits_any(call, ignore_width_1=True, alike=False)
        and not torch.are_deterministic_algorithms_enabled()
        and _have_type(call, HALF)
        and _fits_mask(call)
        and all(width % 8 == 0 for width in widths)
        and (max(widths) <= 128 or (widths == (192, 128) and call.capability[0] in (9, 10)))
        and (call.dropout * 16 == int(call.dropout * 16) or _pytorch() < SIXTEENTHS)
        and call.key.shape[2] != 1
        and not (call.dropout and call.query.shape[2] == 1)
    )


def _fits_flash(call: Call) -> bool:
    width = call.query.shape[-1]
    few_registers = (8, 6) <= call.capability <= (8, 9) or call.capability >= (12, 0)
    return (
        (8, 0) <= call.capability <= (12, 1)
        and call.mask is None
        and _fits_any(call, ignore_width_1=True)
        and width == call.key.shape[-1] == call.value.shape[-1]
        and width <= 256
        and not (call.trains and few_registers and width > 192 and (width <= 224 or call.dropout > 0))
        and not (call.causal and call.query.shape[2] != call.key.shape[2])
        and _have_type(call, HALF)
    )


def _fits_efficient(call: Call) -> bool:
    half = call.query.dtype in HALF
    modern = call.capability >= (8, 0)
    tensor_cores = modern or (call.capability >= (7, 0) and half)
    alignment = max(4 if modern else 1, (8 if half else 4) if tensor_cores else 1)
    widths = call.query.shape[-1], call.value.shape[-1]
    types = (torch.float16, torch.float32, torch.bfloat16) if modern else (torch.float16, torch.float32)
    return (
        (5, 0) <= call.capability <= (12, 1)
        and _fits_any(call, groups=False)
        and call.key.shape[-1] == widths[0]
        and all(width > 0 and width % alignment == 0 for width in widths)
        and _have_type(call, types)
    )


def _fits_any(call: Call, ignore_width_1: bool = False, groups: bool = True, alike: bool = True) -> bool:
    """What every kernel but "math" asks: four dimensions, as many samples and heads, rows without gaps.

    Where ``groups`` are taken, a head of the key serves several of the query, if the call asks for that; ``alike`` is
    whether key and value have as many heads then.
    """
    if any(tensor.dim() != 4 for tensor in call.tensors):
        return False
    samples, heads = zip(*(tensor.shape[:2] for tensor in call.tensors), strict=True)
    fewer = heads[1:]
    if call.grouped and groups:
        fits_heads = (
            min(fewer) > 0 and all(heads[0] % few == 0 for few in fewer) and (len(set(fewer)) == 1 or not alike)
        )
    else:
        fits_heads = len(set(heads)) == 1
    dense = all(tensor.stride(-1) == 1 for tensor in call.tensors) or (ignore_width_1 and call.query.shape[-1] == 1)
    return (
        len(set(samples)) == 1
        and fits_heads
        and call.query.shape[2] > 0
        and call.key.shape[2] > 0
        and dense
        and (call.mask is None or call.mask.stride(-1) == 1)
    )


def _have_type(call: Call, types: tuple[torch.dtype, ...]) -> bool:
    kinds = {tensor.dtype for tensor in call.tensors}
    return len(kinds) == 1 and kinds <= set(types)


def _fits_mask(call: Call) -> bool:
    """A mask of two or four dimensions, each as long as the scores' or 1, that gets no gradient."""
    mask = call.mask
    if mask is None:
        return True
    full = (*call.query.shape[:3], call.key.shape[2])
    sides = zip(mask.shape, full[-mask.dim() :], strict=True)
    return mask.dim() in (2, 4) and not mask.requires_grad and all(size in (1, whole) for size, whole in sides)


def _additive(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """A mask that is added: 0 where a truth value is true, minus infinity elsewhere."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(-math.inf, dtype=dtype, device=mask.device))


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    missing = -tensor.shape[-1] % ALIGNED
    return pad(tensor, (0, missing)) if missing else tensor


def _aligned(mask: torch.Tensor) -> torch.Tensor:
    """The mask with rows that begin at multiples of 8 entries, as a view of a padded one where they do not."""
    if mask.stride(-1) == 1 and all(step % ALIGNED == 0 for step in mask.stride()[:-1]):
        return mask
    length = mask.shape[-1]
    return pad(mask, (0, ALIGNED - length % ALIGNED))[..., :length]

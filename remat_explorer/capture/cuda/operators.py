"""Every operator that PyTorch takes apart in another way on CUDA than on the CPU, and what stands in for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload

from remat_explorer.capture.cuda.attention import Call, attention
from remat_explorer.capture.cuda.recurrent import COMPOSITES
from remat_explorer.capture.cuda.target import CudaTarget
from remat_explorer.errors import CaptureError

aten = torch.ops.aten
ZEROS, BILINEAR = 0, 0  # of grid sampling: padding, interpolation
MOST_CHANNELS = 1024  # that cuDNN samples


def composites(target: CudaTarget) -> dict[OpOverload, Callable[..., Any]]:
    """What to run for each such operator while a model is traced for ``target``."""
    return {
        **COMPOSITES,
        aten.scaled_dot_product_attention.default: partial(_attention, target),
        aten.softmax.int: partial(_softmax, aten._softmax.default),
        aten.log_softmax.int: partial(_softmax, aten._log_softmax.default),
        aten.grid_sampler.default: _grid_sampler,
        aten.rms_norm.default: _rms_norm,
        aten.ctc_loss.IntList: _ctc_loss,
        aten.ctc_loss.Tensor: _ctc_loss,
    }


def _attention(
    target: CudaTarget,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    return attention(
        Call(target.capability, query, key, value, attn_mask, dropout_p, is_causal, scale, grouped=enable_gqa)
    )


def _softmax(operator: OpOverload, x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """From half to full precision in one kernel. Source: ``aten/src/ATen/native/SoftMax.cpp``."""
    if x.dtype == torch.float16 and dtype == torch.float32:
        return operator(x, dim, True)
    return operator(x if dtype is None else x.to(dtype), dim, False)


def _grid_sampler(
    x: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, align_corners: bool
) -> torch.Tensor:
    """By PyTorch's kernels, where cuDNN does not take it. Source: ``GridSampler.cpp``, `cond_cudnn_grid_sampler`."""
    two = x.dim() == 4
    if two and (interpolation, padding, align_corners) == (BILINEAR, ZEROS, True) and x.shape[1] <= MOST_CHANNELS:
        raise CaptureError(
            "grid_sample is cuDNN's on CUDA, whose results are not known without a device; capture it there, or with "
            "align_corners=False"
        )
    operator = aten.grid_sampler_2d.default if two else aten.grid_sampler_3d.default
    return operator(x, grid, interpolation, padding, align_corners)


def _rms_norm(*args: Any, **kwargs: Any) -> Any:
    warnings.warn(
        "rms_norm is one fused operation on CUDA, but several in a graph that is made without a device: that of the "
        "device has fewer operations and values, and a schedule of this one does not run there",
        stacklevel=2,
    )
    return aten.rms_norm.default._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def _ctc_loss(*args: Any, **kwargs: Any) -> Any:
    raise CaptureError("which kernel CUDA takes for the CTC loss depends on lengths and cuDNN; capture on the device")

"""The same kernels in a trace and in plain PyTorch, where tracing would take others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch._C import DispatchKey

from remat_explorer.capture.cuda_operators import composites
from remat_explorer.capture.cuda_target import CudaTarget

aten = torch.ops.aten
_RECURRENT = ("lstm", "gru", "rnn_relu", "rnn_tanh")
_FAMILIES = ("upsample_", "_upsample_", "multi_margin_loss", "multilabel_margin_loss_forward", *_RECURRENT)
_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


@contextlib.contextmanager
def eager_kernels(target: CudaTarget | None = None) -> Iterator[None]:
    """Trace with the kernels that plain PyTorch takes, where torch replaces them by Python code while it traces.

    That code gives other last digits for interpolation and margin losses, makes twenty operations of one, and forgets
    the dropout between the layers of recurrent networks (torch 2.13). It is replaced for the whole process: enter while
    holding the lock of torch.compile.
    """
    replaced = [op for op in _overloads() if any(key in op.py_kernels for key in _KEYS)]
    others = {aten.dropout.default: partial(traced_dropout, target), **(composites(target) if target else {})}
    saved = {op: dict(op.py_kernels) for op in (*replaced, *others)}
    for op in replaced:
        for key in _KEYS:
            op.py_kernels.pop(key, None)
        if op.overloadpacket.__name__ in _RECURRENT:
            op.py_kernels.update(dict.fromkeys(_KEYS, partial(_recurrent_layer, op)))
        op._dispatch_cache.clear()
    for op, kernel in others.items():
        op.py_kernels.update(dict.fromkeys(_KEYS, kernel))
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernels in saved.items():
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


def traced_dropout(target: CudaTarget | None, input: torch.Tensor, p: float, train: bool | None) -> torch.Tensor:
    """Dropout by a mask of one byte an entry, wherever that gives the numbers of plain PyTorch.

    On the CPU, plain PyTorch divides 1 by 1 - p in the input's type before it multiplies. In full precision the product
    is the same unless p is one of those, such as 0.15, for which this scale is rounded otherwise; for these, and in
    half precision, only the same order of operations gives the same numbers.
    """
    if not train or p == 0:
        return input
    on_cuda = target is not None or input.device.type != "cpu"
    if on_cuda or p == 1 or _scale_is_the_same(p, input.dtype):
        return aten.native_dropout(input, p, train)[0]
    mask = aten.native_dropout(input.detach(), p, train)[1]  # bernoulli_ loses the order of draws when it is traced
    return input * mask.to(input.dtype).div_(1 - p)


def _scale_is_the_same(p: float, dtype: torch.dtype) -> bool:
    """Whether 1 / (1 - p) computed in a type is that of float64, rounded to it."""
    in_float32 = bool(np.float32(1) / np.float32(1 - p) == np.float32(1 / (1 - p)))
    return dtype == torch.float64 or (dtype == torch.float32 and in_float32)


def _recurrent_layer(op: Any, *args: Any) -> Any:
    """The recurrent layer as plain PyTorch has it: on the CPU an operation of oneDNN, or single steps.

    cuDNN's cannot be an operation of a plan: it draws dropout from a generator of its own, its backward pass writes to
    what it reads, and one of its results is a view of the weights. On CUDA, the layer is traced without cuDNN.
    """
    before = torch._C._get_cudnn_enabled()  # torch.backends may be locked, as by torch.testing
    torch._C._set_cudnn_enabled(False)
    try:
        return op._op_dk(DispatchKey.CompositeImplicitAutograd, *args)
    finally:
        torch._C._set_cudnn_enabled(before)


def _overloads() -> list[Any]:
    packets = [getattr(aten, name) for name in dir(aten) if name.startswith(_FAMILIES)]
    return [getattr(packet, name) for packet in packets for name in packet.overloads()]

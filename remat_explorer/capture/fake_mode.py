"""FakeTensorModes of PyTorch that any thread may enter.

In CUDA builds without a device, the first mode gives the process a device guard for CUDA. In PyTorch 2.11 it belongs
to the thread that entered the mode (`c10/core/impl/DeviceGuardImplInterface.cpp`), and the first mode after the end of
that thread reads freed memory: the process crashes. Later versions keep the guard as long as the process.
"""

from __future__ import annotations

import functools
import threading

import torch
from torch._subclasses.fake_tensor import FakeTensorMode


def fake_tensor_mode() -> FakeTensorMode:
    """A new mode, in which tensors that are not fake may be given to operators.

    >>> with fake_tensor_mode():
    ...     type(torch.ones(2)).__name__
    'FakeTensor'
    """
    _keep_device_guard()
    return FakeTensorMode(allow_non_fake_inputs=True)


@functools.cache
def _keep_device_guard() -> None:
    """Have the guard made by a thread that does not end, once in a process."""
    if not torch.backends.cuda.is_built() or torch.cuda.is_available():
        return
    made = threading.Event()

    def keep() -> None:
        torch._C._ensureCUDADeviceGuardSet()
        made.set()
        threading.Event().wait()

    threading.Thread(target=keep, daemon=True, name="remat-device-guard").start()
    made.wait()

"""A trial step of compiled code, whose peak is measured before anybody trains with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch._guards import tracing
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from remat_explorer.capture.memory_meter import memory_meter


def trial_peak(compiled: Callable[..., Any], inputs: Sequence[Any]) -> int:
    """The most bytes that a forward and a backward pass take beside inputs and the gradients of outputs.

    Parameters are the model's own, which a step only reads; other inputs are zeros of the same sizes, so that what is
    counted does not depend on them, and buffers stay as they are. A first step compiles and warms up. The random state
    stays as it is.

    Args:
        compiled: takes the inputs and gives a list of outputs.
        inputs: as torch.compile gives them to a back end.
    """
    with tracing(None), _disable_current_modes(), torch.random.fork_rng(), torch.enable_grad():
        given = [stand_in(value) if isinstance(value, torch.Tensor) else value for value in inputs]
        device = next((value.device for value in given if isinstance(value, torch.Tensor)), torch.device("cpu"))
        _step(compiled, given, None)
        return _step(compiled, given, memory_meter(device))


def stand_in(value: torch.Tensor) -> torch.Tensor:
    """The parameter itself, or zeros of the size and strides of another tensor, or of a FakeTensor."""
    if isinstance(value, nn.Parameter) and not isinstance(value, FakeTensor):
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).zero_()
    return made.requires_grad_(value.requires_grad)


def _step(compiled: Callable[..., Any], given: Sequence[Any], meter: Any) -> int:
    wanted = [value for value in given if isinstance(value, torch.Tensor) and value.requires_grad]
    tangents = [torch.ones_like(out) for out in _outputs(compiled, given)]
    if meter is None:
        torch.autograd.grad(_outputs(compiled, given), wanted, tangents, allow_unused=True)
        return 0
    with meter, meter.section():
        torch.autograd.grad(_outputs(compiled, given), wanted, tangents, allow_unused=True)
    return meter.readings[-1].highest - meter.readings[-1].before


def _outputs(compiled: Callable[..., Any], given: Sequence[Any]) -> list[torch.Tensor]:
    return [out for out in compiled(*given) if isinstance(out, torch.Tensor) and out.requires_grad]

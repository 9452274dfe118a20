"""Bytes of an optimizer's state, which are there all the time from the second step on."""

from __future__ import annotations

from torch import nn

from remat_explorer.capture.step.sharding import is_sharded, own_part
from remat_explorer.capture_options import OPTIMIZERS

STEP_BYTES = 4  # Adam counts its steps for each parameter, in a float32


def optimizer_bytes(model: nn.Module, optimizer: str | None) -> int:
    """State of an optimizer of ``torch.optim`` over the parameters of ``model`` that require a gradient.

    What an optimizer takes while it steps is not part of it: activations are gone by then.

    Args:
        model: tied parameters count once.
        optimizer: "sgd" (no state), "momentum" (SGD with momentum: one tensor), "adam" (two, and a count), or None.

    >>> optimizer_bytes(nn.Linear(3, 5, bias=False), "adam")
    124
    """
    if optimizer is None:
        return 0
    count = OPTIMIZERS[optimizer]
    step = STEP_BYTES if optimizer == "adam" else 0
    return sum(count * _bytes(parameter) + step for parameter in model.parameters() if parameter.requires_grad)


def _bytes(parameter: nn.Parameter) -> int:
    """Of a sharded parameter those of one process, padding included, so that they are the same for each."""
    return own_part(parameter).untyped_storage().nbytes() if is_sharded(parameter) else parameter.nbytes

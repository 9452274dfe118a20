"""Mamba's selective scan in plain torch, in as many steps as the sequence has binary digits."""

from __future__ import annotations

import torch
from torch.nn import functional


def selective_scan(
    x: torch.Tensor, steps: torch.Tensor, decay: torch.Tensor, entering: torch.Tensor, leaving: torch.Tensor
) -> torch.Tensor:
    """Output of a state space model whose matrices depend on the input.

    Source: Gu and Dao, "Mamba", 2023, algorithm 2; discretized by zero-order hold for A and by Euler's rule for B, as
    in the authors' code. The recurrence h[t] = a[t] h[t-1] + b[t] is computed for all t at once by doubling: Hillis and
    Steele, "Data parallel algorithms", CACM 1986. The authors' kernel keeps no states; here all of them are values.

    Args:
        x: of shape (batch, tokens, channels).
        steps: the discretization's step of each channel, as x.
        decay: A of shape (channels, states), negative.
        entering, leaving: B and C of shape (batch, tokens, states).

    Returns:
        A tensor of the shape of x, in float32.

    >>> ones = torch.ones(1, 4, 1)
    >>> selective_scan(ones, ones, -torch.ones(1, 1) * 0.6931472, ones, ones).flatten().tolist()
    [1.0, 1.5, 1.75, 1.875]
    """
    x, steps, decay, entering, leaving = (tensor.float() for tensor in (x, steps, decay, entering, leaving))
    a = torch.exp(steps.unsqueeze(3) * decay)
    b = (steps * x).unsqueeze(3) * entering.unsqueeze(2)
    distance = 1
    while distance < x.shape[1]:
        b = b + a * _later(b, distance)
        if 2 * distance < x.shape[1]:
            a = a * _later(a, distance)
        distance *= 2
    return torch.matmul(b, leaving.unsqueeze(3)).squeeze(3)


def _later(tensor: torch.Tensor, distance: int) -> torch.Tensor:
    """What stood ``distance`` tokens before, and zeros where nothing did."""
    return functional.pad(tensor[:, :-distance], (0, 0, 0, 0, distance, 0))

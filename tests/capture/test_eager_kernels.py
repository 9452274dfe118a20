"""Dropout as it is traced has the numbers of plain PyTorch, whatever its rate."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from remat_explorer.capture.eager_kernels import traced_dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_output_and_gradient_are_those_of_plain_pytorch_at_every_rate(dtype: torch.dtype) -> None:
    x, gradient = torch.randn(2, 1000, dtype=dtype)
    for rate in [0.0, *(part / 200 for part in range(1, 200)), 1.0]:
        found = []
        for dropout in (functional.dropout, lambda x, rate: traced_dropout(None, x, rate, True)):
            torch.manual_seed(0)
            source = x.clone().requires_grad_()
            result = dropout(source, rate)
            result.backward(gradient)
            found.append((result, source.grad))
        assert all(map(torch.equal, *found)), rate

"""Operators of a library of our own, whose fake kernels say something else than what they do."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.runtime.kinds_of_models import Made, linear

LIBRARY = torch.library.Library("remat_explorer_tests", "DEF")
held: list[torch.Tensor] = []  # by `hoarding`


def _define(name: str, kernel: Any, fake: Any, backward: Any = None) -> Any:
    LIBRARY.define(f"{name}(Tensor x) -> {'(Tensor, Tensor)' if name == 'twins' else 'Tensor'}")
    LIBRARY.impl(name, kernel, "CPU")
    torch.library.register_fake(f"remat_explorer_tests::{name}", fake, lib=LIBRARY)
    torch.library.register_autograd(
        f"remat_explorer_tests::{name}", backward or (lambda context, *gradients: gradients[0] * 2), lib=LIBRARY
    )
    return getattr(torch.ops.remat_explorer_tests, name).default


def in_a_larger_storage(x: torch.Tensor, times: int = 3) -> torch.Tensor:
    return torch.empty(times * x.numel()).as_strided_(x.shape, x.stride()).copy_(2 * x)


def _hoard(x: torch.Tensor) -> torch.Tensor:
    held.append(torch.empty_like(x))
    return 2 * x


def _twins(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.stack([2 * x, x])
    return both[0], both[1]


roomy = _define("roomy", in_a_larger_storage, lambda x: torch.empty_like(x))
tight = _define("tight", lambda x: 2 * x, lambda x: in_a_larger_storage(x, 2))
renaming = _define("renaming", lambda x: x, lambda x: torch.empty_like(x))
copying = _define("copying", lambda x: x.clone(), lambda x: x.view(x.shape))
twins = _define("twins", _twins, lambda x: (torch.empty_like(x), torch.empty_like(x)))
hoarding = _define("hoarding", _hoard, lambda x: torch.empty_like(x))


def network(operator: Any) -> nn.Module:
    """The operator between layers; its result could be overwritten by the sum."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).sin()
        given = operator(y)
        total = given[0] + given[1].cos() if isinstance(given, tuple) else given + y.cos()
        return self.last(total.exp()).square().mean()

    return Made(forward, first=linear(), last=linear())

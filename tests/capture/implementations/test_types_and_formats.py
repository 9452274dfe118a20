"""Every implementation in every type and memory format that it is offered for: as near to PyTorch's own as it says."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.capture.implementations import numerics, outcomes
from tests.capture.implementations.numerics import FORMATS, relative, same_bits
from tests.capture.implementations.outcomes import CASES

APART = {  # dimensions in which a sum keeps to itself; within it, kernels spoil more or fewer entries
    "cross-entropy": 1,
    "attention": 2,
    "causal attention": 2,
}


def listed(given: Any) -> list[Any]:
    """One result or several, as a list."""
    return list(given) if isinstance(given, tuple | list) else [given]


def layout(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Sizes and strides, but for sizes of 1, whose strides mean nothing."""
    return [pair for pair in zip(tensor.shape, tensor.stride(), strict=True) if pair[0] > 1]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, (_, types) in CASES.items() for dtype in types])
def test_no_result_is_further_from_pytorch_or_float64_than_stated(name, dtype, form):
    for number, outcome in enumerate(CASES[name][0](dtype, form)):
        exact = listed(outcome.exact) if outcome.exact is not None else [None] * len(listed(outcome.own))
        for found, own, right in zip(listed(outcome.found), listed(outcome.own), exact, strict=True):
            assert found.dtype == own.dtype
            assert layout(found) == layout(own), (name, number)
            if outcome.tolerance == 0:
                assert same_bits(found, own), (name, number)
            assert relative(found, own) <= outcome.tolerance, (name, number)
            if right is not None:
                assert relative(found, right) <= max(outcome.tolerance, 2 * relative(own, right)), (name, number)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", [name for name in CASES if name != "relu6"])  # of NaN, see `hardtanh_bits`
def test_nan_and_infinity_spoil_what_they_spoil_in_pytorch(name, form, value, monkeypatch):
    def spoiled(*shape: int, seed: int = 0, **settings: Any) -> torch.Tensor:
        made = numerics.random(*shape, seed=seed, **settings)
        if seed == 0:  # what the operation reads
            made[(len(made) // 2, 1, *[0] * (made.dim() - 2))] = value
        return made

    def sound(tensor: torch.Tensor) -> torch.Tensor:
        finite, dims = tensor.isfinite(), APART.get(name, tensor.dim())
        return finite if dims >= tensor.dim() else finite.flatten(dims).all(-1)

    monkeypatch.setattr(outcomes, "random", spoiled)
    for number, outcome in enumerate(CASES[name][0](torch.float32, form)):
        for found, own in zip(listed(outcome.found), listed(outcome.own), strict=True):
            assert torch.equal(sound(found), sound(own)), (name, number)

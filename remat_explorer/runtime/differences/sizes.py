"""How far one result of a plan is from plain PyTorch's, beside the rounding of its dtype."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

FEW_UNITS = 8  # of rounding: a sum of many numbers may be off by so much
MANY_UNITS, FAR = 1000, 0.01  # or of the largest entry: beyond a few units and one of these, far more than a rounding

Kind = Literal["output", "gradient", "buffer"]


@dataclass(frozen=True)
class Difference:
    """One result that is not plain PyTorch's.

    Attributes:
        kind: "output" (the loss is one), "gradient" or "buffer".
        name: of the parameter or the buffer, or "loss", "output", "output 1".
        dtype: "float32".
        largest: largest absolute difference of two entries; infinite where only one of them is a number, where shapes
            differ, and where only one of the two runs has the result.
        relative: ``largest`` over the largest magnitude of the entries that are finite; infinite where there is none.
        units: ``relative`` in units of the dtype's rounding (its eps); None if it does not round.
        units_of_all: of a gradient, the same beside the largest entry of all gradients: one that should be zero, as of
            a bias before a batch norm, is what rounding left over of larger numbers. Else as ``units``.
        only_in: "the plan" or "plain PyTorch" where the other one has no such result, else "".
    """

    kind: Kind
    name: str
    dtype: str
    largest: float
    relative: float
    units: float | None
    units_of_all: float | None
    only_in: str = ""

    @property
    def size(self) -> str:
        """How large it is, in words.

        >>> Difference("gradient", "weight", "float32", 2.1e-7, 2.1e-7, 1.77, 1.77).size
        "2.1e-07 (1.8 units of float32's rounding)"
        >>> Difference("gradient", "weight", "float32", 0.5, 0.5, 4.19e6, 1e6).size
        "0.5 (4.2e+06 units of float32's rounding: far more than a rounding)"
        >>> Difference("gradient", "bias", "float32", 2.1e-7, 1.0, 8.4e6, 0.4).size
        "2.1e-07 (0.4 units of float32's rounding beside the largest gradient, 8.4e+06 beside its own entries)"
        """
        if math.isinf(self.largest):
            return "no finite number"
        if self.units is None or self.units_of_all is None:
            return f"{self.largest:.3g} ({self.dtype})"
        rounding = f"units of {self.dtype}'s rounding"
        if self.units <= FEW_UNITS or (self.units <= MANY_UNITS and self.relative <= FAR):
            return f"{self.largest:.3g} ({self.units:.2g} {rounding})"
        if self.units_of_all > FEW_UNITS:
            return f"{self.largest:.3g} ({self.units:.2g} {rounding}: far more than a rounding)"
        return (
            f"{self.largest:.3g} ({self.units_of_all:.2g} {rounding} beside the largest gradient, {self.units:.2g} "
            "beside its own entries)"
        )

    def beside(self, magnitude: float) -> Difference:
        """The same with `units_of_all`, where the largest entry of all has this magnitude.

        >>> Difference("gradient", "bias", "float32", 2e-7, 1.0, 8e6, 8e6).beside(4e-7).units_of_all
        4000000.0
        """
        if self.units is None or not math.isfinite(self.relative):
            return self
        own = self.largest / self.relative
        return replace(self, units_of_all=self.units * own / max(own, magnitude))

    def to_document(self) -> dict[str, Any]:
        """As a JSON object; infinite numbers are null there."""
        numbers = {key: getattr(self, key) for key in ("largest", "relative", "units", "units_of_all")}
        finite = {key: value if value is not None and math.isfinite(value) else None for key, value in numbers.items()}
        return {"kind": self.kind, "name": self.name, "dtype": self.dtype, **finite, "only_in": self.only_in}


def difference_of(kind: Kind, name: str, mine: torch.Tensor | None, theirs: torch.Tensor | None) -> Difference | None:
    """How far the plan's result is from plain PyTorch's, None if they are equal.

    Args:
        mine, theirs: the plan's and plain PyTorch's, None where there is no such result; not both.

    >>> theirs = torch.tensor([2.0, 0.5])
    >>> difference_of("gradient", "weight", theirs - torch.tensor([2.0, 0.0]) * 2**-23, theirs).units
    1.0
    >>> difference_of("gradient", "weight", theirs, theirs) is None
    True
    """
    if mine is None or theirs is None:
        present = mine if mine is not None else theirs
        assert present is not None
        alone = "plain PyTorch" if mine is None else "the plan"
        units = _units(math.inf, present)
        return Difference(kind, name, _dtype(present), math.inf, math.inf, units, units, alone)
    if same(mine, theirs):
        return None
    largest = largest_difference(mine, theirs)
    magnitude = max(largest_magnitude(mine), largest_magnitude(theirs))
    relative = largest / magnitude if magnitude else math.inf
    units = _units(relative, theirs)
    return Difference(kind, name, _dtype(theirs), largest, relative, units, units)


def largest_difference(first: torch.Tensor, second: torch.Tensor) -> float:
    """Largest absolute difference, infinite where shapes differ or only one of two entries is a number.

    >>> largest_difference(torch.tensor([1.0, float("nan")]), torch.tensor([3.0, float("nan")]))
    2.0
    """
    if first.shape != second.shape:
        return math.inf
    if same(first, second):
        return 0.0
    first, second = _wide(first), _wide(second)
    alike = (first == second) | (first.isnan() & second.isnan())  # infinities have no difference
    gap = (first - second).abs().masked_fill(alike, 0).max().item()
    return gap if gap == gap else math.inf


def same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Equal in every entry; entries that are no number in both count as equal.

    >>> same(torch.tensor([0.0, float("nan")]), torch.tensor([-0.0, float("nan")]))
    True
    """
    if first.shape != second.shape:
        return False
    first, second = first.cpu(), second.cpu()
    equal = first == second
    if first.is_floating_point() or first.is_complex():
        equal |= first.isnan() & second.isnan()
    return bool(equal.all())


def largest_magnitude(tensor: torch.Tensor) -> float:
    """Of the entries that are finite; 0 if there is none.

    >>> largest_magnitude(torch.tensor([-2.0, float("inf")]))
    2.0
    """
    sizes = _wide(tensor).abs()
    sizes = sizes[sizes.isfinite()]
    return sizes.max().item() if sizes.numel() else 0.0


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().to(torch.complex128 if tensor.is_complex() else torch.float64)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _units(relative: float, tensor: torch.Tensor) -> float | None:
    rounds = tensor.is_floating_point() or tensor.is_complex()
    return relative / torch.finfo(tensor.dtype).eps if rounds else None

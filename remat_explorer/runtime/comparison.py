"""How far the results of a plan are from those of plain autograd, beside the rounding of their dtypes.

`compare` gives a `Comparison` of `Difference`s; `FirstDifference` is where they begin, as people are told.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from remat_explorer.runtime.interpreter import StepOutcome

MAX_SHOWN = 3  # differences that are named
VARIATION_FACTOR = 10  # times what plain PyTorch differs from itself: two pairs of runs differ by other amounts


def compare(final: FinalState, reference: FinalState, initial: Mapping[str, torch.Tensor]) -> Comparison:
    """Compare what a plan leaves behind with what plain autograd does.

    Args:
        final: the plan's; it has only the buffers that a training step writes.
        reference: plain autograd's, with every buffer.
        initial: contents of the buffers before the step.
    """
    mine, theirs = final.outcome, reference.outcome
    pairs: dict[Kind, tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]] = {
        "output": (_named(mine.outputs), _named(theirs.outputs)),
        "gradient": (mine.gradients, theirs.gradients),
        "buffer": ({**initial, **mine.buffers}, theirs.buffers),
    }
    names = {kind: list(dict.fromkeys((*theirs, *mine))) for kind, (mine, theirs) in pairs.items()}
    found = [
        difference
        for kind, (mine, theirs) in pairs.items()
        for name in names[kind]
        if (difference := difference_between(kind, name, mine.get(name), theirs.get(name))) is not None
    ]
    largest: dict[Kind, float] = {}
    for difference in found:
        largest[difference.kind] = max(largest.get(difference.kind, 0.0), difference.largest)
    if "gradient" in largest:
        magnitude = max(map(largest_magnitude, reference.outcome.gradients.values()), default=0.0)
        found = [one.beside(magnitude) if one.kind == "gradient" else one for one in found]
    return Comparison(
        largest.get("output", 0.0),
        largest.get("gradient", 0.0),
        "gradient" not in largest,
        "buffer" not in largest,
        all(np.array_equal(*pair) for pair in zip(final.states, reference.states, strict=True)),
        tuple(sorted(found, key=lambda one: -one.largest)),
        len(names["gradient"]),
        len(names["buffer"]),
    )


@dataclass(frozen=True)
class Comparison:
    """Largest absolute differences of loss (or outputs) and gradients, and what is equal bit for bit.

    Attributes:
        loss_difference, gradient_difference: infinite where there is no finite number, as `Difference.largest` is.
        gradients_equal, buffers_equal, random_state_equal: bit for bit, with the same names.
        differences: every output, gradient and buffer that differs, largest first.
        gradients_compared, buffers_compared: how many there are in both together.
        begins: where the difference begins; None if there is none, or if nobody looked for it.
        varying: how far plain PyTorch is from itself when it runs again, as with kernels that add up in any order.
    """

    loss_difference: float
    gradient_difference: float
    gradients_equal: bool
    buffers_equal: bool
    random_state_equal: bool
    differences: tuple[Difference, ...] = ()
    gradients_compared: int = 0
    buffers_compared: int = 0
    begins: FirstDifference | None = None
    varying: tuple[Difference, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether everything is equal bit for bit."""
        return self.loss_difference == 0 and self.gradients_equal and self.buffers_equal and self.random_state_equal

    @property
    def as_plain_varies(self) -> bool:
        """Whether results differ, but only those that plain PyTorch does not repeat either, and by about as much."""
        return bool(self.differences) and self.random_state_equal and not self._beyond(self.differences)

    @property
    def gradients_text(self) -> str:
        """The gradients in words: "equal: max difference 0", or how many differ, by how much, and which most."""
        if self.gradients_equal:
            return f"equal: max difference {self.gradient_difference:g}"
        return self._verdict("DIFFER", "gradient", self.gradients_compared)

    @property
    def loss_text(self) -> str:
        """The loss or the outputs in words."""
        if self.loss_difference == 0:
            return "difference 0"
        return self._verdict("DIFFERS", "output")

    @property
    def buffers_text(self) -> str:
        """The buffers in words."""
        return "equal" if self.buffers_equal else self._verdict("DIFFER", "buffer", self.buffers_compared)

    @property
    def random_state_text(self) -> str:
        """The state of the random number generators in words."""
        return "equal" if self.random_state_equal else "DIFFERS"

    @property
    def begins_text(self) -> str:
        """Where the difference begins, or ""."""
        return self.begins.text if self.begins else ""

    def __str__(self) -> str:
        lines = [
            f"gradients {self.gradients_text}",
            f"loss: {self.loss_text}; buffers {self.buffers_text}; random state {self.random_state_text}",
        ]
        return "\n".join([*lines, self.begins_text] if self.begins else lines)

    def to_document(self) -> dict[str, Any]:
        """As a JSON object; infinite numbers are null there."""
        return {
            "loss_difference": _finite(self.loss_difference),
            "gradient_difference": _finite(self.gradient_difference),
            "gradients_equal": self.gradients_equal,
            "buffers_equal": self.buffers_equal,
            "random_state_equal": self.random_state_equal,
            "gradients_compared": self.gradients_compared,
            "buffers_compared": self.buffers_compared,
            "differences": [difference.to_document() for difference in self.differences],
            "difference_begins": self.begins.to_document() if self.begins else None,
            "varying": [difference.to_document() for difference in self.varying],
            "as_plain_varies": self.as_plain_varies,
        }

    def _beyond(self, found: Iterable[Difference]) -> list[Difference]:
        """Those of results that plain PyTorch repeats, or that are much larger than its own variation."""
        own = {(one.kind, one.name): one.largest for one in self.varying}
        return [one for one in found if not one.largest <= VARIATION_FACTOR * own.get((one.kind, one.name), 0.0)]

    def _verdict(self, differ: str, kind: Kind, of: int = 0) -> str:
        found = [difference for difference in self.differences if difference.kind == kind]
        beyond = self._beyond(found)
        if beyond:
            rest = len(found) - len(beyond)
            more = f"; {rest} more vary in plain PyTorch, too" if rest else ""
            return f"{differ} {self._sizes(beyond, of)}{more}"
        own = [difference for difference in self.varying if difference.kind == kind]
        vary = "varies as plain PyTorch's does" if differ == "DIFFERS" else "vary as plain PyTorch's do"
        return f"{vary}, which differs from itself {self._sizes(own, of)}; the plan from it {self._sizes(found, of)}"

    def _sizes(self, found: list[Difference], of: int = 0) -> str:
        both = [difference for difference in found if not difference.only_in]
        parts = [f"in {len(found)} of {of}"] if of else []
        if both:
            first, *rest = both[:MAX_SHOWN]
            parts.append(f"by at most {first.size} in {first.name!r}")
            parts += [f"{difference.largest:.3g} in {difference.name!r}" for difference in rest]
        for run in ("the plan", "plain PyTorch"):
            names = [repr(difference.name) for difference in found if difference.only_in == run]
            if names:
                more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
                parts.append(f"only {run} has one for {', '.join(names[:MAX_SHOWN])}{more}")
        return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class FinalState:
    """What a training step leaves behind: its outcome, and the random state of each generator."""

    outcome: StepOutcome
    states: list[np.ndarray]


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


def difference_between(
    kind: Kind, name: str, mine: torch.Tensor | None, theirs: torch.Tensor | None
) -> Difference | None:
    """How far the plan's result is from plain PyTorch's, None if they are equal; one of both may not be there."""
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
    """Equal in every entry; entries that are no number in both count as equal."""
    if first.shape != second.shape:
        return False
    first, second = first.cpu(), second.cpu()
    equal = first == second
    if first.is_floating_point() or first.is_complex():
        equal |= first.isnan() & second.isnan()
    return bool(equal.all())


def largest_magnitude(tensor: torch.Tensor) -> float:
    """Of the entries that are finite; 0 if there is none."""
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


_ADVICE = "; torch.use_deterministic_algorithms(True) chooses kernels that repeat theirs, where there are such"


@dataclass(frozen=True)
class FirstDifference:
    """The first operation, in the plan's order, that gives what plain PyTorch does not have, or why none is named.

    It reads only what plain PyTorch has, too, and what it gives leads to a result that differs.

    Attributes:
        operation: its number in the graph, or None if none is named.
        name, phase, module, operator, line: of the operation, as the graph has them; "" where not known.
        implementation: the name of the one that ran, "" for the default.
        tolerance: largest error that this implementation may have, relative to the largest entry; 0 if it is exact.
        dtype: of what it gives: "bfloat16".
        statement: index in the plan, or None.
        again: whether the operation had run before, and gave then what plain PyTorch has.
        others: how many more operations begin a difference of their own.
        repeats: whether plain PyTorch, run once more, gave its own results again; None if it did not run.
        reason: why no operation is named, else "".
    """

    operation: int | None = None
    name: str = ""
    phase: str = ""
    module: str = ""
    operator: str = ""
    line: str = ""
    implementation: str = ""
    tolerance: float = 0.0
    dtype: str = ""
    statement: int | None = None
    again: bool = False
    others: int = 0
    repeats: bool | None = None
    reason: str = ""

    @property
    def text(self) -> str:
        """A sentence without its full stop, or two.

        >>> FirstDifference(3, "1 mul", "backward", "1", "mul", "net.py:42", repeats=True).text
        "the difference begins at '1 mul' (backward, net.py:42)"
        >>> FirstDifference(repeats=False, reason="no operation gives what plain PyTorch does not have").text
        'plain PyTorch gives other results when it runs again; no operation gives what plain PyTorch does not have; \
torch.use_deterministic_algorithms(True) chooses kernels that repeat theirs, where there are such'
        """
        varies = "plain PyTorch gives other results when it runs again; " if self.repeats is False else ""
        if self.operation is None:
            return varies + self.reason + (_ADVICE if varies else "")
        where = ", ".join(filter(None, (self.phase, *self._origin, self.line)))
        named = f"{self.name!r} ({where})"
        begins = f"where {named} is computed again (statement {self.statement})" if self.again else f"at {named}"
        parts = [f"the difference begins {begins}"]
        if self.implementation:
            allowed = f", which may differ by {self.tolerance:.0e} of the largest entry" if self.tolerance else ""
            parts.append(f"it ran as {self.implementation!r}{allowed}")
        if self.others:
            are = "1 more operation begins" if self.others == 1 else f"{self.others:,} more operations begin"
            parts.append(f"{are} a difference of its own" if self.others == 1 else f"{are} differences of their own")
        return varies + "; ".join(parts) + (_ADVICE if varies else "")

    @property
    def _origin(self) -> tuple[str, ...]:
        """Operators and dtype, as far as the name does not say them and they tell more."""
        operator = "" if self.operator in self.name else self.operator
        return operator, self.dtype if self.dtype not in ("", "float32") else ""

    def to_document(self) -> dict[str, Any]:
        """As a JSON object, with the sentence."""
        return {**dataclasses.asdict(self), "text": self.text}


def _named(outputs: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    """Outputs by the names that a program gives them; a single number is the loss."""
    if len(outputs) == 1:
        return {"loss" if outputs[0].dim() == 0 else "output": outputs[0]}
    return {f"output {place}": output for place, output in enumerate(outputs)}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None

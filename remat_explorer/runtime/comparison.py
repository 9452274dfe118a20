"""How far the results of a plan are from those of plain autograd."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from remat_explorer.runtime.differences.beginning import Beginning
from remat_explorer.runtime.differences.sizes import Difference, Kind, difference_of, largest_magnitude
from remat_explorer.runtime.outcome import StepOutcome

SHOWN = 3  # differences that are named
AS_MUCH = 10  # times what plain PyTorch differs from itself: two pairs of runs differ by other amounts


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
    begins: Beginning | None = None
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
        return [one for one in found if not one.largest <= AS_MUCH * own.get((one.kind, one.name), 0.0)]

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
            first, *rest = both[:SHOWN]
            parts.append(f"by at most {first.size} in {first.name!r}")
            parts += [f"{difference.largest:.3g} in {difference.name!r}" for difference in rest]
        for run in ("the plan", "plain PyTorch"):
            names = [repr(difference.name) for difference in found if difference.only_in == run]
            if names:
                more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                parts.append(f"only {run} has one for {', '.join(names[:SHOWN])}{more}")
        return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class Final:
    """What a training step leaves behind: its outcome, and the random state of each generator."""

    outcome: StepOutcome
    states: list[np.ndarray]


def compare(final: Final, reference: Final, initial: Mapping[str, torch.Tensor]) -> Comparison:
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
        if (difference := difference_of(kind, name, mine.get(name), theirs.get(name))) is not None
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


def _named(outputs: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
    """Outputs by the names that a program gives them; a single number is the loss."""
    if len(outputs) == 1:
        return {"loss" if outputs[0].dim() == 0 else "output": outputs[0]}
    return {f"output {place}": output for place, output in enumerate(outputs)}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None

"""The answer to whether a training step fits, as text and for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remat_explorer.fit.optimizers import OPTIMIZERS, Recipe
from remat_explorer.fit.reach import Reach
from remat_explorer.plain_text import one_line
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds
from remat_explorer.solution import Solution

VERDICTS = {
    "yes": "fits",
    "recompute": "fits with recomputation",
    "unknown": "not known",
    "no": "does not fit",
}


@dataclass(frozen=True)
class Alternative:
    """Another recipe: the bytes that it adds to a step, and whether the step fits then, a key of `VERDICTS`."""

    recipe: Recipe
    extra_bytes: int
    verdict: str

    @property
    def words(self) -> str:
        """The verdict in words."""
        return VERDICTS[self.verdict]


@dataclass(frozen=True)
class Fit:
    """Whether a training step fits into a memory.

    Attributes:
        name: of the model.
        memory: bytes that were given.
        recipe: optimizer, master weights, type of the gradients.
        size: batch and tokens, as they are said.
        parameters: numbers that are trained.
        dtype: their type.
        shares: bytes by what takes them where everything is kept, at the peak.
        largest: name and bytes of the operation that needs the most for itself, with what has to be there for it.
        keep_all: bytes where everything is kept.
        least: bytes below which no schedule fits, proven.
        known: the fewest bytes that a known schedule needs; None where none was found.
        solution: of the step within the memory.
        costs: whose published rates gave the costs.
        step_seconds: predicted, where everything is computed once.
        reserved: bytes that PyTorch's allocator would take for the schedule, predicted; None without one.
        batch, sequence: of the step; None where there is no such size.
        reach: how much larger it may be; None where that is not known.
        alternatives: other recipes.
        seconds: wall time of the answer.
    """

    name: str
    memory: int
    recipe: Recipe
    size: str
    parameters: int
    dtype: str
    shares: Mapping[str, int]
    largest: tuple[str, int]
    keep_all: int
    least: int
    known: int | None
    solution: Solution
    costs: str
    step_seconds: float
    reserved: int | None
    batch: int | None
    sequence: int | None
    reach: Reach | None
    alternatives: Sequence[Alternative]
    seconds: float

    @property
    def verdict(self) -> str:
        """A key of `VERDICTS`: "yes", "recompute", "unknown" or "no", which is proven."""
        return verdict_of(self.memory, self.keep_all, self.least, self.known)

    def largest_of(self, kind: str) -> tuple[int, int, int] | None:
        """The largest "batch" or longest "sequence" without recomputation, with it, and a bound on every schedule's."""
        reach, others = self.reach, {"batch": self.sequence, "sequence": self.batch}[kind]
        if reach is None or (kind == "sequence" and self.sequence is None):
            return None
        per = (others or 1) if reach.unit == "tokens" else 1
        return reach.kept // per, reach.found // per, reach.bound // per

    def to_document(self) -> dict[str, Any]:
        """Everything but the schedule, for JSON."""
        names = ("name", "memory", "size", "parameters", "dtype", "keep_all", "least", "known", "verdict", "costs")
        document = {name: getattr(self, name) for name in (*names, "step_seconds", "reserved", "seconds")}
        schedule = self.solution.schedule
        return document | {
            "optimizer": self.recipe.optimizer,
            "master_weights": self.recipe.master_weights,
            "full_gradients": self.recipe.full_gradients,
            "shares": dict(self.shares),
            "largest_operation": {"name": self.largest[0], "bytes": self.largest[1]},
            "peak": self.solution.peak,
            "overhead": None if schedule is None else schedule.overhead,
            "largest_batch": self.largest_of("batch"),
            "longest_sequence": self.largest_of("sequence"),
            "overhead_at_largest": None if self.reach is None else self.reach.overhead,
            "alternatives": [
                {"recipe": str(other.recipe), "extra_bytes": other.extra_bytes, "verdict": other.verdict}
                for other in self.alternatives
            ],
        }

    def __str__(self) -> str:
        lines = [self.asked, "", self.decided, "", "What takes the memory if everything is kept:"]
        width = max(map(len, self.shares))
        lines += [f"  {what:{width}}  {format_bytes(count):>9}" for what, count in self.shares.items()]
        lines += [f"  {'together':{width}}  {format_bytes(self.keep_all):>9}"]
        lines += [f"The largest operation, {self.largest[0]!r}, needs {format_bytes(self.largest[1])} by itself."]
        lines += ["", *self.sizes] if self.sizes else []
        lines += ["", f"Other optimizers, at {self.size}, within {format_bytes(self.memory)}:"]
        width = max(len(str(other.recipe)) for other in self.alternatives)
        lines += [
            f"  {other.recipe!s:{width}}  {format_bytes(other.extra_bytes):>9}  {other.words}"
            f"  ({OPTIMIZERS[other.recipe.optimizer].states})"
            for other in self.alternatives
        ]
        return "\n".join(lines)

    @property
    def asked(self) -> str:
        """The step and the recipe, in words."""
        return f"{one_line(self.name)}, {self.size}, {self.parameters:,} parameters in {self.dtype}, {self.recipe}"

    @property
    def decided(self) -> str:
        """Whether the step fits, at which cost, in words."""
        memory, once = format_bytes(self.memory), format_seconds(self.step_seconds)
        if self.verdict == "no":
            return (
                f"Does not fit into {memory}: no schedule needs less than {format_bytes(self.least)}"
                f"{self._known_words()}. Keeping everything needs {format_bytes(self.keep_all)}."
            )
        schedule, peak = self.solution.schedule, self.solution.peak
        if schedule is None or peak is None:
            return (
                f"Not known: no schedule was found in time for {memory}. Keeping everything needs "
                f"{format_bytes(self.keep_all)}; no schedule needs less than {format_bytes(self.least)}"
                f"{self._known_words()}."
            )
        needs = f"needs {format_bytes(peak)}{self._reserved_words()}"
        if self.verdict == "yes":
            return f"Fits into {memory} without recomputation: it {needs}. A step takes about {once}."
        seconds = format_seconds(self.step_seconds * schedule.overhead)
        least = schedule.overhead * (1 - (self.solution.gap or 0.0))
        better = "" if not least < schedule.overhead else f" (no schedule costs less than {format_overhead(least)})"
        return (
            f"Fits into {memory} with recomputation, for {format_overhead(schedule.overhead)} time{better}: it "
            f"{needs}. A step takes about {seconds}, {once} if everything is kept "
            f"({format_bytes(self.keep_all)}), at the rates of {self.costs}."
        )

    def _known_words(self) -> str:
        """The smallest memory with a known schedule."""
        return "" if self.known is None else f", and one is known for {format_bytes(self.known)}"

    def _reserved_words(self) -> str:
        """Up to how much PyTorch's allocator makes of the bytes that tensors ask for."""
        if self.reserved is None:
            return ""
        beyond = ", more than the device has" if self.reserved > self.memory else ""
        return f", or up to {format_bytes(self.reserved)} as PyTorch's allocator lays tensors out{beyond}"

    @property
    def sizes(self) -> list[str]:
        """The largest batch and the longest sequence, in words."""
        lines = []
        words = {"batch": "Largest batch", "sequence": "Longest sequence"}
        for kind, title in words.items():
            found = self.largest_of(kind)
            if found is not None and self.reach is not None:
                kept, known, bound = found
                cost = self.reach.overhead
                dear = f", for about {format_overhead(cost)}" if cost is not None and known > kept else ""
                lines.append(
                    f"{title}: {kept} without recomputation, {known} with it{dear}; no schedule fits more than {bound}."
                )
        if self.reach is not None and not self.reach.measured:
            lines.append("(Values and costs are assumed to grow in proportion.)")
        return lines


def verdict_of(memory: int, keep_all: int, least: int, known: int | None) -> str:
    """A key of `VERDICTS`, from bytes: what is there, what keeping everything needs, a bound, and a known peak.

    >>> verdict_of(10, 8, 3, None), verdict_of(7, 8, 3, 6), verdict_of(5, 8, 3, 6), verdict_of(2, 8, 3, 6)
    ('yes', 'recompute', 'unknown', 'no')
    """
    if keep_all <= memory:
        return "yes"
    if memory < least:
        return "no"
    return "recompute" if known is not None and known <= memory else "unknown"

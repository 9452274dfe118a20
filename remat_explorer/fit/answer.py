"""Whether a training step fits: what takes its memory, how much larger it may be, and the answer as text and for JSON.

How much larger: schedules for multiples of a graph, from below, and a bound, from above.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remat_explorer.checker import check_schedule
from remat_explorer.errors import ScheduleError
from remat_explorer.explanations import alive_at
from remat_explorer.fit.optimizers import OPTIMIZERS, Recipe, Weight
from remat_explorer.graph import Graph
from remat_explorer.plain_text import one_line
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds
from remat_explorer.solvers import (
    BatchProblem,
    BatchScaling,
    CondensedGraph,
    Solution,
    checkpoint_all,
    checkpoint_all_peak,
    largest_operation_batch,
    plan_schedule,
)


def shares_at_peak(step: Graph, recipe: Recipe, weights: Sequence[Weight]) -> dict[str, int]:
    """Bytes by what takes them at the peak of keeping everything; they add up to it.

    Args:
        step: the graph, whose resident bytes have what the recipe adds.
        recipe: optimizer, master weights, and type of the gradients.
        weights: the parameters that are trained.
    """
    found = alive_at(Plan.of(checkpoint_all(step)))
    values = {row.value: row.bytes for row in found.rows if row.kind == "value" and row.value is not None}
    gradients = sum(count for v, count in values.items() if step.persistent[v] and step.is_backward[step.producer[v]])
    workspace = sum(row.bytes for row in found.rows if row.kind == "workspace")
    parameters, wider = sum(weight.nbytes for weight in weights), recipe.gradient_bytes(weights)
    state, master = recipe.state_bytes(weights), recipe.master_bytes(weights)
    shares = {
        "parameters": parameters,
        "master weights": master,
        "optimizer": state,
        "gradients": gradients + wider,
        "activations": sum(values.values()) - gradients,
        "workspace": workspace,
    }
    shares["inputs, buffers, frozen"] = found.total - sum(shares.values())
    return {what: count for what, count in shares.items() if count}


PLANNING = 3.0  # seconds for one size, at most
CLOSE = 1.03  # two sizes between which nothing more is tried


@dataclass(frozen=True)
class Reach:
    """How many units, tokens or examples, a step may have.

    Attributes:
        unit: "tokens" or "examples".
        kept: the most without recomputation, 0 for none.
        found: the most with recomputation that a checked schedule is known for.
        bound: no schedule has more, since one operation alone would not fit.
        operation: that operation's name.
        overhead: of the schedule for ``found``, in relation to computing everything once; None where there is none.
        measured: whether two captures told what grows, or the rule of `BatchScaling.by_rule` did.
    """

    unit: str
    kept: int
    found: int
    bound: int
    operation: str
    overhead: float | None
    measured: bool


def reach_of(
    scaling: BatchScaling,
    unit: str,
    memory: int,
    seconds: float,
    cancelled: Callable[[], bool] = lambda: False,
    known: tuple[int, float] = (0, 1.0),
) -> Reach:
    """How many units fit into ``memory``, by bisection with the planner.

    Args:
        scaling: what a step with any number of units needs.
        unit: what they are called.
        memory: bytes, resident bytes included.
        seconds: wall time, at most.
        cancelled: asked between sizes.
        known: units for which a schedule within the memory is known, 0 for none, and its overhead.

    >>> from remat_explorer.instances import linear
    >>> found = reach_of(BatchScaling.by_rule(linear(8)), "examples", 1000, 5.0)
    >>> found.kept, found.bound, found.kept < found.found <= found.bound
    (100, 333, True)
    """
    end = time.monotonic() + seconds
    bound, operation = largest_operation_batch(BatchProblem(scaling, memory, None))
    kept = _most_kept(scaling, memory, bound)
    found, overhead = (kept, 1.0) if kept >= known[0] else known
    low, high = found, bound + 1
    asked = 2 * low
    while high > CLOSE * low and high - low > 1 and time.monotonic() < end and not cancelled():
        size = min(max(asked, low + 1), high - 1)
        cost = _cost_at(scaling.at(size), memory, min(PLANNING, end - time.monotonic()), cancelled)
        if cost is None:
            high = size
        else:
            low = found = size
            overhead = cost
        asked = math.isqrt(low * high)
    name = scaling.graph.operations[operation].name
    return Reach(unit, kept, found, max(bound, found), name, overhead if found else None, scaling.measured)


def smallest_known(
    graph: Graph, budgets: Sequence[int], end: float, cancelled: Callable[[], bool] = lambda: False
) -> int | None:
    """Peak of a schedule for the first of ``budgets`` with one, or None until the time is up.

    Args:
        graph: of the step.
        budgets: bytes, ascending.
        end: of the time, on the monotonic clock.
        cancelled: asked between budgets.

    >>> from remat_explorer.instances import linear
    >>> smallest_known(linear(8), [2, 4, 6], time.monotonic() + 5)
    4
    """
    for budget in budgets:
        if cancelled() or time.monotonic() > end:
            return None
        schedule = plan_schedule(CondensedGraph.of(graph), budget, min(PLANNING, end - time.monotonic()), cancelled)
        if schedule is not None:
            return check_schedule(schedule, budget).peak
    return None


def _most_kept(scaling: BatchScaling, memory: int, most: int) -> int:
    """The most units at which keeping everything fits, by bisection."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if checkpoint_all_peak(scaling.at(middle)) <= memory else (low, middle)
    return low


def _cost_at(graph: Graph, memory: int, seconds: float, cancelled: Callable[[], bool]) -> float | None:
    """The overhead of a checked schedule within the memory, or None where none was found."""
    schedule = plan_schedule(CondensedGraph.of(graph), memory, seconds, cancelled)
    if schedule is None:
        return None
    try:
        return check_schedule(schedule, memory).cost / graph.total_cost
    except ScheduleError:
        return None


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

"""The search for the best policy of PyTorch's checkpoints within a budget: which modules, and what is saved in them.

It begins with what people type by hand, so that it never gives anything more expensive: a checkpoint around every
n-th layer, around the first layers, and around all modules that are alike. Each that fits is improved as long as it
fits, by removing a checkpoint or by saving what an operation writes, those first that save most cost per byte. Then
checkpoints are put around more of the best one, modules that are alike together or each alone, which makes room for
others to be improved; and in the end around modules at random, until time or rounds are up.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from remat_explorer.checker import replay
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.framework_rules.autograd_order import region_plan, second_run_of
from remat_explorer.solvers.framework_rules.layers import layers_of
from remat_explorer.solvers.framework_rules.module_regions import (
    ModuleRegion,
    calls_of,
    is_random_region,
    module_regions,
    region_of,
)
from remat_explorer.solvers.framework_rules.regions import Region

RANDOM_STATE_BYTES = 5056  # what torch.get_rng_state() takes, kept by each region that draws random numbers
ROUNDS = 60
UNDONE = 3  # modules that a round recomputes as a whole

Choice = Mapping[ModuleRegion, frozenset[int]]
"""What is saved in each module that has a checkpoint."""


class PolicySearch:
    """The search on one graph.

    Args:
        graph: of operations with a single implementation, which knows its modules and calls.
        budget: bytes, resident bytes included.
        cancelled: asked between evaluations, each of which takes milliseconds.

    Raises:
        SolverError: if the graph has several implementations, or operations that are several calls, or no module can
            have a checkpoint.
    """

    def __init__(self, graph: Graph, budget: int, cancelled: Callable[[], bool] = lambda: False) -> None:
        Condensed.of(graph)  # which refuses operations with several implementations
        if any(len(calls_of(graph, k)) > 1 for k in range(graph.n)):
            raise SolverError(
                f"{graph.name!r} has operations that are several calls of PyTorch, which runs and saves each by "
                "itself: capture it with contract=False, --no-contract"
            )
        self.graph, self.budget, self._cancelled = graph, budget, cancelled
        self.modules = module_regions(graph)
        if not self.modules:
            why = "a policy needs a graph that was captured in this process, as files do not hold calls"
            if graph.example is not None:
                why = (
                    "one that is called several times has none, such as an activation that all blocks share (make one "
                    "for each block), nor one that saves nothing which it can compute again"
                )
            raise SolverError(
                f"no module of {graph.name!r} can have a checkpoint: {why}; nor has one that changes a buffer, as "
                "batch normalization does"
            )
        self._known: dict[frozenset[tuple[str, frozenset[int]]], tuple[float, int]] = {}
        self.least = 2**63

    def regions(self, choice: Choice) -> list[Region]:
        """The regions in the order of the forward pass."""
        return [region_of(self.graph, module, saved) for module, saved in sorted(choice.items(), key=_place)]

    def evaluate(self, choice: Choice) -> tuple[float, int]:
        """Cost and peak bytes, as PyTorch runs it; by the checker."""
        key = frozenset((module.module, saved) for module, saved in choice.items())
        if key not in self._known:
            if self._cancelled():
                raise SolverError("the search for a policy was cancelled")
            cost, peak = replay(region_plan(self.graph, self.regions(choice)))
            states = sum(is_random_region(self.graph, module.operations) for module in choice)
            self._known[key] = cost, peak + RANDOM_STATE_BYTES * states
            self.least = min(self.least, self._known[key][1])
        return self._known[key]

    def fits(self, choice: Choice) -> bool:
        """Whether it is within the budget."""
        return self.evaluate(choice)[1] <= self.budget

    def run(self, time_limit: float, rounds: int = ROUNDS) -> Choice:
        """The cheapest policy that was found.

        Raises:
            SolverError: if none fits, or it was cancelled.
        """
        end = time.monotonic() + time_limit
        found = [choice for choice in self.starts() if self.fits(choice)]
        if not found:
            raise SolverError(
                f"no policy was found that fits into {format_bytes(self.budget)}; the smallest one takes "
                f"{format_bytes(self.least)}, so give {self.least} bytes or more"
            )
        best = min(found, key=self.evaluate)
        for choice in sorted(found, key=self.evaluate):
            best = min(best, self._improved(choice, end), key=self.evaluate)
        before, draw = None, random.Random(0)
        while best and best != before:
            before = best
            best = self._with_more(best, [*self._alike(), *([module] for module in self.modules)], end)
        few = min(UNDONE, len(self.modules))
        return self._with_more(best, (draw.sample(self.modules, few) for _ in range(rounds if best else 0)), end)

    def starts(self) -> Iterator[Choice]:
        """What people type by hand."""
        yield {}
        by_operations = {module.operations: module for module in self.modules}
        layers = [
            by_operations[layer.operations] for layer in layers_of(self.graph) if layer.operations in by_operations
        ]
        groups: list[Sequence[ModuleRegion]] = [layers[::n] for n in range(1, len(layers) + 1)]
        groups += [layers[:n] for n in range(1, len(layers))]
        groups += self._alike()
        for group in groups:
            yield _disjoint(group)
        yield _disjoint([module for module in self.modules if "." not in module.module])

    def _alike(self) -> list[list[ModuleRegion]]:
        """Modules whose paths differ in numbers only."""
        alike: dict[str, list[ModuleRegion]] = {}
        for module in self.modules:
            alike.setdefault(re.sub(r"\b\d+\b", "#", module.module), []).append(module)
        return list(alike.values())

    def _with_more(self, best: Choice, groups: Iterable[Sequence[ModuleRegion]], end: float) -> Choice:
        """The best policy with the modules of one group after the other recomputed as a whole, and then improved."""
        for group in groups:
            if time.monotonic() > end:
                break
            best = min(best, self._improved(self._undone(best, group), end), key=self.evaluate)
        return best

    def _improved(self, choice: Choice, end: float) -> Choice:
        """A policy with what can be added to it one by one, the most cost per byte first."""
        changed = True
        while changed:
            changed = False
            for module, k in self._gains(choice):
                if time.monotonic() > end:
                    return choice
                if module not in choice:
                    continue
                now = {**choice, module: choice[module] | {k}} if k >= 0 else _without(choice, module)
                if self.fits(now) and self.evaluate(now)[0] < self.evaluate(choice)[0]:
                    choice, changed = now, True
        return choice

    def _gains(self, choice: Choice) -> list[tuple[ModuleRegion, int]]:
        """Modules with an operation to save, or with -1 to have no checkpoint, by cost per byte."""
        gains: list[tuple[float, ModuleRegion, int]] = []
        bytes_of = self.graph.value_bytes
        for module, saved in choice.items():
            again = second_run_of(self.graph, region_of(self.graph, module, saved))
            runs = again.operations if again else ()
            sizes = {k: sum(int(bytes_of[v]) for v in self.graph.outputs(k)) for k in runs}
            gains += [(self.graph.costs[k] / max(1, sizes[k]), module, k) for k in runs if k in module.savable]
            cost = sum(float(self.graph.costs[k]) for k in runs)
            gains.append((cost / max(1, sum(sizes.values())), module, -1))
        return [(module, k) for _, module, k in sorted(gains, key=lambda gain: -gain[0])]

    def _undone(self, choice: Choice, modules: Iterable[ModuleRegion]) -> Choice:
        """A policy with these modules recomputed as a whole, some of which had no checkpoint before, if it fits."""
        changed = dict(choice)
        for module in modules:
            for other in [one for one in changed if set(one.operations) & set(module.operations)]:
                del changed[other]
            changed[module] = frozenset()
        return changed if self.fits(changed) else choice


def _disjoint(modules: Sequence[ModuleRegion]) -> Choice:
    """A checkpoint around each, the outer one where one is within another."""
    taken, chosen = set[int](), dict[ModuleRegion, frozenset[int]]()
    for module in modules:
        if not taken & set(module.operations):
            taken |= set(module.operations)
            chosen[module] = frozenset()
    return chosen


def _without(choice: Choice, module: ModuleRegion) -> Choice:
    return {other: saved for other, saved in choice.items() if other is not module}


def _place(item: tuple[ModuleRegion, frozenset[int]]) -> int:
    return item[0].operations[0]

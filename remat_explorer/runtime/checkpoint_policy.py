"""A policy: what other people's training code does of rematerialization, with `torch.utils.checkpoint` alone.

`policy` searches for the best one within a budget: around which modules there is a checkpoint, and what is saved
in them. It begins with what people type by hand, so that it never gives anything more expensive: a checkpoint around
every n-th layer, around the first layers, and around all modules that are alike. Each that fits is improved as long as
it fits, by removing a checkpoint or by saving what an operation writes, those first that save most cost per byte. Then
checkpoints are put around more of the best one, modules that are alike together or each alone, which makes room for
others to be improved; and in the end around modules at random, until time or rounds are up.
"""

from __future__ import annotations

import random
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from remat_explorer.checker import replay
from remat_explorer.documents import quote, read_json, write_json
from remat_explorer.entry_checks import (
    Seconds,
    Table,
    as_it_is,
    list_of,
    or_null,
    read_document,
    read_entry,
    require_arguments,
    require_bytes,
    require_list,
    require_number,
    require_text,
    require_whole,
)
from remat_explorer.errors import SolutionError, SolverError
from remat_explorer.files import require_writable
from remat_explorer.graph import Graph
from remat_explorer.plain_text import one_line
from remat_explorer.plan import Plan
from remat_explorer.quantities import exact_bytes, format_bytes, format_overhead, format_share
from remat_explorer.runtime.autograd_order import region_plan, second_run_of
from remat_explorer.runtime.module_regions import (
    ModuleRegion,
    calls_of,
    is_random_region,
    listed_calls,
    module_regions,
    operator_list,
    region_of,
)
from remat_explorer.runtime.peers.policy_check import require_equal
from remat_explorer.solution_summary import PROVEN
from remat_explorer.solvers import CondensedGraph, Region, Solution, layers_of

FORMAT, VERSION = "remat-explorer/policy", 1
_FILE: Table = {
    **dict.fromkeys(("graph", "cost", "peak", "all_once"), as_it_is),
    "budget": require_bytes,
    **dict.fromkeys(("optimum", "lower_bound"), or_null(require_number)),
    "regions": require_list,
}
_REGION: Table = {
    "module": require_text,
    "operators": list_of(require_text),
    "saved": list_of(require_whole),
    "constants": list_of(require_text),
    "random": as_it_is,
}
RANDOM_STATE_BYTES = 5056  # what torch.get_rng_state() takes, kept by each region that draws random numbers
ROUNDS = 60
UNDONE = 3  # modules that a round recomputes as a whole

Choice = Mapping[ModuleRegion, frozenset[int]]
"""What is saved in each module that has a checkpoint."""


@dataclass(frozen=True, eq=False)
class Policy:
    """Modules that are recomputed as a whole, once, but for the operators that are saved.

    Attributes:
        graph: the graph that it was searched on.
        budget: bytes, resident bytes included.
        modules: path and region of each module with a checkpoint, in the order of the forward pass.
        optimum: cost of the solution that it is compared with, or None.
        lower_bound: no schedule of the graph within the budget costs less; None when nothing is proven.
    """

    graph: Graph
    budget: int
    modules: tuple[tuple[str, Region], ...]
    optimum: float | None = None
    lower_bound: float | None = None

    @cached_property
    def plan(self) -> Plan:
        """What PyTorch runs, in its own order."""
        return region_plan(self.graph, [region for _, region in self.modules])

    @property
    def cost(self) -> float:
        """Cost of a step, by the checker, in the unit of the graph's costs."""
        return self._replayed[0]

    @property
    def peak(self) -> int:
        """Predicted peak in bytes, by the checker, with the states of random number generators that regions keep."""
        states = sum(is_random_region(self.graph, region.operations) for _, region in self.modules)
        return self._replayed[1] + RANDOM_STATE_BYTES * states

    @cached_property
    def _replayed(self) -> tuple[float, int]:
        return replay(self.plan)

    @property
    def overhead(self) -> float:
        """Cost as a ratio to computing everything once."""
        return self.cost / self.graph.total_cost

    @property
    def price(self) -> float | None:
        """Cost beyond that of the solution, as a share of it."""
        return None if self.optimum is None else self.cost / self.optimum - 1

    def __str__(self) -> str:
        saved = sum(len(region.saved) for _, region in self.modules)
        price = "" if self.price is None else f", {format_share(self.price)} above the solution"
        return (
            f"policy: {len(self.modules)} checkpoints, {saved} operators saved, overhead "
            f"{format_overhead(self.overhead)}, predicted peak {format_bytes(self.peak)} of "
            f"{format_bytes(self.budget)}{price}"
        )

    def to_document(self) -> dict[str, Any]:
        """The policy file as a JSON object, version 1."""
        regions: list[dict[str, Any]] = []
        for module, region in self.modules:
            random = is_random_region(self.graph, region.operations)
            regions.append({"module": module, **operator_list(self.graph, region), "random": random})
        return {
            "format": FORMAT,
            "version": VERSION,
            "graph": {"name": self.graph.name, "sha256": self.graph.sha256},
            "budget": self.budget,
            "cost": self.cost,
            "peak": self.peak,
            "all_once": self.graph.total_cost,
            "optimum": self.optimum,
            "lower_bound": self.lower_bound,
            "regions": regions,
        }

    def save(self, path: str | Path) -> Path:
        """Write the policy file atomically, once a step with it has given what plain PyTorch does.

        The step is the one that the graph was captured from, with the model as it is now. Where it cannot run here, as
        of a model without content, or takes more than the budget, a RuntimeWarning says so, and the file is written.

        Raises:
            SolverError: if loss, gradients, buffers or random numbers differ, or the step fails; nothing is written.
            FileError: if the file cannot be written.
        """
        document = self.to_document()
        if remark := require_equal(self.graph, document["regions"], self.budget):
            warnings.warn(remark, RuntimeWarning, 2)
        return write_json(path, document)

    @staticmethod
    def load(path: str | Path, graph: Graph) -> Policy:
        """Read a policy file of ``graph``, which was captured in this process.

        Raises:
            SolutionError: if the file is no policy, belongs to another graph, has a module or an operator that the
                graph does not have, its cost and peak are not those of its regions, or what it says of budget and
                bound contradicts these.
        """
        document = read_json(path, SolutionError)
        try:
            return _read(document, graph)
        except SolutionError as error:
            raise SolutionError(f"{one_line(str(path))}: {error}") from None


def policy(solution: Solution, time_limit: Seconds = 10.0) -> Policy:
    """The best policy of PyTorch's own checkpoints that is found within the budget of a solution, and its price.

    Modules are recomputed as a whole, once, but for the operators that are saved, so a policy costs more than a
    schedule may; `Policy.price` says how much more than the solution.

    Args:
        solution: whose graph was captured in this process, best with ``contract=False``, so that each call of PyTorch
            is an operation that may be saved.
        time_limit: seconds of the search.

    Raises:
        SolverError: if none fits, the graph was not captured in this process, or no module can have a checkpoint.
    """
    require_arguments(policy, locals())
    search = PolicySearch(solution.graph, solution.budget)
    choice = search.run(time_limit)
    names = {module.operations: module.module for module in choice}
    modules = tuple((names[region.operations], region) for region in search.regions(choice))
    return Policy(solution.graph, solution.budget, modules, solution.cost, solution.lower_bound)


def save_policy(solution: Solution, path: str | Path, time_limit: Seconds = 10.0) -> Path:
    """Write the `policy` of a solution into a file, which training code reads by what `policy --loader` prints.

    Before, a step with it runs on the captured example; it is written only if that gives what plain PyTorch does.

    Args:
        solution, time_limit: as for `policy`.
        path: where to write it; what is there is replaced.

    Raises:
        SolverError: as `policy`, or if the step differs.
        FileError: if the file cannot be written.
    """
    require_arguments(save_policy, locals())
    require_writable(path)  # before the search for it
    return policy(solution, time_limit).save(path)


def _read(document: Any, graph: Graph) -> Policy:
    read = read_document(document, FORMAT, VERSION, SolutionError, _FILE)
    entry = read_entry(read["graph"], "graph", SolutionError, {"name": as_it_is, "sha256": as_it_is})
    if entry["sha256"] != graph.sha256:
        raise SolutionError(
            f"this policy is for another graph, {quote(entry['name'])}, than the one given, {graph.name!r}"
        )
    known = {module.module: module for module in module_regions(graph)}
    modules: list[tuple[str, Region]] = []
    taken: dict[int, str] = {}
    for i, entry in enumerate(read["regions"]):
        region = read_entry(entry, f"regions[{i}]", SolutionError, _REGION)
        path: str = region["module"]
        if path not in known:
            raise SolutionError(f"no checkpoint can be put around a module {quote(path)} of {graph.name!r}")
        modules.append((path, _region(region, graph, known[path])))
        other = next((taken[k] for k in known[path].operations if k in taken), None)
        if other is not None:
            raise SolutionError(f"the region {quote(path)} is there twice, or lies within {quote(other)}")
        taken |= dict.fromkeys(known[path].operations, path)
    policy = Policy(graph, read["budget"], tuple(modules), read["optimum"], read["lower_bound"])
    _require_possible(policy)
    if document != policy.to_document():
        wrong = next(key for key, claim in policy.to_document().items() if document[key] != claim)
        raise SolutionError(
            f"the {wrong} of the file is not that of its regions on this graph: {quote(document[wrong])}"
        )
    return policy


def _require_possible(policy: Policy) -> None:
    """Refuse a budget that the policy exceeds, and what no solution can cost beside it, or no bound can be."""
    optimum, bound, once = policy.optimum, policy.lower_bound, policy.graph.total_cost
    if policy.peak > policy.budget:
        budget, peak = exact_bytes(policy.budget), exact_bytes(policy.peak)
        raise SolutionError(f"the budget of the file is {budget}, but its regions take {peak}")
    if optimum is not None and optimum < once * (1 - PROVEN):
        raise SolutionError(f"the optimum of the file is {optimum!r}, but computing everything once costs {once!r}")
    for cost, what in ((policy.cost, "its regions cost"), (optimum, "its optimum is")):
        if bound is not None and cost is not None and bound > cost * (1 + PROVEN):
            raise SolutionError(f"the lower_bound of the file is {bound!r}, but {what} {cost!r}, which is less")


def _region(entry: dict[str, Any], graph: Graph, module: ModuleRegion) -> Region:
    operators, saved = list(entry["operators"]), list(entry["saved"])
    if any(i >= len(operators) for i in saved) or sorted(set(saved)) != saved:
        raise SolutionError(f"what is saved of {module.module!r} are no places among its operators: {quote(saved)}")
    listed = listed_calls(graph, module.operations, {operators[i] for i in saved}, set(entry["constants"]))
    if [call for call, _ in listed] != operators:
        raise SolutionError(
            f"the operators of {module.module!r} on this graph are not those of the file: {quote(operators)}"
        )
    chosen = frozenset(listed[i][1] for i in saved)
    if not chosen <= module.savable:
        call = calls_of(graph, min(chosen - module.savable))[0]
        raise SolutionError(f"{call} of {module.module!r} cannot be saved: it runs otherwise, or in place, in PyTorch")
    return Region(module.operations, chosen)


class PolicySearch:
    """The search on one graph of single calls with one implementation; the budget includes resident bytes."""

    def __init__(self, graph: Graph, budget: int) -> None:
        CondensedGraph.of(graph)  # which refuses operations with several implementations
        if any(len(calls_of(graph, k)) > 1 for k in range(graph.n)):
            raise SolverError(
                f"{graph.name!r} has operations that are several calls of PyTorch, which runs and saves each by "
                "itself: capture it with contract=False, --no-contract"
            )
        self.graph, self.budget = graph, budget
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
            cost, peak = replay(region_plan(self.graph, self.regions(choice)))
            states = sum(is_random_region(self.graph, module.operations) for module in choice)
            self._known[key] = cost, peak + RANDOM_STATE_BYTES * states
            self.least = min(self.least, self._known[key][1])
        return self._known[key]

    def fits(self, choice: Choice) -> bool:
        """Whether it is within the budget."""
        return self.evaluate(choice)[1] <= self.budget

    def run(self, time_limit: float, rounds: int = ROUNDS) -> Choice:
        """The cheapest policy that was found; a SolverError if none fits."""
        end = time.monotonic() + time_limit
        found = [choice for choice in self.starts() if self.fits(choice)]
        if not found:
            raise SolverError(
                f"no policy was found that fits into {format_bytes(self.budget)}; the smallest one takes "
                f"{exact_bytes(self.least)}; give as much or more"
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

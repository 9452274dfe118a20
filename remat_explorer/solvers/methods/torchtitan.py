"""torchtitan's planners: a linear program shares out the budget among layers, each of which then chooses its values.

The outer program has for each layer the share of its saved bytes that it keeps. It minimizes the time of what is
computed again, and constrains memory at every position of the backward pass: a layer's dropped bytes are free until its
own backward pass begins, and are back from then on. The inner choice of a layer keeps values within its share: the
greedy one those first that take longest per byte to compute again, the knapsack those that take longest together.
Layers that are alike are solved once. What is random is never computed again.

Written from the descriptions of torchtitan's pull requests 3975 (two integer programs) and 4636 (a linear program, then
greedy), both open in September 2026. What differs: only `three_way_plans` move anything to the host's memory, else a
value is kept or computed again; costs and bytes are those of our graph; and what one operation writes is kept or
dropped as a whole. As there, an operation runs again by itself right before it is needed, with what it needs, and then
its values stay; and the programs know nothing of the values that only recomputation needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph, is_random
from remat_explorer.offload import TransferPlan, Transfers
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.method import BackgroundSweep, Candidate, Knob, Method, Support, cheapest_within
from remat_explorer.solvers.methods.regions import (
    Layer,
    Region,
    dropped_values,
    layers_of,
    needed_values,
    plan_with_sends,
)
from remat_explorer.solvers.methods.simple_rules import knapsack
from remat_explorer.solvers.methods.static_policy import schedule_of
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.solver_interface import Answer, Limits, checkpoint_all, checkpoint_all_peak

SHARES = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1)
NEARLY = (1.0, 0.99, 0.98, 0.97, 0.96)  # shares of a budget that the programs are told, which do not count everything
SLACK = 1e-9  # share of a layer's bytes that the linear program's tolerance may take

Choose = Callable[[Sequence[int], Sequence[float], float], set[int]]
"""Which values a layer keeps: bytes and costs of each, and the bytes that fit, give their places."""


def greedy_choice(sizes: Sequence[int], costs: Sequence[float], room: float) -> set[int]:
    """Those that take longest per byte first, as far as they fit."""
    kept: set[int] = set()
    for i in sorted(range(len(sizes)), key=lambda i: -costs[i] / max(1, sizes[i])):
        if sizes[i] <= room:
            kept.add(i)
            room -= sizes[i]
    return kept


@dataclass(frozen=True, eq=False)
class _LayerChoices:
    """What there is to choose in a layer."""

    region: Region
    operations: tuple[int, ...]  # those with saved values that may be computed again, ascending
    sizes: tuple[int, ...]  # bytes of the saved values of each
    costs: tuple[float, ...]
    begins: int  # the operation of the backward pass that first reads one of these values

    @staticmethod
    def of(graph: Graph, layer: Layer) -> _LayerChoices | None:
        """Those of a layer; None where there is nothing to choose."""
        region, sizes, begins = Region(layer.operations), dict[int, int](), graph.n
        for v in needed_values(graph, region):
            k = int(graph.producer[v])
            if not is_random(graph.operations[k]):
                sizes[k] = sizes.get(k, 0) + int(graph.value_bytes[v])
                begins = min(begins, *(reader for reader in graph.readers[v] if graph.is_backward[reader]))
        if not sum(sizes.values()):
            return None
        operations = tuple(sorted(sizes))
        costs = tuple(float(graph.costs[k]) for k in operations)
        return _LayerChoices(region, operations, tuple(sizes[k] for k in operations), costs, begins)


class TwoLevels:
    """The programs of one graph."""

    def __init__(self, graph: Graph, choose: Choose) -> None:
        self.graph, self.choose = graph, choose
        found = (_LayerChoices.of(graph, layer) for layer in layers_of(graph))
        self.layers = [choices for choices in found if choices is not None]
        self._solved: dict[tuple[tuple[int, ...], tuple[float, ...], int], set[int]] = {}

    @cached_property
    def positions(self) -> list[tuple[tuple[int, ...], int]]:
        """Layers whose backward pass is still to come at a position, and the most that is held with these to come.

        Positions with the same layers to come have constraints of which the one with the most bytes implies the others.
        """
        during = checkpoint_all(self.graph).held.during
        most: dict[tuple[int, ...], int] = {}
        for p in np.flatnonzero(self.graph.is_backward).tolist():
            to_come = tuple(i for i, layer in enumerate(self.layers) if layer.begins > p)
            most[to_come] = max(most.get(to_come, 0), int(during[p]))
        return list(most.items())

    def kept_shares(self, budget: float) -> list[float]:
        """The outer program: the share of its bytes that each layer keeps; nothing where the budget is too small.

        ``budget`` is bytes, at every position of the backward pass.
        """
        unit = float(max(1, max((sum(layer.sizes) for layer in self.layers), default=1)))
        cost = max(sum(layer.costs) for layer in self.layers) or 1.0
        program = Milp(relaxed=True)
        dropped = [program.column(sum(layer.costs) / cost) for layer in self.layers]
        for to_come, held in self.positions:
            if held > budget:
                freed = [sum(self.layers[i].sizes) / unit for i in to_come]
                program.row([dropped[i] for i in to_come], freed, ">", (held - budget) / unit)
        outcome = program.solve()
        if outcome.values is None:
            return [0.0] * len(self.layers)
        return [1.0 - min(1.0, max(0.0, float(outcome.values[column]))) for column in dropped]

    def shares(self, budget: float, transfers: Transfers) -> list[tuple[float, float]]:
        """The outer program with a third choice: what each layer computes again, and what it sends."""
        graph, layers = self.graph, self.layers
        unit = float(max(1, max((sum(layer.sizes) for layer in layers), default=1)))
        cost = max((sum(layer.costs) for layer in layers), default=1.0) or 1.0
        sizes = [sum(layer.sizes) / unit for layer in layers]
        program = Milp(relaxed=True)
        again = [program.column(sum(layer.costs) / cost) for layer in layers]
        sent = [program.column(upper=float(transfers.possible)) for _ in layers]
        for one, other in zip(again, sent, strict=True):
            program.row([one, other], [1.0, 1.0], "<", 1.0)
        for to_come, held in self.positions:
            if held > budget:
                columns = [column for i in to_come for column in (again[i], sent[i])]
                program.row(columns, [sizes[i] for i in to_come for _ in range(2)], ">", (held - budget) / unit)
        if transfers.possible:
            done = np.concatenate([[0.0], np.cumsum(graph.costs)])
            turn = int(np.argmax(graph.is_backward))
            for i, layer in enumerate(layers):
                forward = float(done[turn] - done[layer.region.operations[0]])
                backward = float(done[layer.begins] - done[turn])
                for seconds, rate in ((forward, transfers.out), (backward, transfers.back)):
                    if np.isfinite(rate):
                        program.row(sent[i:], sizes[i:], "<", seconds * rate / unit)
            if transfers.host_bytes is not None:
                program.row(sent, sizes, "<", transfers.host_bytes / unit)
        outcome = program.solve()
        if outcome.values is None:
            return [(1.0, 0.0)] * len(layers)
        part = [min(1.0, max(0.0, float(value))) for value in outcome.values]
        return [(part[one], part[other]) for one, other in zip(again, sent, strict=True)]

    def recomputed(self, layer: _LayerChoices, kept_share: float) -> set[int]:
        """The inner choice: the operations of a layer whose saved values are dropped."""
        room = int(kept_share * sum(layer.sizes) * (1 + SLACK))
        key = (layer.sizes, layer.costs, room)
        if key not in self._solved:
            self._solved[key] = self.choose(layer.sizes, layer.costs, room)
        return {k for i, k in enumerate(layer.operations) if i not in self._solved[key]}

    def schedule(self, budget: float) -> Schedule:
        """The schedule for a budget; it may exceed it."""
        graph, kept = self.graph, np.ones(len(self.graph.values), dtype=bool)
        for layer, share in zip(self.layers, self.kept_shares(budget) if self.layers else [], strict=True):
            again = self.recomputed(layer, share)
            needed = set(needed_values(graph, layer.region))
            for v in dropped_values(graph, layer.region):
                k = int(graph.producer[v])
                kept[v] = is_random(graph.operations[k]) or (v in needed and k not in again)
        return schedule_of(graph, partial(_kept_until_backward, graph, kept))


def _memory_shares(graph: Graph) -> tuple[float, ...]:
    """What a sweep tries: the same for each graph."""
    return SHARES


def two_level_candidates(
    graph: Graph, choose: Choose, memory_budget: float | None = None, first: float | None = None
) -> Iterator[Candidate]:
    """The different schedules, from large to small budgets.

    ``memory_budget`` is what the outer program is told, as a share of what keeping everything takes; None tries all, or
    ``first`` and smaller ones.
    """
    CondensedGraph.of(graph)  # which refuses operations with several implementations
    if memory_budget is not None:
        shares: Sequence[float] = (_share(memory_budget),)
    else:
        shares = SHARES if first is None else (first, *(share for share in SHARES if share < first))
    everything = checkpoint_all(graph)
    yield Candidate(everything, "nothing recomputed")
    levels, peak, seen = TwoLevels(graph, choose), checkpoint_all_peak(graph), {everything.sequence}
    for share in shares:
        schedule = levels.schedule(share * peak)
        if schedule.sequence not in seen:
            seen.add(schedule.sequence)
            yield Candidate(schedule, f"memory_budget={share:.3g}")


def three_way_plans(graph: Graph, budget: int, transfers: Transfers) -> Iterator[TransferPlan]:
    """The plans of pull request 4636 as it is described, in which a layer also sends a share of its bytes.

    The outer program prices what is sent at nothing, as far as the copies of a layer and all behind it fit into the
    time of their passes. Of what a layer does not keep, it sends the largest first; they come back while the layer
    behind is differentiated. It is told the budget, and then less and less.
    """
    levels, peak = TwoLevels(graph, greedy_choice), checkpoint_all_peak(graph)
    share = min(1.0, budget / max(1, peak))
    for told in (*(share * near for near in NEARLY), *(one for one in SHARES if one < share)):
        kept, away = np.ones(len(graph.values), dtype=bool), dict[int, int]()
        behind = [*(layer.begins for layer in levels.layers[1:]), graph.n - 1]
        shares = levels.shares(told * peak, transfers)
        for layer, (again, sent), before in zip(levels.layers, shares, behind, strict=True):
            drops = levels.recomputed(layer, max(0.0, 1.0 - again - sent))
            leaving = _largest(layer, drops, sent * sum(layer.sizes) * (1 + SLACK))
            needed = set(needed_values(graph, layer.region))
            for v in dropped_values(graph, layer.region):
                k = int(graph.producer[v])
                kept[v] = is_random(graph.operations[k]) or (v in needed and k not in drops - leaving)
                if v in needed and k in leaving:
                    away[v] = before
        schedule = schedule_of(graph, partial(_kept_until_backward, graph, kept))
        plan = plan_with_sends(schedule, transfers, budget, away)
        if plan is not None:
            yield plan


def _largest(layer: _LayerChoices, among: set[int], room: float) -> set[int]:
    """Of some operations of a layer those with most bytes first, as far as they fit."""
    chosen: set[int] = set()
    for size, k in sorted(zip(layer.sizes, layer.operations, strict=True), reverse=True):
        if k in among and size <= room:
            chosen.add(k)
            room -= size
    return chosen


def _kept_until_backward(graph: Graph, kept: np.ndarray, t: int, held: np.ndarray) -> np.ndarray:
    return np.ones_like(kept) if graph.is_backward[t] else kept


def _share(given: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 1:
        raise SolverError(f"memory_budget is {shown(given)}; expected a share of what keeping everything takes, to 1")
    return float(given)


KNAPSACK: Choose = knapsack


def _method(choose: Choose, summary: str, source: str, symbol: str) -> Method:
    def candidates(graph: Graph, memory_budget: float | None = None) -> Iterator[Candidate]:
        return two_level_candidates(graph, choose, memory_budget)

    def solve(graph: Graph, budget: int, limits: Limits, memory_budget: float | None = None) -> Answer:
        share = budget / max(1, checkpoint_all_peak(graph))
        return cheapest_within(two_level_candidates(graph, choose, memory_budget, share), budget, limits)

    return Method(
        solve,
        summary,
        source,
        general_graphs=Support.YES,
        cost_aware=Support.YES,
        memory_aware=Support.PARTLY,
        knob=Knob("memory_budget", "the budget that it is given, as a share of keeping everything", _memory_shares),
        candidates=candidates,
        symbol=symbol,
        background_sweep=BackgroundSweep.NEVER,
    )


GREEDY = _method(
    greedy_choice,
    "torchtitan's planner: a linear program gives each layer a share of the budget, a greedy rule fills it",
    "torchtitan, pull request 4636",
    "arrow",
)
TWO_LEVEL = _method(
    KNAPSACK,
    "torchtitan's first planner: a linear program gives each layer a share of the budget, a knapsack fills it",
    "torchtitan, pull request 3975",
    "square-x",
)

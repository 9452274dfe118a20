"""Choices of implementations by one rule for all operations, which need no relaxation: the first to be planned with."""

from __future__ import annotations

from collections.abc import Callable

from remat_explorer.solvers.monet.condensed_choices import CondensedImplementation
from remat_explorer.solvers.monet.tables import Tables


def default(tables: Tables) -> dict[int, int]:
    """For every operation its default."""
    return dict.fromkeys(tables.problem.graph.mandatory.tolist(), 1)


def default_or_leaner(tables: Tables) -> dict[int, int]:
    """For every operation its default, or what writes the same for no more time and workspace and reads less.

    Every schedule of default implementations is one of these, for no more time and memory.
    """
    graph, problem = tables.problem.graph, tables.problem
    choice = {}
    for k in graph.mandatory.tolist():
        ways, default = graph.operations[k].implementations, graph.operations[k].default
        codes = [
            way.code
            for way in tables.first[k]
            if set(ways[way.code - 1].inputs) < set(default.inputs)
            and set(ways[way.code - 1].outputs) == set(default.outputs)
            and ways[way.code - 1].cost <= default.cost
            and ways[way.code - 1].workspace <= default.workspace
            and ways[way.code - 1].overwrites == default.overwrites
            and not way.in_place
        ]
        read = {way.code: int(problem.bytes[list(way.inputs)].sum()) for way in tables.first[k]}
        choice[k] = min(codes, key=lambda code: (read[code], ways[code - 1].cost, code), default=1)
    return choice


def cheapest(tables: Tables) -> dict[int, int]:
    """For every operation the cheapest implementation: without recomputation nothing costs less."""
    return _by(tables, lambda k, way: way.cost)


def lightest(tables: Tables) -> dict[int, int]:
    """For every backward operation the implementation that reads the fewest bytes of the forward pass."""
    problem, backward = tables.problem, tables.problem.graph.is_backward

    def saved(k: int, way: CondensedImplementation) -> float:
        if not backward[k]:
            return way.cost
        return float(sum(problem.bytes[v] for v in way.inputs if not backward[problem.producer[v]]))

    return _by(tables, saved)


def smallest(tables: Tables) -> dict[int, int]:
    """For every operation the implementation that needs the least memory while it runs, the last operation first.

    It is one of those that write everything which implementations chosen before read.
    """
    problem = tables.problem
    choice: dict[int, int] = {}
    read: set[int] = set()

    def size(way: CondensedImplementation) -> tuple[int, float, int]:
        needed = int(problem.bytes[list(way.inputs)].sum()) + problem.during(way) - way.credit
        return needed, way.cost, way.code

    for k in reversed(problem.graph.mandatory.tolist()):
        asked = read.intersection(tables.writes[k])
        able = [way for way in tables.first[k] if asked.issubset(way.outputs)]
        least = min(able or tables.first[k], key=size)
        choice[k] = least.code
        read.update(least.inputs)
    return choice


def _by(tables: Tables, size: Callable[[int, CondensedImplementation], float]) -> dict[int, int]:
    """The way of least size for each mandatory operation; of equals the cheapest, then the first."""
    return {
        k: min(tables.first[k], key=lambda way: (size(k, way), way.cost, way.code)).code
        for k in tables.problem.graph.mandatory.tolist()
    }

"""Choices of implementations by one rule for all operations, which need no relaxation: the first to be planned with."""

from __future__ import annotations

from collections.abc import Callable

from remat_explorer.solvers.monet.condensed_choices import Way
from remat_explorer.solvers.monet.tables import Tables


def cheapest(tables: Tables) -> dict[int, int]:
    """For every operation the cheapest implementation: without recomputation nothing costs less."""
    return _by(tables, lambda k, way: way.cost)


def lightest(tables: Tables) -> dict[int, int]:
    """For every backward operation the implementation that reads the fewest bytes of the forward pass."""
    problem, backward = tables.problem, tables.problem.graph.is_backward

    def saved(k: int, way: Way) -> float:
        if not backward[k]:
            return way.cost
        return float(sum(problem.bytes[v] for v in way.inputs if not backward[problem.producer[v]]))

    return _by(tables, saved)


def smallest(tables: Tables) -> dict[int, int]:
    """For every operation the implementation that needs the least memory while it runs."""
    problem = tables.problem
    return _by(tables, lambda k, way: float(sum(problem.bytes[list(way.inputs)]) + problem.during(way) - way.credit))


def _by(tables: Tables, size: Callable[[int, Way], float]) -> dict[int, int]:
    """The way of least size for each mandatory operation; of equals the cheapest, then the first."""
    return {
        k: min(tables.first[k], key=lambda way: (size(k, way), way.cost, way.code)).code
        for k in tables.problem.graph.mandatory.tolist()
    }

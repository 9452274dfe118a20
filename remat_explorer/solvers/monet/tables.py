"""What relaxations of one problem have in common, at whatever budget and moments."""

from __future__ import annotations

import numpy as np

from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, CondensedImplementation


class Tables:
    """What every relaxation of a problem needs to know, worked out once.

    Attributes:
        first: by operation, its ways that a first run may take; none for optional operations.
        plain: of these, those that no other beats in reads, writes and cost.
        again: the same for runs again.
        reads, writes: by operation, groups that any way reads or writes, ascending.
        always: which groups every first run of their operation writes.
        differ: which mandatory operations have ways that write different groups.
    """

    def __init__(self, problem: CondensedChoices) -> None:
        self.problem, graph = problem, problem.graph
        self.mandatory = np.zeros(graph.n, dtype=bool)
        self.mandatory[graph.mandatory] = True
        self.first: list[list[CondensedImplementation]] = [
            [way for way in ways if way.persists and all(problem.producer[v] != k for v in way.inputs)]
            if self.mandatory[k]
            else []
            for k, ways in enumerate(problem.ways)
        ]
        self.plain = [_unbeaten(ways) for ways in self.first]
        self.again = [_unbeaten(list(ways)) for ways in problem.ways]
        self.reads = [sorted({v for way in ways for v in way.inputs}) for ways in problem.ways]
        self.writes = [sorted({v for way in ways for v in way.outputs}) for ways in problem.ways]
        self.always = np.array(
            [
                self.mandatory[k] and all(v in way.outputs for way in self.first[k])
                for v, k in enumerate(problem.producer)
            ],
            dtype=bool,
        )
        self.differ = [self.mandatory[k] and len({way.outputs for way in self.again[k]}) > 1 for k in range(graph.n)]


def _unbeaten(ways: list[CondensedImplementation]) -> list[CondensedImplementation]:
    """Without the ways that another beats in reads, writes and cost, whatever memory they take while they run."""

    def beats(one: CondensedImplementation, other: CondensedImplementation) -> bool:
        lighter = set(one.inputs) <= set(other.inputs) and set(one.outputs) >= set(other.outputs)
        return lighter and one.cost <= other.cost

    kept: list[CondensedImplementation] = []
    for way in ways:
        if not any(beats(other, way) for other in kept):
            kept = [other for other in kept if not beats(way, other)] + [way]
    return kept

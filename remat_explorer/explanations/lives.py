"""When each version of a value is in memory along a plan, and who reads it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat_explorer.once import once
from remat_explorer.plan import Compute, Plan


@dataclass(frozen=True)
class Life:
    """One version of a value, from the statement that writes it to the last one during which it is in memory.

    A version whose storage an output takes over is gone when that output is written, although the operation reads it.

    Attributes:
        value: the value.
        first, last: statements of the plan.
        first_stage, last_stage: their stages.
        readers: statements that read it, ascending.
        stays: whether it is there when the plan ends.
    """

    value: int
    first: int
    last: int
    first_stage: int
    last_stage: int
    readers: tuple[int, ...]
    stays: bool

    def next_reader(self, statement: int) -> int | None:
        """The first statement, from ``statement`` on, that reads it."""
        place = bisect_left(self.readers, statement)
        return self.readers[place] if place < len(self.readers) else None

    def needed_at(self, statement: int) -> bool:
        """Whether it was written before ``statement`` and is in memory then, or is read and overwritten by it."""
        return self.first < statement and (statement <= self.last or self.next_reader(statement) is not None)


@dataclass(frozen=True, eq=False)
class Lives:
    """Every version of every value along a plan.

    Attributes:
        every: in the order in which they are written.
        of_value: for each value its versions, in order.
    """

    every: tuple[Life, ...]
    of_value: tuple[tuple[Life, ...], ...]

    @cached_property
    def _bounds(self) -> np.ndarray:
        return np.array([(life.first, life.last) for life in self.every], dtype=np.int64).reshape(-1, 2)

    def at(self, statement: int) -> list[Life]:
        """The versions in memory while a statement runs."""
        first, last = self._bounds.T
        return [self.every[i] for i in np.flatnonzero((first <= statement) & (statement <= last))]


@once
def lives_of(plan: Plan) -> Lives:
    """The versions of every value along ``plan``; found once for each plan.

    >>> from remat_explorer.instances import linear
    >>> lives = lives_of(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]))
    >>> [(life.first, life.last, life.readers) for life in lives.every]
    [(0, 3, (1, 2)), (1, 4, (2,)), (2, 5, ())]
    """
    graph, stages = plan.graph, plan.timeline.stage.tolist()
    begun: dict[int, tuple[int, list[int]]] = {}
    done: list[Life] = []
    end = len(plan.statements) - 1

    def finish(v: int, last: int, stays: bool = False) -> None:
        first, readers = begun.pop(v)
        done.append(Life(v, first, last, stages[first], stages[max(first, last)], tuple(readers), stays))

    for i, statement in enumerate(plan.statements):
        if not isinstance(statement, Compute):
            finish(statement.value, i)
            continue
        for v in graph.inputs(statement.operation, statement.implementation):
            begun[v][1].append(i)
        if statement.overwrites is not None:
            finish(statement.overwrites, i - 1)
        for v in graph.outputs(statement.operation, statement.implementation):
            if v not in statement.drops:
                begun[v] = (i, [])
    for v in list(begun):
        finish(v, end, stays=True)
    done.sort(key=lambda life: life.first)
    of_value: list[list[Life]] = [[] for _ in graph.values]
    for life in done:
        of_value[life.value].append(life)
    return Lives(tuple(done), tuple(map(tuple, of_value)))

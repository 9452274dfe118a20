"""Graphs in which every operation has one implementation, made from a graph with choices, and their schedules.

Checkmate has no choices: MONeT's evaluation times its schedules in two ways (Shah et al., ICLR 2021, section 5).
*Checkmate-D* runs default convolution algorithms, *Checkmate-O* the fastest ones, put in afterwards. Here each is a
graph of its own: of `default_selection`, and of `fastest_selection`, which has for each operation the fastest
implementation that reads and writes the same, and is solved with its costs and workspace.

Choices of implementations changed many at once, and judged by walks.

Operations with the same implementations, such as all gradients of batch norms, are a family. A change gives one
implementation to a run of neighbours in a family, from a single one to all of them; it is kept if the cheapest of a
few walks within the budget costs less afterwards, which takes some milliseconds. Changes of single operations alone
lead nowhere: what one reads, its neighbours must keep or make.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph, Implementation, Operation, Value
from remat_explorer.plan import Plan
from remat_explorer.schedule import Computations, Schedule
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.monet.condensed_choices import Codes, CondensedImplementation, Tables, run_out_of_place
from remat_explorer.solvers.search.local_search import Guide, Walks


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


@dataclass(frozen=True, eq=False)
class Selection:
    """A graph without choices, and what its operations are in the graph that it was made of.

    Its implementations may run anywhere: where one of them may run in place only, `lift` puts another in its place.

    Attributes:
        graph: one implementation per operation, none optional.
        origin: the graph with choices.
        operations: for each operation of ``graph`` its number in ``origin``.
        codes: for each operation of ``graph`` the number, from 1, of its implementation in ``origin``.
    """

    graph: Graph
    origin: Graph
    operations: tuple[int, ...]
    codes: tuple[int, ...]

    def lift(self, schedule: Schedule, codes: Codes | None = None) -> Schedule:
        """The same runs on the graph with choices.

        The stage of an operation that is optional there becomes part of the next stage; operations that run in both
        run once, in ascending order, so memory may differ from that of ``schedule``. Where an implementation runs that
        may do so in place only, and its input lives on, another one takes its place.

        Args:
            schedule: of ``graph``.
            codes: the implementations of the graph with choices that may be chosen; all if None.
        """
        R = np.zeros((self.origin.stages, self.origin.n), dtype=np.int64)
        stages = self.origin.first_stage[list(self.operations)]
        for t, i, _ in schedule.sequence:
            R[stages[t], self.operations[i]] = self.codes[i]
        S = np.zeros((len(R), len(self.origin.values)), dtype=bool)
        return run_out_of_place(Schedule(self.origin, R, S), codes).compact()

    def lower(self, schedule: Schedule) -> Schedule:
        """The runs of a schedule of the graph with choices, here in the implementations of this selection.

        Optional operations run in their own stages alone. The schedule need not be executable: these implementations
        may read what the others did not.
        """
        ours = np.array([i for i, k in enumerate(self.operations) if not self.origin.operations[k].optional])
        theirs = np.array(self.operations)[ours]
        R = np.eye(self.graph.n, dtype=np.int64)
        R[np.ix_(ours, ours)] = schedule.R[np.ix_(self.origin.first_stage[theirs], theirs)] > 0
        return Schedule(self.graph, R, np.zeros((self.graph.n, len(self.graph.values)), dtype=bool)).compact()


def restricted_to(graph: Graph, choice: Mapping[int, int]) -> Selection:
    """The graph with one implementation per operation, and the optional operations that these need."""
    codes = {}
    for k, node in enumerate(graph.operations):
        codes[k] = choice.get(k, 1)
        if not 1 <= codes[k] <= len(node.implementations):
            raise SolverError(
                f"operation {node.name!r} has no implementation {codes[k]!r}; they are 1 to {len(node.implementations)}"
            )
    chosen = {k: node.implementations[codes[k] - 1] for k, node in enumerate(graph.operations)}
    needed: set[int] = set()
    kept: list[int] = []
    for k in range(graph.n - 1, -1, -1):
        if not graph.operations[k].optional or not needed.isdisjoint(chosen[k].outputs):
            kept.insert(0, k)
            needed.update(chosen[k].inputs)
    written = sorted({v for k in kept for v in chosen[k].outputs})
    number = {v: i for i, v in enumerate(written)}
    operations = []
    for k in kept:
        node, way = graph.operations[k], chosen[k]
        for v in way.inputs:
            if v not in number:
                raise SolverError(
                    f"implementation {way.name!r} of {node.name!r} reads {graph.values[v].name!r}, which the chosen "
                    f"implementation of {graph.operations[int(graph.producer[v])].name!r} does not write"
                )
        operations.append(Operation(node.name, node.phase, (_renumbered(way, number),), details=node.details))
    values: tuple[Value, ...] = tuple(graph.values[v] for v in written)
    plain = Graph(graph.name, values, tuple(operations), graph.resident_bytes, graph.options)
    return Selection(plain, graph, tuple(kept), tuple(codes[k] for k in kept))


def default_selection(graph: Graph) -> Selection:
    """Checkmate-D: the default implementation of every operation.

    >>> from remat_explorer.instances import linear
    >>> default_selection(linear(2)).codes
    (1, 1, 1, 1, 1)
    """
    return restricted_to(graph, {})


def fastest_selection(graph: Graph) -> Selection:
    """Checkmate-O: for every operation the fastest implementation that reads and writes what the default does."""
    choice = {}
    for k, node in enumerate(graph.operations):
        alike = [
            code
            for code, way in enumerate(node.implementations, 1)
            if (set(way.inputs), set(way.outputs)) == (set(node.default.inputs), set(node.default.outputs))
            and not way.in_place
        ]
        choice[k] = min(alike, key=lambda code: node.implementations[code - 1].cost)
    return restricted_to(graph, choice)


def make_consistent(graph: Graph, choice: Mapping[int, int], codes: Codes | None = None) -> dict[int, int]:
    """The choice, changed where it is needed so that what chosen implementations read is written.

    A producer whose chosen implementation does not write what a reader's reads takes its cheapest one that does; if
    none writes everything, or the reader cannot be served, the reader takes its default.
    """
    chosen = dict(choice)
    while (
        refused := _settle(graph, chosen, codes)
    ) is not None:  # with their defaults, its readers may read other values
        for u in [u for u in chosen if u > refused]:
            if any(graph.producer[v] == refused for v in graph.operations[u].implementations[chosen[u] - 1].inputs):
                del chosen[u]
        chosen.pop(refused, None)
    return chosen


def _settle(graph: Graph, chosen: dict[int, int], codes: Codes | None) -> int | None:
    """Change producers so that they write what is read; the operation none of whose implementations does, or None."""
    needed: set[int] = set()
    readers: dict[int, list[int]] = {}
    for k in range(graph.n - 1, -1, -1):
        node = graph.operations[k]
        ways = node.implementations
        reads = {v for way in ways for v in way.outputs if v in needed}
        if node.optional:
            if reads:
                chosen.setdefault(k, 1)
            if k not in chosen:
                continue
        elif not reads.issubset(ways[chosen.get(k, 1) - 1].outputs):
            able = [code for code, way in enumerate(ways, 1) if reads.issubset(way.outputs)]
            able = able if codes is None else [code for code in able if code in codes[k]]
            if able:
                chosen[k] = min(able, key=lambda code: (ways[code - 1].cost, code))
            elif k in chosen or any(u in chosen for v in reads for u in readers[v]):
                return k
        inputs = ways[chosen.get(k, 1) - 1].inputs
        needed.update(inputs)
        for v in inputs:
            readers.setdefault(v, []).append(k)
    return None


def _renumbered(way: Implementation, number: Mapping[int, int]) -> Implementation:
    return replace(
        way,
        inputs=tuple(number[v] for v in way.inputs),
        outputs=tuple(number[v] for v in way.outputs),
        overwrites=None if way.overwrites is None else number[way.overwrites],
        in_place=False,
    )


class CandidateSelection:
    """A selection that may hold a good schedule within the budget.

    ``plain`` is the cheapest schedule of the plain graph that is known, ``best`` that of the joint problem within the
    budget, lifted from the plain graph. ``bound`` is of the plain graph, infinity where it has no schedule.
    """

    def __init__(self, selection: Selection, budget: int, codes: Codes | None = None) -> None:
        self.selection, self.budget, self.codes = selection, budget, codes
        self.condensed = CondensedGraph.of(selection.graph)
        self.plain: Schedule | None = None
        self.best: Schedule | None = None
        self.bound, self.searches, self.finished = 0.0, 0, False

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What tells it from others: its operations and their implementations."""
        return self.selection.operations, self.selection.codes

    @staticmethod
    def of(
        graph: Graph, choice: Mapping[int, int], budget: int, codes: Codes | None = None
    ) -> CandidateSelection | None:
        """The candidate of a choice, made consistent; None if no schedule of it can fit into the budget."""
        try:
            candidate = CandidateSelection(restricted_to(graph, make_consistent(graph, choice)), budget, codes)
        except SolverError:  # what one operation must write and another must not
            return None
        return candidate if int(candidate.condensed.operation_bytes.max()) <= budget else None

    def keeps_to(self, codes: Codes | None) -> bool:
        """Whether it runs only implementations that may be chosen."""
        chosen = zip(self.selection.operations, self.selection.codes, strict=True)
        return codes is None or all(code in codes[k] for k, code in chosen)

    def take(self, plain: Schedule | None) -> Schedule | None:
        """Take in a schedule of the plain graph, and return what it gives on the graph with choices, if it fits."""
        if plain is None or plain is self.plain:
            return None
        if self.plain is None or plain.cost < self.plain.cost:
            self.plain = plain
        lifted = self.selection.lift(plain, self.codes)
        if (self.best is not None and lifted.cost >= self.best.cost) or Plan.of(lifted).peak > self.budget:
            return None
        self.best = lifted
        return lifted


EXPONENTS = ((1, 1, 1), (0.5, 1, 1), (1, 1, 0), (1, 1, 0.5))  # of the walks that judge a choice


class ChoiceSearch:
    """A choice, and changes of it.

    R and ``cost`` are those of the cheapest walk with the best choice; the cost is infinity where none came to its end.
    """

    def __init__(self, tables: Tables, choice: Mapping[int, int], seed: int = 0, codes: Codes | None = None) -> None:
        self.codes = codes
        self.graph: Graph = tables.problem.graph
        self.choice = dict(choice)
        self.selection: Selection | None = None
        self.computations: Computations | None = None
        self.cost, self.budget, self.judged = math.inf, 0, 0
        self._draw = np.random.default_rng(seed)
        families: dict[tuple[str, ...], list[int]] = {}
        self._allowed: dict[int, set[int]] = {}
        for k, node in enumerate(self.graph.operations):
            allowed = {way.code for way in (tables.first[k] if tables.mandatory[k] else tables.again[k])}
            if len(allowed) > 1:
                self._allowed[k] = allowed
                families.setdefault(tuple(way.name for way in node.implementations), []).append(k)
        self._families = list(families.values())

    def schedule(self) -> Schedule | None:
        """The cheapest walk's schedule on the graph of the choice."""
        if self.selection is None or self.computations is None:
            return None
        return CondensedGraph.of(self.selection.graph).schedule(self.computations)

    def lower(self, budget: int) -> None:
        """Judge the choice at a budget."""
        self.budget, self.cost, self.computations = budget, math.inf, None
        self._judge(self.choice)

    def improve(self, changes: int, enough: float, over: Callable[[], bool] = lambda: False) -> None:
        """Up to so many changes at the budget, until a walk costs no more than is enough."""
        for _ in range(changes if self._families else 0):
            if over() or self.cost <= enough:
                break
            members = self._families[int(self._draw.integers(len(self._families)))]
            length = max(1, round(len(members) ** self._draw.uniform()))
            first = int(self._draw.integers(len(members) - length + 1))
            code = int(self._draw.choice(sorted(set().union(*(self._allowed[k] for k in members)))))
            changed = {k: code for k in members[first : first + length] if code in self._allowed[k]}
            if any(self.choice.get(k, 1) != code for k in changed):
                self._judge(self.choice | changed)

    def _judge(self, choice: Mapping[int, int]) -> None:
        """Keep a choice if the cheapest walk with it costs less than with the one before."""
        self.judged += 1
        try:
            selection = restricted_to(self.graph, make_consistent(self.graph, choice, self.codes))
        except SolverError:  # what one operation must write and another must not
            return
        condensed = CondensedGraph.of(selection.graph)
        total = selection.graph.total_cost
        if total >= self.cost or condensed.operation_bytes.max() > self.budget:
            return
        walks = Walks(condensed, self.budget)
        unguided = Guide.everywhere(np.zeros(condensed.groups), condensed.n)
        for powers in EXPONENTS:
            walked = walks.walk(powers, unguided, most_cost=self.cost - total)
            cost = float(walked.computations.counts(condensed.n) @ condensed.costs)
            if walked.complete and cost < self.cost:
                self.choice, self.selection, self.cost = dict(choice), selection, cost
                self.computations = walked.computations

"""The least memory of a graph, from below and from above: `least_plain`, and `least_with_choices` of implementations.

*Lower bound* of a plain graph (`least_working_set`). Operation t needs a set X of values at once. Of those, one was
computed last, by some operation p; while p ran, the rest of X was in memory beside p's inputs, outputs and transient
bytes. And before p, the rest of X with p's inputs was in memory together. So with need(X) = 0 for the empty set,

    need(X) >= min over p that compute something of X of
        max(bytes while p runs, need((X without outputs of p) with inputs of p)).

This is a shortest path over sets of values whose length is the largest step: states are expanded smallest first, and
the smallest length that is still open is a bound at any time. Rules of stages are not used, so the bound holds for
every order of computations; it is at least what the largest single operation needs, which takes one step back. With
choices the bound is the most that any operation needs for itself, each in the implementation that needs the least. The
few-moments relaxation proves nothing beyond: without a limit on the cost, everything may run again between two moments.

*Upper bound*: descent of the budget with the planner, by work that is counted; with choices on the plain graphs of
three choices by one rule for all operations, and of what the few-moments relaxation would choose slightly above the
lower bound. What is left is bisected by `optimal` on small graphs, or by `monet`, which prove budgets infeasible.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.anytime_search.monet import improve_monet
from remat_explorer.solvers.anytime_search.optimal import solve_optimal
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.methods.chen import require_chain
from remat_explorer.solvers.methods.griewank import binomial_schedule, fewest_slots
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, Tables, allowed_codes
from remat_explorer.solvers.monet.relaxation_with_choices import RelaxationWithChoices
from remat_explorer.solvers.monet.selections import CandidateSelection, cheapest, lightest, smallest
from remat_explorer.solvers.search.planner import first_within, plan_schedule
from remat_explorer.solvers.solver_interface import Answer, Limits, Progress, checkpoint_all

State = frozenset[int]
EXPANSIONS = 100  # states looked at for one operation, at most; a hundred times as many gave no higher bound


@dataclass(frozen=True)
class WorkingSet:
    """The point that makes the bound."""

    bytes: int  # no schedule has a lower peak; resident bytes included
    stage: int  # the operation whose inputs must be in memory at once
    operation: int  # the one that needs these bytes: ``stage`` itself, or one that runs to prepare its inputs
    during: int  # the earliest stage in which it can run at this point
    groups: tuple[int, ...]  # what is in memory while it runs, its outputs included
    in_place: bool  # whether the value that it may overwrite dies there, and is counted once with the output


def least_working_set(condensed: CondensedGraph, seconds: float = 1.0) -> WorkingSet:
    """The bound over all operations.

    Args:
        seconds: wall time; operations that are not reached count for themselves alone.

    >>> from remat_explorer.instances import linear
    >>> found = least_working_set(CondensedGraph.of(linear(8)))
    >>> found.bytes, found.stage
    (3, 9)
    """
    return _WorkingSetSearch(condensed, time.monotonic() + seconds).run()


class _WorkingSetSearch:
    """The bound so far, and the sets of values that are known to be attainable within it."""

    def __init__(self, condensed: CondensedGraph, end: float) -> None:
        self.condensed, self.end = condensed, end
        self.sizes: list[int] = condensed.bytes.tolist()
        self.inputs = [frozenset(read) for read in condensed.inputs]
        self.outputs = [frozenset(written) for written in condensed.outputs]
        self.producer: list[int] = condensed.producer.tolist()
        self.attained: set[State] = {frozenset()}
        self.together: list[State] = [frozenset()] * condensed.n  # attained at once around an operation that is done
        own = condensed.operation_bytes
        k = int(own.argmax())
        self.best = WorkingSet(int(own[k]), k, k, k, tuple(sorted(self.inputs[k] | self.outputs[k])), True)

    def run(self) -> WorkingSet:
        for t in range(self.condensed.n):
            if time.monotonic() > self.end:
                break
            self._raise_for(t)
            overwritten = int(self.condensed.overwritten[t])
            self.together[t] = (self.inputs[t] | self.outputs[t]) - {overwritten}
        return self.best

    def _raise_for(self, t: int) -> None:
        """Raise the bound to what the inputs of t need, as far as the number of expansions goes."""
        start = self.inputs[t]
        came_from: dict[State, State | None] = {start: None}
        least = {start: 0}
        waiting: list[tuple[int, int, int, State, int]] = [(0, 0, 0, start, t)]
        count = 0
        while waiting and count < EXPANSIONS:
            needed, _, _, state, p = heapq.heappop(waiting)
            if needed > least[state]:
                continue
            if needed > self.best.bytes:
                after = came_from[state] or frozenset()
                alive = tuple(sorted(state | self.outputs[p]))
                self.best = WorkingSet(needed, t, p, self._during(p, state), alive, self._in_place(p, after))
            if self._is_attained(state):
                at: State | None = state
                while at is not None:
                    self.attained.add(at)
                    at = came_from[at]
                return
            count += 1
            for p in {self.producer[v] for v in state}:
                before = (state - self.outputs[p]) | self.inputs[p]
                step = max(needed, self.best.bytes, self._bytes_while(p, before, state))
                if before not in least or step < least[before]:
                    least[before], came_from[before] = step, state
                    heapq.heappush(waiting, (step, self._size(before), -count, before, p))

    def _bytes_while(self, p: int, before: State, after: State) -> int:
        """Bytes in memory while p runs between two states."""
        condensed = self.condensed
        own = condensed.base[self._during(p, before)] + condensed.output_bytes[p] + condensed.transient[p]
        return self._size(before) + int(own) - (int(condensed.credit[p]) if self._in_place(p, after) else 0)

    def _during(self, p: int, before: State) -> int:
        """The earliest stage in which p can run: after those that computed what is held, if it comes before them."""
        later = [self.producer[v] + 1 for v in before if self.producer[v] > p]
        return min(max([p, *later]), self.condensed.n - 1)

    def _in_place(self, p: int, after: State) -> bool:
        overwritten = int(self.condensed.overwritten[p])
        return overwritten >= 0 and overwritten not in after

    def _size(self, state: State) -> int:
        return sum(self.sizes[v] for v in state)

    def _is_attained(self, state: State) -> bool:
        if state in self.attained:
            return True
        v = next(iter(state))
        around = (self.producer[v], *self.condensed.readers[v])
        return any(state <= self.together[k] for k in around)


_BOUNDING_SHARE = 0.2  # of the time for the working sets, at most
_PLANNING_SHARE = 0.6  # of the time for the descent with the planner
_PACE = 150_000  # operations that walks pass in a second, on an idle core
_PATIENCE = 4.0  # how many times as long a descent may take on a busy machine
_STEP = 0.6  # share of what is above the lower bound by which a descent steps down
_FINE = 0.002  # relative width at which a descent ends,
_FINEST = 0.02  # at most this share of what keeping everything takes above the lower bound
_FEW_REPAIRS = 4  # walks with growing weights, for each of the exponents, in the first descent


@dataclass(frozen=True)
class LeastPlainSettings:
    """How the time is divided between the steps, and when they end."""

    close: float = 0.005  # relative width at which a bisection ends
    settled_up_to: int = 60  # operations up to which the optimal strategy settles what the planner leaves open


LEAST_PLAIN = LeastPlainSettings()


@dataclass(frozen=True)
class LimitingPoint:
    """The point that makes a lower bound on memory."""

    bytes: int  # needed there, resident bytes included
    stage: int  # the operation for whose sake ``operation`` runs
    operation: int  # the one that runs
    values: tuple[int, ...]  # ids of the values in memory while it does, its outputs included
    fixed: int  # bytes that are there whatever is scheduled
    way: str = ""  # name of the implementation in which it needs the least, where it has several


@dataclass(frozen=True, eq=False)
class LeastMemoryBounds:
    """How little memory is proven to be needed, and known to do."""

    lower_bound: int
    limiting: LimitingPoint  # what makes a bound, of ``lower_bound`` bytes unless a proof went beyond it
    schedule: Schedule  # the one with the lowest peak that is known


def least_plain(graph: Graph, seconds: float, settings: LeastPlainSettings = LEAST_PLAIN) -> LeastMemoryBounds:
    """The least memory of ``graph``, from below and from above.

    ``seconds`` are those of an idle core, about; a busy machine has more, to find the same.
    """
    end = time.monotonic() + seconds
    condensed = CondensedGraph.of(graph)
    working_set = least_working_set(condensed, _BOUNDING_SHARE * seconds)
    limiting = LimitingPoint(
        working_set.bytes,
        working_set.stage,
        working_set.operation,
        _values(condensed, working_set),
        int(condensed.base[working_set.during]),
    )
    schedule = smallest_schedule(condensed, working_set.bytes, _PLANNING_SHARE * seconds)
    if graph.n <= settings.settled_up_to:
        bound, schedule = settle(
            lambda budget, limits: solve_optimal(graph, budget, limits),
            working_set.bytes,
            schedule,
            end,
            close=settings.close,
        )
        return LeastMemoryBounds(bound, limiting, schedule)
    return LeastMemoryBounds(working_set.bytes, limiting, schedule)


def _values(condensed: CondensedGraph, point: WorkingSet) -> tuple[int, ...]:
    """Values in memory at a point: those of its groups, what its operation writes, and earlier persistent ones."""
    graph, k = condensed.graph, point.operation
    earlier = [v for v in range(len(graph.values)) if graph.persistent[v] and graph.producer[v] < point.during]
    kinds = {(int(condensed.producer[g]), condensed.readers[g]) for g in point.groups}
    members = [v for v in range(len(graph.values)) if (int(graph.producer[v]), graph.readers[v]) in kinds]
    dying = {graph.operations[k].default.overwrites} if point.in_place else set()
    return tuple(sorted({*earlier, *members, *graph.outputs(k)} - dying))


class _Work:
    """Work that is left, in operations walked: so a busy machine finds what an idle one does.

    `plan_schedule` asks before each walk and each batch of local search, which take about as long.
    """

    def __init__(self, operations: int, each: int, cancelled: Callable[[], bool]) -> None:
        self._left, self._each, self._cancelled = operations, each, cancelled

    def spend_walk(self) -> bool:
        """Whether nothing is left, or it was cancelled; one walk less is left afterwards."""
        self._left -= self._each
        return self._left < 0 or self._cancelled()


def smallest_schedule(
    condensed: CondensedGraph, lower_bound: int, seconds: float, cancelled: Callable[[], bool] = lambda: False
) -> Schedule:
    """Descent with the planner from checkpoint-all, by a share of what is above the lower bound at a time.

    Of a chain it begins with REVOLVE's schedule of the fewest states, which no walk through a long chain comes near.

    A budget that the planner fits costs a few walks, one that it does not fit costs all repairs. So the way leads from
    above, by smaller steps after each failure; first with few repairs, then from there with all. An idle core works on
    it for about ``seconds``; the clock ends it at `_PATIENCE` times that.
    """
    end = time.monotonic() + _PATIENCE * seconds
    work = _Work(round(seconds * _PACE), condensed.n, cancelled)
    best = checkpoint_all(condensed.graph)
    peak = max(Plan.of(best).peak, 1)
    width = min(_FINE, _FINEST * (1 - lower_bound / peak))
    with suppress(SolverError):  # no chain
        forward = len(require_chain(condensed.graph, ""))
        best = min(best, binomial_schedule(condensed.graph, fewest_slots(forward)), key=Plan.peak_of)

    def by_walks(budget: int) -> Schedule | None:
        return first_within(condensed, budget, lambda: work.spend_walk() or time.monotonic() > end, _FEW_REPAIRS)

    def by_all_means(budget: int) -> Schedule | None:
        return plan_schedule(condensed, budget, end - time.monotonic(), work.spend_walk)

    for look in (by_walks, by_all_means):
        step, high = 1.0, Plan.of(best).peak  # the first trial is the bound itself
        while high > lower_bound and step * (high - lower_bound) > width * high:
            trial = min(high - 1, high - int(step * (high - lower_bound)))
            schedule = look(trial)
            if schedule is not None:
                best, high = schedule, Plan.of(schedule).peak
            elif time.monotonic() > end or work.spend_walk():
                return best
            else:
                step = _STEP if step == 1.0 else step / 2
    return best


def settle(
    solve: Callable[[int, Limits], Answer],
    low: int,
    best: Schedule,
    end: float,
    patience: float = math.inf,
    cancelled: Callable[[], bool] = lambda: False,
    close: float = LEAST_PLAIN.close,
) -> tuple[int, Schedule]:
    """Bisection by a strategy that can prove infeasibility, and that is stopped at its first schedule.

    It ends at ``end`` by the monotonic clock. After ``patience`` seconds a budget is taken to be too small, though that
    is not proven; where that happened, it ends at the relative width ``close``.
    """
    high, hopeless = Plan.of(best).peak, low
    while hopeless < high and time.monotonic() < end and not cancelled():
        schedules: list[Schedule] = []

        def keep(progress: Progress, schedules: list[Schedule] = schedules) -> None:
            schedules += [progress.schedule] if progress.schedule is not None else []

        trial = (hopeless + high) // 2
        seconds = min(patience, end - time.monotonic())
        limits = Limits(seconds, report=keep, cancelled=lambda schedules=schedules: bool(schedules) or cancelled())
        answer = solve(trial, limits)
        if answer.schedule is not None:
            best, high = answer.schedule, Plan.of(answer.schedule).peak
        elif answer.infeasible:
            low = hopeless = trial + 1
        else:
            hopeless = trial + 1
        if low < hopeless and high - hopeless <= close * high:
            break
    return low, best


_JOINT_PATIENCE = 0.2  # share of the time for each budget that `monet` tries


@dataclass(frozen=True)
class LeastWithChoicesSettings:
    """How the time is divided between the steps; shares are those of all of it, at most."""

    planning: float = 0.1  # share for planning with each choice
    relaxing: float = 0.1  # share for the relaxation, which makes one of the choices
    beyond: float = 1.02  # its budget, in lower bounds


LEAST_WITH_CHOICES = LeastWithChoicesSettings()


def least_with_choices(
    graph: Graph,
    seconds: float,
    implementations: str | Collection[str] = "all",
    schedule: Schedule | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    settings: LeastWithChoicesSettings = LEAST_WITH_CHOICES,
) -> LeastMemoryBounds:
    """The least memory of the joint problem, from below and from above."""
    end = time.monotonic() + seconds
    codes = allowed_codes(graph, implementations)
    problem = CondensedChoices.of(graph, codes)
    limiting = limiting_operation(problem)
    bound, best = limiting.bytes, checkpoint_all(graph)
    if schedule is not None and Plan.of(schedule).peak < Plan.of(best).peak:
        best = schedule
    for choice in _choices(problem, Limits(settings.relaxing * seconds), settings.beyond):
        candidate = CandidateSelection.of(graph, choice, Plan.of(best).peak)
        if candidate is None or not candidate.keeps_to(codes) or time.monotonic() > end or cancelled():
            continue
        least = int(candidate.condensed.operation_bytes.max())
        share = min(settings.planning * seconds, end - time.monotonic())
        lifted = candidate.selection.lift(smallest_schedule(candidate.condensed, least, share, cancelled=cancelled))
        if Plan.of(lifted).peak < Plan.of(best).peak:
            best = lifted

    def solve(budget: int, limits: Limits) -> Answer:
        return improve_monet(graph, budget, Answer(None), limits, implementations)

    bound, best = settle(solve, bound, best, end, _JOINT_PATIENCE * seconds, cancelled)
    return LeastMemoryBounds(bound, limiting, best)


def limiting_operation(problem: CondensedChoices) -> LimitingPoint:
    """The operation that needs the most for itself in its own stage, whatever is chosen."""
    graph = problem.graph
    t = int(problem.least_memory.argmax())
    k = int(graph.mandatory[t])

    def needed(way) -> int:
        return int(problem.bytes[list(way.inputs)].sum()) + problem.during(way) - way.credit

    least = min(problem.ways[k], key=needed)
    made = graph.operations[k].implementations[least.code - 1]
    earlier = [v for v in range(len(graph.values)) if graph.persistent[v] and graph.producer[v] < k]
    values = tuple(sorted({*earlier, *made.inputs, *made.outputs} - {made.overwrites}))
    way = made.name if len(graph.operations[k].implementations) > 1 else ""
    return LimitingPoint(int(problem.least_memory[t]), k, k, values, int(problem.base[t]), way)


def _choices(problem: CondensedChoices, limits: Limits, beyond: float) -> Iterator[Mapping[int, int]]:
    """Choices that may need little memory, the most promising first."""
    tables = Tables(problem)
    for rule in (lightest, smallest, cheapest):
        yield rule(tables)
    relaxation = RelaxationWithChoices(tables, int(beyond * problem.least_memory.max()))
    choice = relaxation.improve(limits, integral=False).choice()
    if choice:
        yield choice

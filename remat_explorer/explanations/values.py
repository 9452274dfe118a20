"""Why a value is in memory in a stage, or is not: its versions along a plan, who reads them, and what is in vain."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from remat_explorer.explanations.choices import cost_of, first_runs, first_stages, operations_again
from remat_explorer.explanations.wording import (
    Mention,
    Words,
    cost_text,
    count,
    mention_operation,
    mention_stage,
    persistent_kind,
    plain,
)
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_bytes, format_share
from remat_explorer.schedule import Schedule


def kept_bytes(schedule: Schedule) -> np.ndarray:
    """Bytes of each operation's values that the forward pass leaves to the backward pass, float64 of shape (n,).

    They are what is retained into the first stage of the backward pass.

    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))
    >>> kept_bytes(keep).tolist()
    [1.0, 0.0, 0.0]
    """
    graph = schedule.graph
    backward = graph.is_backward[graph.mandatory]
    first = int(backward.argmax()) if backward.any() else schedule.stages - 1
    kept = schedule.retained_into(min(first, schedule.stages - 1)) * graph.value_bytes
    return np.bincount(graph.producer, weights=kept, minlength=graph.n)


NAMED = 3


@dataclass(frozen=True)
class VainRuns:
    """An operation that the dearer schedule runs more often.

    Attributes:
        operation: its index.
        runs: how many more.
        cost: of these, in the unit of the graph's costs.
    """

    operation: int
    runs: int
    cost: float


def in_vain(dearer: Schedule, cheaper: Schedule) -> list[VainRuns]:
    """Operations that run more often in the first schedule, the costliest first.

    Args:
        dearer, cheaper: schedules of one graph.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.schedule.schedule import Computations
    >>> once = [(k, k, 1) for k in range(5)]
    >>> def leanest(computed):
    ...     return Schedule.leanest(linear(2), 5, Computations.of(computed))
    >>> in_vain(leanest([*once[:3], (3, 0, 1), *once[3:]]), leanest(once))
    [VainRuns(operation=0, runs=1, cost=1.0)]
    """
    first, second = _runs(dearer), _runs(cheaper)
    costs: dict[int, float] = defaultdict(float)
    for _, operation, code in dearer.sequence:
        costs[operation] += dearer.graph.operations[operation].implementations[code - 1].cost
    found = []
    for operation, runs in first.items():
        more = runs - second[operation]
        if more > 0:
            found.append(VainRuns(operation, more, more * costs[operation] / runs))
    return sorted(found, key=lambda vain: (-vain.cost, vain.operation))


def in_vain_text(a: Schedule, b: Schedule) -> str:
    """The same of A and B as sentences: which costs more, what it runs in addition, and at which memory.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.schedule.schedule import Computations
    >>> once = [(k, k, 1) for k in range(5)]
    >>> again = Schedule.leanest(linear(2), 5, Computations.of([*once[:3], (3, 0, 1), *once[3:]]))
    >>> print(in_vain_text(again, Schedule.leanest(linear(2), 5, Computations.of(once))))
    A costs 20.0 % more than B. What it computes more often: v0 (1 more, +20.0 %). B needs no more memory, so all of \
this is in vain.
    """
    if a.cost == b.cost:
        return "A and B cost the same."
    names, (dearer, cheaper) = ("A", "B"), (a, b)
    if a.cost < b.cost:
        names, (dearer, cheaper) = ("B", "A"), (b, a)
    found = in_vain(dearer, cheaper)
    graph, whole = dearer.graph, cheaper.cost or 1.0
    shown = ", ".join(
        f"{graph.operations[vain.operation].name} ({vain.runs} more, +{format_share(vain.cost / whole)})"
        for vain in found[:NAMED]
    )
    rest = sum(vain.cost for vain in found[NAMED:])
    if rest:
        shown += f", and {len(found) - NAMED} others (+{format_share(rest / whole)})"
    said = f"{names[0]} costs {format_share(dearer.cost / whole - 1)} more than {names[1]}."
    if shown:
        said += f" What it computes more often: {shown}."
    saved = sum(vain.cost for vain in in_vain(cheaper, dearer))
    if saved:
        said += f" {names[1]} computes others more often, for {format_share(saved / whole)}."
    less = Plan.peak_of(cheaper) - Plan.peak_of(dearer)
    if less <= 0:
        return f"{said} {names[1]} needs no more memory, so {'the difference' if saved else 'all of this'} is in vain."
    return f"{said} {names[1]} needs {format_bytes(less)} more memory, so not all of this is in vain."


def _runs(schedule: Schedule) -> Counter[int]:
    return Counter(operation for _, operation, _ in schedule.sequence)


@dataclass(frozen=True)
class Lifetime:
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
class Lifetimes:
    """Every version of every value along a plan.

    Attributes:
        every: in the order in which they are written.
        of_value: for each value its versions, in order.
    """

    every: tuple[Lifetime, ...]
    of_value: tuple[tuple[Lifetime, ...], ...]

    @cached_property
    def _bounds(self) -> np.ndarray:
        return np.array([(life.first, life.last) for life in self.every], dtype=np.int64).reshape(-1, 2)

    def at(self, statement: int) -> list[Lifetime]:
        """The versions in memory while a statement runs."""
        first, last = self._bounds.T
        return [self.every[i] for i in np.flatnonzero((first <= statement) & (statement <= last))]


@memoize_by_identity
def lives_of(plan: Plan) -> Lifetimes:
    """The versions of every value along ``plan``; found once for each plan.

    >>> from remat_explorer.instances import linear
    >>> lives = lives_of(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]))
    >>> [(life.first, life.last, life.readers) for life in lives.every]
    [(0, 3, (1, 2)), (1, 4, (2,)), (2, 5, ())]
    """
    graph, stages = plan.graph, plan.timeline.stage.tolist()
    begun: dict[int, tuple[int, list[int]]] = {}
    done: list[Lifetime] = []
    end = len(plan.statements) - 1

    def finish(v: int, last: int, stays: bool = False) -> None:
        first, readers = begun.pop(v)
        done.append(Lifetime(v, first, last, stages[first], stages[max(first, last)], tuple(readers), stays))

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
    of_value: list[list[Lifetime]] = [[] for _ in graph.values]
    for life in done:
        of_value[life.value].append(life)
    return Lifetimes(tuple(done), tuple(map(tuple, of_value)))


class Presence(StrEnum):
    """How a value stands in a stage."""

    COMPUTED = "computed"
    RECOMPUTED = "recomputed"
    KEPT = "kept"
    PERSISTENT = "stays"
    IDLE = "kept, not needed"
    BETWEEN = "not in memory now"
    DONE = "not needed any more"
    LATER = "not computed yet"
    NEVER = "never computed"


@dataclass(frozen=True)
class Explanation:
    """Why a value is kept into or through a stage, recomputed in it, or not there.

    Attributes:
        kind: how it stands.
        words: the reason, with names that can be followed.
        lives: its versions along the plan, in order.
        next_read: statement of the plan that reads it next, from the stage on; None where nothing does.
        operations: what would run to have it again if it were not kept, or what runs because it is not; ascending.
        cost: of these operations, in the unit of the graph's costs.
    """

    value: int
    stage: int
    kind: Presence
    words: Words
    lives: tuple[Lifetime, ...]
    next_read: int | None
    operations: tuple[int, ...] = ()
    cost: float = 0.0

    @property
    def sentence(self) -> str:
        """The reason as text."""
        return plain(self.words)


def explain_value(schedule: Schedule, plan: Plan, stage: int, value: int, budget: int | None = None) -> Explanation:
    """Why ``value`` is in memory in ``stage``, or is not.

    Args:
        schedule: R and S.
        plan: the schedule's plan, `Plan.of(schedule)`.
        stage: the stage t.
        value: the value.
        budget: bytes that the schedule had to fit; keeping more is judged by it, else by the plan's own peak.

    >>> import numpy as np
    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(2), np.eye(5), np.tril(np.ones((5, 5)), -1))
    >>> explain_value(keep, Plan.of(keep), 3, 0).sentence
    'Kept: recomputing it would run 1 operation, cost 1, before v4 needs it in stage 4.'
    """
    return _Question(schedule, plan, stage, value, budget).answer()


@dataclass(frozen=True, eq=False)
class _Question:
    schedule: Schedule
    plan: Plan
    stage: int
    value: int
    budget: int | None

    def answer(self) -> Explanation:
        lives, begin = lives_of(self.plan).of_value[self.value], self._begin(self.stage)
        here = next((life for life in lives if life.first_stage == self.stage), None)
        if here is not None:
            return self._recomputed(here, lives) if here is not lives[0] else self._computed(here, lives)
        held = next((life for life in lives if life.needed_at(begin)), None)
        if held is not None and (held.stays or held.next_reader(begin) is not None):
            return self._kept(held, begin)
        if self.schedule.stages_of(self.value)[self.stage]:
            return self._explained(Presence.IDLE, self._idle_words(lives))
        return self._absent(lives, begin)

    def _explained(
        self, kind: Presence, words: Words, next_read: int | None = None, operations: tuple[int, ...] = ()
    ) -> Explanation:
        graph = self.schedule.graph
        lives = lives_of(self.plan).of_value[self.value]
        cost = cost_of(graph, operations)
        return Explanation(self.value, self.stage, kind, words, lives, next_read, operations, cost)

    def _begin(self, stage: int) -> int:
        """The first statement of a stage, or of the next that has any."""
        return int(self.plan.timeline.stage.searchsorted(stage))

    def _reader(self, statement: int) -> Mention:
        reader = self.plan.statements[statement]
        assert isinstance(reader, Compute)
        return mention_operation(self.schedule.graph, reader.operation, reader.stage)

    def _stage_of(self, statement: int) -> Mention:
        return mention_stage(self.plan.statements[statement].stage, self.stage)

    def _producer(self) -> Mention:
        return mention_operation(self.schedule.graph, int(self.schedule.graph.producer[self.value]))

    def _work(self, operations: tuple[int, ...]) -> str:
        graph = self.schedule.graph
        return f"{count(len(operations), 'operation')}, {cost_text(graph, cost_of(graph, operations))}"

    def _kept(self, life: Lifetime, begin: int) -> Explanation:
        graph, read = self.schedule.graph, life.next_reader(begin)
        if read is None:
            kind = persistent_kind(graph.values[self.value].name)
            words: Words = (f"{kind.capitalize()}: it stays to the end from ", mention_stage(life.first_stage), ".")
            return self._explained(Presence.PERSISTENT, words)
        if life.stays:
            kind = persistent_kind(graph.values[self.value].name)
            words = (
                f"{kind.capitalize()}: it stays to the end. Next, ",
                self._reader(read),
                " reads it in ",
                self._stage_of(read),
                ".",
            )
            return self._explained(Presence.PERSISTENT, words, read)
        operations = operations_again(self.schedule, self.plan.statements[read].stage, self.value)
        words = (
            f"Kept: recomputing it would run {self._work(operations)}, before ",
            self._reader(read),
            " needs it in ",
            self._stage_of(read),
            ".",
        )
        later = len(life.readers) - life.readers.index(read) - 1
        if later:
            words = (*words, f" {count(later, 'more read')} follow{'s' if later == 1 else ''}, ")
            words = (*words, "the last in " if later > 1 else "in ", self._stage_of(life.readers[-1]), ".")
        return self._explained(Presence.KEPT, words, read, operations)

    def _computed(self, life: Lifetime, lives: tuple[Lifetime, ...]) -> Explanation:
        words: Words = ("Computed here for the first time, by ", self._producer(), ". ", *self._fate(life, lives))
        return self._explained(Presence.COMPUTED, words, life.next_reader(life.first))

    def _recomputed(self, life: Lifetime, lives: tuple[Lifetime, ...]) -> Explanation:
        runs = self.schedule.implementations_in(self.stage)
        operations = tuple(
            k
            for k in operations_again(self.schedule, self.stage, self.value, use_computed=False)
            if runs[k] and first_runs(self.schedule)[k] < self.stage
        )
        read = life.next_reader(life.first)
        purpose: Words = ("although nothing reads it",) if read is None else ("for ", self._reader(read))
        words: Words = (f"Recomputed here ({self._work(operations)}) ", *purpose, ": ")
        previous = lives[lives.index(life) - 1]
        return self._explained(Presence.RECOMPUTED, (*words, *self._instead(previous, life)), read, operations)

    def _instead(self, previous: Lifetime, following: Lifetime) -> Words:
        """What keeping a value from one version to the next would have meant."""
        timeline, size = self.plan.timeline, self.schedule.graph.values[self.value].bytes
        since = mention_stage(previous.last_stage)
        between = timeline.during[previous.last + 1 : following.first]
        if not len(between):
            return ("nothing runs since its last version was freed, so keeping it would have cost no memory.",)
        at = previous.last + 1 + int(between.argmax())
        reach, place = int(between.max()) + size, self._stage_of(at)
        limit, name = (self.budget, "budget") if self.budget else (self.plan.peak, "peak of this plan")
        if reach > limit:
            more = format_bytes(reach - limit)
            words: Words = ("keeping it from ", since, f" would hold {format_bytes(size)} more at ", place)
            return (*words, f", which is {more} above the {name}, {format_bytes(limit)}.")
        words = (
            "keeping it from ",
            since,
            f" would hold {format_bytes(size)} more and reach {format_bytes(reach)} at ",
        )
        return (*words, place, f": by itself that is within the {name}, {format_bytes(limit)}.")

    def _fate(self, life: Lifetime, lives: tuple[Lifetime, ...]) -> Words:
        """What becomes of a version after it is written."""
        if life.stays:
            return (
                f"{persistent_kind(self.schedule.graph.values[self.value].name).capitalize()}: it stays to the end.",
            )
        if not life.readers:
            return ("Nothing reads it, so it is freed at once.",)
        last = life.readers[-1]
        words: Words = (self._reader(last), " is the last to read it, in ", self._stage_of(last))
        place = lives.index(life) + 1
        if place == len(lives):
            return (*words, ".")
        following = lives[place]
        return (*words, "; then it is computed again in ", mention_stage(following.first_stage), ".")

    def _idle_words(self, lives: tuple[Lifetime, ...]) -> Words:
        before = [life for life in lives if life.first_stage < self.stage]
        following = next((life for life in lives if life.first_stage > self.stage), None)
        words: Words = ("S keeps it, but nothing reads it",)
        if following is None:
            words = (*words, " any more")
        else:
            words = (*words, " before it is computed again in ", mention_stage(following.first_stage))
        if before:
            words = (*words, ": the plan has freed it in ", mention_stage(before[-1].last_stage, self.stage))
        return (*words, ", so it takes no memory.")

    def _absent(self, lives: tuple[Lifetime, ...], begin: int) -> Explanation:
        first = int(first_stages(self.schedule)[self.value]) if not lives else lives[0].first_stage
        if first < 0:
            return self._explained(Presence.NEVER, ("Never computed: nothing that must be computed needs it.",))
        if first > self.stage:
            words: Words = ("Not computed yet: ", self._producer(), " computes it in ", mention_stage(first), ".")
            return self._explained(Presence.LATER, words)
        before = [life for life in lives if life.first_stage < self.stage]
        following = next((life for life in lives if life.first_stage > self.stage), None)
        if not before:  # a persistent value whose later versions are dropped
            return self._explained(Presence.NEVER, ("No version of it is kept.",))
        last = before[-1]
        freed = mention_stage(last.last_stage, self.stage)
        if following is None:
            words = ("Not needed any more: freed in ", freed)
            if last.readers:
                words = (
                    "Not needed any more: ",
                    self._reader(last.readers[-1]),
                    " was the last to read it, in ",
                    freed,
                )
            return self._explained(Presence.DONE, (*words, "."))
        words = ("Not in memory now: freed in ", freed, ", computed again in ", mention_stage(following.first_stage))
        read = following.next_reader(begin)
        if read is not None:
            words = (*words, " for ", self._reader(read))
        operations = operations_again(self.schedule, following.first_stage, self.value, use_computed=False)
        runs = self.schedule.implementations_in(following.first_stage)
        operations = tuple(k for k in operations if runs[k])
        instead = self._instead(last, following)
        words = (*words, f" ({self._work(operations)}): ", *instead)
        return self._explained(Presence.BETWEEN, words, read, operations)

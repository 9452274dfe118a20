"""A schedule that a person edits: what may be kept into each stage is theirs to say, what is computed follows from it.

Checkmate (Jain et al., MLSys 2020, section 5.2) remarks that S decides R: with S given, the least R that is correct is
the cheapest one. So only S is edited. Values that one operation writes and the same operations read live and die
together; they are a group, and each edit is about all of its group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat_explorer.checker import CheckedSchedule, check_schedule
from remat_explorer.errors import ScheduleError
from remat_explorer.explanations import count, persistent_kind
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import CondensedGraph, minimal_row, retained_values

_MAX_STEPS = 1000  # steps that can be undone
_Cells = np.ndarray  # stages and groups, int of shape (count, 2)


def why_not_editable(graph: Graph | None) -> str:
    """Why schedules of a graph cannot be edited, or "".

    >>> from remat_explorer.instances import linear
    >>> why_not_editable(linear(2)), why_not_editable(None)
    ('', 'There is no model yet.')
    """
    if graph is None:
        return "There is no model yet."
    if graph.has_choices:
        return (
            "Operations have several implementations here: what is kept does not say which of them run. Choose “none” "
            "under Implementations to edit by hand."
        )
    return ""


def why_not_changeable(graph: Graph, stage: int, value: int) -> str:
    """Why a value can be neither kept into a stage nor dropped, or "".

    >>> from remat_explorer.instances import linear
    >>> why_not_changeable(linear(2), 3, 1), why_not_changeable(linear(2), 1, 1)
    ('', "'v1' is computed in stage 1 first, and can be kept from stage 2 on")
    """
    name, first = graph.values[value].name, int(graph.producer[value])
    if not 0 <= stage < graph.n:
        return f"there is no stage {stage}; the stages are 0 to {graph.n - 1}"
    if graph.persistent[value]:
        return f"{name!r} is {persistent_kind(name)}: once computed, it stays in memory to the end"
    if not graph.readers[value]:
        return f"no operation reads {name!r}, so it is never kept"
    if stage <= first:
        return f"{name!r} is computed in stage {first} first, and can be kept from stage {first + 1} on"
    return ""


def _groups_of(condensed: CondensedGraph) -> dict[int, int]:
    """The group of each value that has one; the others persist, or nobody reads them.

    >>> from remat_explorer.instances import linear
    >>> _groups_of(CondensedGraph.of(linear(2)))
    {0: 0, 1: 1, 2: 2, 3: 3}
    """
    graph = condensed.graph
    group = {(int(graph.producer[v]), graph.readers[v]): number for number, v in enumerate(condensed.member)}
    kept = [v for v in range(len(graph.values)) if graph.readers[v] and not graph.persistent[v]]
    return {v: group[int(graph.producer[v]), graph.readers[v]] for v in kept}


@dataclass(frozen=True, eq=False)
class EditedSchedule:
    """What a person keeps, the cheapest schedule that keeps nothing else, and the way back.

    Attributes:
        condensed: the graph's groups of values.
        kept: which groups may be kept into each stage, bool of shape (stages, groups); nothing before it was computed.
        least: the least R with all of them kept, bool of shape (stages, n).
        checked: what the checker says of the schedule. It keeps no more than ``kept``, and of that only what is read.
        done, undone: cells that steps have changed, the latest last.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.solver_interface import checkpoint_all
    >>> edited = EditedSchedule.of(checkpoint_all(linear(8)))
    >>> edited.checked.cost, edited.checked.peak
    (17.0, 10)
    >>> dropped = edited.drop(9, 3)
    >>> dropped.checked.cost, dropped.checked.peak, dropped.schedule.violation()
    (18.0, 9, None)
    >>> dropped.keep(9, 3).checked.cost, dropped.undo().checked.cost
    (17.0, 17.0)
    """

    condensed: CondensedGraph
    kept: np.ndarray
    least: np.ndarray
    checked: CheckedSchedule
    done: tuple[_Cells, ...] = ()
    undone: tuple[_Cells, ...] = ()

    @staticmethod
    def of(schedule: Schedule) -> EditedSchedule:
        """Begin with what a schedule keeps.

        Raises:
            ScheduleError: if schedules of its graph cannot be edited, or it has other stages than these.
        """
        if reason := why_not_editable(schedule.graph):
            raise ScheduleError(reason)
        condensed = CondensedGraph.of(schedule.graph)
        nothing = np.zeros((condensed.n, condensed.groups), dtype=bool)
        empty = _with(condensed, nothing, np.eye(condensed.n, dtype=bool), range(condensed.n), (), ())
        return empty._flipped(empty._difference(schedule), (), ())

    @property
    def graph(self) -> Graph:
        """The training graph."""
        return self.condensed.graph

    @property
    def schedule(self) -> Schedule:
        """The cheapest schedule that keeps nothing but what may be kept, without what serves nothing."""
        return self.checked.schedule

    @cached_property
    def in_vain(self) -> np.ndarray:
        """What may be kept though nobody reads it there, bool of shape (stages, values); the plan does not hold it."""
        return retained_values(self.condensed, self.kept) & ~self.schedule.S

    def keep(self, stage: int, value: int, until: int | None = None) -> EditedSchedule:
        """Keep a value into a stage, from where it was last in memory up to where it is next used.

        Args:
            stage: t, the stage that begins with it in memory.
            value: the value, and with it those of its group.
            until: the last stage into which it is kept; with it, exactly these stages are changed.

        Raises:
            ScheduleError: if the value cannot be kept there; the message says why.
        """
        group = self._group(stage, value)
        return self._changed([(stage, until, group)], True)

    def drop(self, stage: int, value: int, until: int | None = None) -> EditedSchedule:
        """Do not keep a value into a stage, nor into those from its last use before up to its next, which computes it.

        Args:
            stage: t, the stage that begins without it.
            value: the value, and with it those of its group.
            until: the last stage into which it is not kept; with it, exactly these stages are changed.

        Raises:
            ScheduleError: if it is never kept into that stage, or always; the message says why.
        """
        group = self._group(stage, value)
        return self._changed([(stage, until, group)], False)

    def paint(self, stages: range, values: list[int], keep: bool) -> EditedSchedule:
        """Keep or drop several values into each of some stages, as one step; what is impossible is left out.

        Raises:
            ScheduleError: if nothing of it is possible.
        """
        possible, reason = [], ""
        for value in values:
            at = [stage for stage in stages if not self.refusal(stage, value)]
            if at:
                possible.append((at[0], at[-1], self._group(at[0], value)))
            elif not reason and len(stages):
                reason = self.refusal(stages[-1], value)
        if not possible and reason:
            raise ScheduleError(reason)
        return self._changed(possible, keep)

    def is_kept(self, stage: int, value: int) -> bool:
        """Whether a value may be kept into a stage, by what the person said."""
        return not self.refusal(stage, value) and bool(self.kept[stage, self._groups[value]])

    def undo(self) -> EditedSchedule:
        """As before the last step; the same where there is none."""
        if not self.done:
            return self
        return self._flipped(self.done[-1], self.done[:-1], (*self.undone, self.done[-1]))

    def redo(self) -> EditedSchedule:
        """The last step that was undone, again; the same where there is none."""
        if not self.undone:
            return self
        return self._flipped(self.undone[-1], (*self.done, self.undone[-1]), self.undone[:-1])

    def reset(self, schedule: Schedule) -> EditedSchedule:
        """Keep what another schedule keeps, as one step.

        Raises:
            ScheduleError: if it has other stages.
        """
        return self._stepped(self._difference(schedule))

    def refusal(self, stage: int, value: int) -> str:
        """Why a value can be neither kept into a stage nor dropped, or ""."""
        return why_not_changeable(self.graph, stage, value)

    @cached_property
    def _groups(self) -> dict[int, int]:
        return _groups_of(self.condensed)

    def _group(self, stage: int, value: int) -> int:
        if reason := self.refusal(stage, value):
            raise ScheduleError(reason)
        return self._groups[value]

    def _changed(self, spans: list[tuple[int, int | None, int]], keep: bool) -> EditedSchedule:
        cells = []
        for stage, until, group in spans:
            if until is None:
                first, last = self._gap(stage, group) if keep else self._stretch(stage, group)
            else:
                first, last = stage, min(until, self.condensed.n - 1)
            cells += [(t, group) for t in range(first, last + 1) if self.kept[t, group] != keep]
        return self._stepped(np.array(sorted(set(cells)), dtype=np.int64).reshape(-1, 2))

    def _gap(self, stage: int, group: int) -> tuple[int, int]:
        """The stages into which the group has to be kept to be there in ``stage``, up to its next use."""
        computed, used = self._uses(group)
        first = stage
        while not (computed[first - 1] or self.kept[first - 1, group]):  # its producer's own stage computes it
            first -= 1
        later = np.flatnonzero(used[stage:])
        return first, stage + int(later[0]) if later.size else stage

    def _stretch(self, stage: int, group: int) -> tuple[int, int]:
        """The stages around ``stage`` into which the group is kept without being used in between."""
        if not self.kept[stage, group]:
            return stage, stage
        _, used = self._uses(group)
        first = last = stage
        while self.kept[first - 1, group] and not used[first - 1]:
            first -= 1
        while not used[last] and last + 1 < self.condensed.n and self.kept[last + 1, group]:
            last += 1
        return first, last

    def _uses(self, group: int) -> tuple[np.ndarray, np.ndarray]:
        """In which stages an operation computes the group, and in which one computes or reads it."""
        runs = self.schedule.R > 0
        computed = runs[:, self.condensed.producer[group]]
        return computed, computed | runs[:, list(self.condensed.readers[group])].any(axis=1)

    def _difference(self, schedule: Schedule) -> _Cells:
        """The cells in which another schedule keeps what is not kept here, or the other way round."""
        if schedule.S.shape != (self.condensed.n, len(self.graph.values)):
            raise ScheduleError(
                f"this schedule has {count(schedule.stages, 'stage')}; only one with a stage for each of the "
                f"{self.condensed.n} operations can be edited: start from keeping everything"
            )
        kept = np.zeros_like(self.kept)
        for value, group in self._groups.items():
            first = int(self.graph.producer[value]) + 1
            kept[first:, group] |= schedule.S[first:, value]
        return np.argwhere(kept != self.kept)

    def _stepped(self, cells: _Cells) -> EditedSchedule:
        return self._flipped(cells, (*self.done, cells)[-_MAX_STEPS:], ()) if len(cells) else self

    def _flipped(self, cells: _Cells, done: tuple[_Cells, ...], undone: tuple[_Cells, ...]) -> EditedSchedule:
        """With other cells; a row of the least R depends on two rows of what is kept, and only these are made anew."""
        kept = self.kept.copy()
        kept[cells[:, 0], cells[:, 1]] ^= True
        rows = np.unique(np.concatenate([cells[:, 0], cells[:, 0] - 1]))
        return _with(self.condensed, kept, self.least, rows.tolist(), done, undone)


def _with(
    condensed: CondensedGraph,
    kept: np.ndarray,
    least: np.ndarray,
    rows: list[int] | range,
    done: tuple[_Cells, ...],
    undone: tuple[_Cells, ...],
) -> EditedSchedule:
    """An edited schedule whose least R differs from ``least`` in some rows at most."""
    least, none = least.copy(), np.zeros(condensed.groups, dtype=bool)
    for t in rows:
        least[t] = minimal_row(condensed, t, kept[t], kept[t + 1] if t + 1 < condensed.n else none)
    tight = Schedule(condensed.graph, least, retained_values(condensed, kept)).compact()
    checked = check_schedule(tight)
    kept.flags.writeable = least.flags.writeable = False
    return EditedSchedule(condensed, kept, least, checked, done, undone)

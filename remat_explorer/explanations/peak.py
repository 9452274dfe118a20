"""What is in memory while a statement runs, and for whom it is kept; what a stage does, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from remat_explorer.explanations.choices import first_runs
from remat_explorer.explanations.values import Lifetime, lives_of
from remat_explorer.explanations.wording import (
    Mention,
    Words,
    count,
    listed,
    mention_operation,
    mention_stage,
    persistent_kind,
    plain,
)
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule


@dataclass(frozen=True)
class StageSummary:
    """What a stage computes, recomputes and starts with.

    Attributes:
        new: operations that it is the first to run.
        again: operations that it runs again.
        kept: number of values that it starts with, and their bytes.
        peak: predicted highest memory in it in bytes, or None where it runs nothing.
    """

    stage: int
    new: tuple[int, ...]
    again: tuple[int, ...]
    kept: int
    kept_bytes: int
    peak: int | None
    sentence: str


def summarize_stage(schedule: Schedule, plan: Plan, stage: int) -> StageSummary:
    """What the stage does.

    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))
    >>> summarize_stage(keep, Plan.of(keep), 2).sentence
    'computes v2 · starts with 2 kept values (2 B) · peaks at 3 B'
    """
    graph, timeline = schedule.graph, plan.timeline
    runs = np.flatnonzero(schedule.implementations_in(stage))
    fresh = first_runs(schedule)[runs] == stage
    new, again = tuple(map(int, runs[fresh])), tuple(map(int, runs[~fresh]))
    kept = schedule.retained_into(stage)
    size = int(graph.value_bytes[kept].sum())
    begin, end = np.searchsorted(timeline.stage, (stage, stage + 1))
    peak = int(timeline.during[begin:end].max()) if end > begin else None
    words = [
        f"computes {listed([graph.operations[k].name for k in new])}" if new else "computes nothing new",
        *([f"recomputes {len(again)}"] if again else []),
        f"starts with {count(int(kept.sum()), 'kept value')} ({format_bytes(size)})",
        *([f"peaks at {format_bytes(peak)}"] if peak is not None else []),
    ]
    return StageSummary(stage, new, again, int(kept.sum()), size, peak, " · ".join(words))


@dataclass(frozen=True)
class PeakRow:
    """One part of the memory in use.

    Attributes:
        kind: a value, the workspace of the operation that runs, or what is always there.
        value: the value, or None.
        bytes: its size.
        why: the reason, with names that can be followed.
        reader: the operation that reads it next, from this statement on, or None.
    """

    kind: Literal["value", "workspace", "resident"]
    name: str
    value: int | None
    bytes: int
    why: Words
    reader: int | None = None

    @property
    def reason(self) -> str:
        """The reason as text."""
        return plain(self.why)


@dataclass(frozen=True)
class Memory:
    """What is in memory while a statement runs: the rows, largest first, add up to ``total`` bytes."""

    statement: int
    stage: int
    text: str
    total: int
    rows: tuple[PeakRow, ...]


def alive_at(plan: Plan, statement: int | None = None) -> Memory:
    """What is in memory while a statement of ``plan`` runs, by default that of the peak.

    >>> from remat_explorer.instances import linear
    >>> memory = alive_at(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]))
    >>> [(row.name, row.bytes, row.reason) for row in memory.rows]
    [('v0', 1, 'read by v2, here'), ('v1', 1, 'read by v2, here'), ('v2', 1, 'being written')]
    """
    return _at_the_peak(plan) if statement is None else _alive_at(plan, statement)


def _alive_at(plan: Plan, at: int) -> Memory:
    graph, running = plan.graph, plan.statements[at]
    rows = [_row(plan, at, life) for life in lives_of(plan).at(at)]
    if isinstance(running, Compute):
        way = graph.operations[running.operation].implementations[running.implementation - 1]
        for v in running.drops:
            words: Words = ("written again, and dropped: its first version stays",)
            rows.append(PeakRow("value", graph.values[v].name, v, graph.values[v].bytes, words))
        if way.workspace:
            words = ("needed by ", mention_operation(graph, running.operation), " only while it runs")
            rows.append(PeakRow("workspace", "workspace", None, way.workspace, words))
    if graph.resident_bytes:
        words = ("parameters, inputs and buffers are always there",)
        rows.append(PeakRow("resident", "resident", None, graph.resident_bytes, words))
    rows.sort(key=lambda row: -row.bytes)
    return Memory(at, running.stage, plan.text(running), int(plan.timeline.during[at]), tuple(rows))


@memoize_by_identity
def _at_the_peak(plan: Plan) -> Memory:
    return _alive_at(plan, plan.timeline.peak_statement)


def _row(plan: Plan, at: int, life: Lifetime) -> PeakRow:
    graph, running = plan.graph, plan.statements[at]
    value = graph.values[life.value]
    read = life.next_reader(at)
    reader = plan.statements[read] if read is not None else None
    later = life.next_reader(at + 1)
    words: Words
    if isinstance(running, Free) and running.value == life.value and life.last == at:
        words = ("being freed",)
    elif life.first == at:
        words = ("being written",)
    elif read == at:
        words = ("read by ", _operation_at(plan, at), ", here")
        if later is not None:
            words = (*words, ", then kept for ", *_reader_in_stage(plan, later))
    elif read is not None:
        words = ("kept for ", *_reader_in_stage(plan, read))
    elif life.stays:
        words = (f"{persistent_kind(value.name)}: it stays to the end",)
    else:
        words = ("about to be freed: nothing reads it any more",)
    number = reader.operation if isinstance(reader, Compute) else None
    return PeakRow("value", value.name, life.value, value.bytes, words, number)


def _operation_at(plan: Plan, at: int) -> Mention:
    statement = plan.statements[at]
    assert isinstance(statement, Compute)
    return mention_operation(plan.graph, statement.operation, statement.stage)


def _reader_in_stage(plan: Plan, at: int) -> Words:
    return (_operation_at(plan, at), " in ", mention_stage(plan.statements[at].stage))

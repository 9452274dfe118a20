"""What a stage does, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.explanations.again import first_runs
from remat_explorer.explanations.wording import count, listed
from remat_explorer.plan import Plan
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

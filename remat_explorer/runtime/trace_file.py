"""A run as a trace file: statements as slices, memory as counters.

The Trace Event Format of Chrome, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from remat_explorer.plan import Compute, Plan

_PROCESS = 1
_LANES = {"forward": 1, "backward": 2, "recomputed": 3}


def trace_document(
    plan: Plan,
    device: str,
    statement_seconds: np.ndarray,
    during: np.ndarray,
    after: np.ndarray,
    other: dict[str, Any],
) -> dict[str, Any]:
    """The trace as a JSON object: one slice for each computation, and predicted and measured memory over time.

    Times are those of the run in which each statement was waited for, in microseconds.

    Args:
        plan: what ran, with its predicted timeline.
        device: name of the device.
        statement_seconds: time of each statement, float64.
        during: measured highest bytes within each statement, int64.
        after: measured bytes after each statement, int64.
        other: what viewers show as further data of the run.
    """
    ends = np.cumsum(statement_seconds) * 1e6
    begins = ends - statement_seconds * 1e6
    title = f"{plan.graph.name} on {device}"
    events: list[dict[str, Any]] = [_named("process_name", 0, title)]
    events += [_named("thread_name", lane, name) for name, lane in _LANES.items()]
    for i, statement in enumerate(plan.statements):
        if not isinstance(statement, Compute):
            continue
        node = plan.graph.operations[statement.operation]
        events.append(
            {
                "name": node.name,
                "cat": node.phase if statement.first else "recomputed",
                "ph": "X",
                "pid": _PROCESS,
                "tid": _LANES[node.phase if statement.first else "recomputed"],
                "ts": float(begins[i]),
                "dur": float(ends[i] - begins[i]),
                "args": {
                    "statement": plan.text(statement),
                    "stage": statement.stage,
                    "measured bytes": int(during[i]),
                    "predicted bytes": int(plan.timeline.during[i]),
                },
            }
        )
    events += _counter("memory measured", begins, ends, during, after)
    events += _counter("memory predicted", begins, ends, plan.timeline.during, plan.timeline.after)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}


def _counter(
    name: str, begins: np.ndarray, ends: np.ndarray, during: np.ndarray, after: np.ndarray
) -> list[dict[str, Any]]:
    """A counter that shows the highest memory within each statement, and what remains after it."""
    points = [(float(time), int(size)) for i in range(len(during)) for time, size in
              ((begins[i], during[i]), (ends[i], after[i]))]  # fmt: skip
    kept = points[:1] + [now for before, now in pairwise(points) if before[1] != now[1]]
    return [{"name": name, "ph": "C", "pid": _PROCESS, "ts": t, "args": {"bytes": size}} for t, size in kept]


def _named(kind: str, lane: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": _PROCESS, "tid": lane, "args": {"name": name}}

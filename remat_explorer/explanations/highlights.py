"""Where to look first: the dearest recomputation, the peak, and what a stage is about."""

from __future__ import annotations

from remat_explorer.explanations.again import first_runs
from remat_explorer.explanations.peak import alive_at
from remat_explorer.once import once
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule


def first_look(schedule: Schedule, plan: Plan) -> tuple[int, int]:
    """Stage and value to begin with: the recomputation that costs most, or where there is none the peak.

    Args:
        schedule: R and S.
        plan: its plan.

    Returns:
        The stage, and the first value that is written there; at the peak, the largest value in memory.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> few, all_kept = solve(linear(8), 4), solve(linear(8), 10)
    >>> first_look(few.schedule, few.plan), first_look(all_kept.schedule, all_kept.plan)
    ((10, 5), (9, 0))
    """
    return dearest_recomputation(schedule) or peak_look(plan)


def dearest_recomputation(schedule: Schedule) -> tuple[int, int] | None:
    """Stage and first value written of the recomputation that costs most, or None where nothing is computed again."""
    again = recomputed(schedule)
    return max(again, key=lambda found: again[found]) if again else None


def peak_look(plan: Plan) -> tuple[int, int]:
    """The stage at which most is in memory, and the largest value there."""
    memory = alive_at(plan)
    return memory.stage, next((row.value for row in memory.rows if row.value is not None), 0)


@once
def recomputed(schedule: Schedule) -> dict[tuple[int, int], tuple[float, int]]:
    """What is computed again, as stage and first value that is written: its cost, and the bytes of that value.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> recomputed(solve(linear(4), 4).schedule)
    {(7, 0): (1.0, 1), (7, 1): (1.0, 1)}
    """
    graph, first = schedule.graph, first_runs(schedule)
    found = {}
    for stage, operation, code in schedule.sequence:
        outputs = graph.outputs(operation)
        if stage > first[operation] and outputs:
            cost = float(graph.operations[operation].implementations[code - 1].cost)
            found[stage, outputs[0]] = cost, int(graph.value_bytes[outputs[0]])
    return found


@once
def values_of_stages(schedule: Schedule) -> list[int]:
    """For each stage the value that it is about: of what it computes again the dearest, else of its last operation.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> values_of_stages(solve(linear(4), 4).schedule)
    [0, 1, 2, 3, 4, 5, 6, 0, 8]
    """
    again, values = recomputed(schedule), [0] * schedule.stages
    for stage, operation, _ in schedule.sequence:
        outputs = schedule.graph.outputs(operation)
        values[stage] = outputs[0] if outputs else values[stage]
    best: dict[int, tuple[float, int]] = {}
    for (stage, value), weight in again.items():
        if stage not in best or weight > best[stage]:
            best[stage], values[stage] = weight, value
    return values

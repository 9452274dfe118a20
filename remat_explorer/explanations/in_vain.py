"""What the dearer of two schedules computes again that the cheaper one does not."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes, format_share
from remat_explorer.schedule import Schedule

NAMED = 3


@dataclass(frozen=True)
class Vain:
    """An operation that the dearer schedule runs more often.

    Attributes:
        operation: its index.
        runs: how many more.
        cost: of these, in the unit of the graph's costs.
    """

    operation: int
    runs: int
    cost: float


def in_vain(dearer: Schedule, cheaper: Schedule) -> list[Vain]:
    """Operations that run more often in the first schedule, the costliest first.

    Args:
        dearer, cheaper: schedules of one graph.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.schedule.runs import Computations
    >>> once = [(k, k, 1) for k in range(5)]
    >>> def leanest(computed):
    ...     return Schedule.leanest(linear(2), 5, Computations.of(computed))
    >>> in_vain(leanest([*once[:3], (3, 0, 1), *once[3:]]), leanest(once))
    [Vain(operation=0, runs=1, cost=1.0)]
    """
    first, second = _runs(dearer), _runs(cheaper)
    costs: dict[int, float] = defaultdict(float)
    for _, operation, code in dearer.sequence:
        costs[operation] += dearer.graph.operations[operation].implementations[code - 1].cost
    found = []
    for operation, runs in first.items():
        more = runs - second[operation]
        if more > 0:
            found.append(Vain(operation, more, more * costs[operation] / runs))
    return sorted(found, key=lambda vain: (-vain.cost, vain.operation))


def in_vain_text(a: Schedule, b: Schedule) -> str:
    """The same of A and B as sentences: which costs more, what it runs in addition, and at which memory.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.schedule.runs import Computations
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

"""The least that a list of computations retains, and which of them somebody reads."""

from __future__ import annotations

from remat_explorer.graph import Graph
from remat_explorer.schedule.runs import Computations, Retained


def leanest(graph: Graph, stages: int, computations: Computations) -> tuple[Computations, Retained]:
    """The computations that somebody reads, or that are the first, and S for them: each value only for a later read.

    From the last computation to the first, each value is known to be read later, and until which stage, or not. What
    is computed is retained from the next stage up to that one, so (1c) is tight. Persistent values are retained from
    their first computation to the end. A value that is read and never computed before is retained from stage 0 on,
    which `violation` reports.

    >>> from remat_explorer.instances import linear
    >>> keep, retained = leanest(linear(1), 3, Computations.of([(0, 0, 1), (1, 0, 1), (1, 1, 1), (2, 2, 1)]))
    >>> keep.rows(), retained.rows()
    ([(0, 0, 1), (1, 0, 1), (1, 1, 1), (2, 2, 1)], [(0, 2, 2), (1, 2, 2)])
    """
    rows, persistent = computations.rows(), graph.persistent.tolist()
    first = {k: t for t, k, _ in reversed(rows)}
    read_until: dict[int, int] = {}  # of values that a later computation reads, the last stage that does
    made: dict[int, int] = {}  # the first stage that computes each persistent value
    useful, runs = list[tuple[int, int, int]](), list[tuple[int, int, int]]()
    for t, k, code in reversed(rows):
        outputs, again = graph.outputs(k, code), first[k] != t
        wanted = any(v in read_until and not (again and persistent[v]) for v in outputs)
        if not wanted and (again or graph.operations[k].optional):
            continue
        useful.append((t, k, code))
        for v in outputs:
            last = read_until.pop(v, t)
            if persistent[v]:
                made[v] = t
            elif last > t:
                runs.append((v, t + 1, last))
        for v in graph.inputs(k, code):
            read_until.setdefault(v, t)
    runs += [(v, 0, last) for v, last in read_until.items() if not persistent[v]]
    runs += [(v, t + 1, stages - 1) for v, t in made.items() if t + 1 < stages]
    return Computations.of(useful), Retained.of(runs)

"""Which gradients leave the backward half together: handing over takes some time, so it must be worth it."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence

from torch.fx import Node

from remat_explorer.capture.captured_program import Program, Result
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.emission import reads, sources_of

LEAST_SECONDS = 0.002  # between two handovers: handing over takes about a hundredth of that
MOST_HANDOVERS = 64


def handovers_of(plan: Plan, program: Program, cut: int, gradients: Sequence[Result]) -> tuple[tuple[Result, ...], ...]:
    """The gradients in the order in which a plan is done with them, in handovers.

    A handover ends with the first gradient that is ready when the plan has run for `LEAST_SECONDS` since the handover
    before, by the costs of its graph, and for one part in `MOST_HANDOVERS` of the backward half.

    Args:
        plan: what runs.
        program: whose results the gradients are.
        cut: index of the first statement of the backward half.
        gradients: what the backward half makes.
    """
    spent, seconds = [], 0.0
    last: dict[Node, int] = {}  # the last statement that makes or reads something
    for place, statement in enumerate(plan.statements[cut:]):
        if isinstance(statement, Compute):
            body = program.body(statement)
            last |= dict.fromkeys((*reads(body), *body.outputs.values()), place)
            way = plan.graph.operations[statement.operation].implementations[statement.implementation - 1]
            seconds += way.cost
        spent.append(seconds)
    ready = [max(last.get(node, 0) for node in (*sources_of(one), one.of.node)) for one in gradients if one.of]
    least = max(LEAST_SECONDS, seconds / MOST_HANDOVERS)
    handovers: list[list[Result]] = [[]]
    before = 0.0
    in_order = sorted(zip(ready, gradients, strict=True), key=operator.itemgetter(0))
    for place, together in itertools.groupby(in_order, key=operator.itemgetter(0)):
        handovers[-1] += [gradient for _, gradient in together]
        if spent[place] - before >= least:
            handovers.append([])
            before = spent[place]
    return tuple(tuple(handover) for handover in handovers if handover)

"""What memory is made of while each computation of a plan runs: the four layers of the memory timeline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.plan import Compute, Free, Plan


@dataclass(frozen=True)
class Holdings:
    """Bytes by kind, one entry per computation of the plan, int64; the kinds add up to the predicted memory.

    Attributes:
        statement: index of each computation among the plan's statements.
        stage: stage of each computation.
        resident: parameters, inputs and buffers.
        kept: values of the forward pass that live into a later stage.
        temporaries: values of the forward pass that die in their stage, and workspace.
        gradients: everything that the backward pass writes.
    """

    statement: np.ndarray
    stage: np.ndarray
    resident: np.ndarray
    kept: np.ndarray
    temporaries: np.ndarray
    gradients: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """Predicted memory while each computation runs, bytes."""
        return self.resident + self.kept + self.temporaries + self.gradients


def holdings(plan: Plan) -> Holdings:
    """Split the predicted memory of ``plan`` by kind.

    >>> from remat_explorer.instances import linear
    >>> holdings(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])).total.tolist()
    [1, 2, 3]
    """
    graph, bytes_of = plan.graph, plan.graph.value_bytes.tolist()
    freed_in = _stages_of_death(plan)
    kind_of: dict[int, int] = {}
    held = [0, 0, 0]  # kept, temporaries, gradients
    rows, statements, stages = [], [], []
    for i, statement in enumerate(plan.statements):
        if isinstance(statement, Free):
            held[kind_of.pop(statement.value)] -= bytes_of[statement.value]
            continue
        node = graph.operations[statement.operation]
        way = node.implementations[statement.implementation - 1]
        dropped = sum(bytes_of[v] for v in statement.drops)
        if statement.overwrites is not None:
            held[kind_of.pop(statement.overwrites)] -= bytes_of[statement.overwrites]
        for v in way.outputs:
            if v in statement.drops:
                continue
            backward = node.phase == "backward"
            kind_of[v] = 2 if backward else 0 if freed_in[i, v] > statement.stage else 1
            held[kind_of[v]] += bytes_of[v]
        rows.append((held[0], held[1] + way.workspace + dropped, held[2]))
        statements.append(i)
        stages.append(statement.stage)
    kept, temporaries, gradients = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    resident = np.full(len(rows), graph.resident_bytes, dtype=np.int64)
    return Holdings(np.array(statements), np.array(stages), resident, kept, temporaries, gradients)


def _stages_of_death(plan: Plan) -> dict[tuple[int, int], int]:
    """For each (statement, value) that creates a version, the stage in which it ends; persistent ones outlive all."""
    last_stage = plan.statements[-1].stage + 1
    death: dict[tuple[int, int], int] = {}
    next_free: dict[int, int] = {}
    for i in range(len(plan.statements) - 1, -1, -1):
        statement = plan.statements[i]
        if isinstance(statement, Compute):
            way = plan.graph.operations[statement.operation].implementations[statement.implementation - 1]
            for v in way.outputs:
                death[i, v] = next_free.pop(v, last_stage)
            if statement.overwrites is not None:
                next_free[statement.overwrites] = statement.stage
        else:
            next_free[statement.value] = statement.stage
    return death

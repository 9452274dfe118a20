"""PyTorch's activation memory budget as a plan on our graph, so that it runs and is measured as every plan is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch.fx import Node

from remat_explorer.capture.joint.propagation import storage_key, tensors_of
from remat_explorer.capture.operations.program import Program
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.runtime.min_cut_partitioner import partition
from remat_explorer.runtime.peers.equal_calls import first_equals
from remat_explorer.runtime.peers.stages import staged


def pytorch_budget_plan(program: Program, budget: float, solver: str = "dp") -> Plan:
    """The plan that PyTorch's partitioner chooses under an activation memory budget.

    Operations run in the order of its forward and then its backward graph. The partitioner merges equal calls and
    leaves out what nobody reads. Here such an operation first runs at its own place in the graph's order, and again
    in the backward graph if the call that it was merged with does.

    Args:
        program: of a graph without contraction, and with whole convolution backwards, where each operation is one
            call, just as the partitioner sees it. Of another graph, an operation of several calls runs where the
            last of them runs.
        budget: share of the bytes kept from forward to backward, from 0 to 1; it bounds no peak.
        solver: of the partitioner's knapsack, one of `remat_explorer.runtime.min_cut_partitioner.SOLVERS`.

    Raises:
        ExecutionError: if the budget is out of range.
        UnknownNameError: if there is no such solver.

    >>> import torch
    >>> from remat_explorer.capture import trace
    >>> from remat_explorer.capture_options import CaptureOptions
    >>> layers = [layer for _ in range(4) for layer in (torch.nn.Linear(8, 8), torch.nn.Tanh())]
    >>> options = CaptureOptions(contract=False, split_convolution_backward=False)
    >>> program = trace(torch.nn.Sequential(*layers), (torch.ones(64, 8),), options=options)
    >>> [sum(not s.first for s in pytorch_budget_plan(program, b).statements if hasattr(s, "first")) for b in (1, 0)]
    [0, 8]
    """
    parts = partition(program.module, budget, solver)
    operation_of = _operation_of(program)
    runs = [_last_places(part, operation_of) for part in parts]
    walk = _Walk(program.graph, _absent(program, operation_of, {k for part in runs for k in part}))
    for part in runs:
        walk.run_all(part)
    walk.run_absent()
    return Plan.from_sequence(program.graph, staged(walk.sequence))


def _operation_of(program: Program) -> dict[str, int]:
    """The operation of each call, by its name; views belong to none, since many operations may read through one."""
    return {
        call.node.name: k
        for k, body in enumerate(program.bodies)
        for call in body.calls
        if _makes_storage(call.node, program.fakes)
    }


def _makes_storage(node: Node, fakes: Mapping[Node, object]) -> bool:
    old = {storage_key(tensor) for source in node.all_input_nodes for tensor in tensors_of(fakes[source])}
    return any(storage_key(tensor) not in old for tensor in tensors_of(fakes[node]))


def _last_places(names: Iterable[str], operation_of: Mapping[str, int]) -> list[int]:
    """Operations in the order in which the last of their calls come."""
    last: dict[int, None] = {}
    for name in names:
        if (k := operation_of.get(name)) is not None:
            last.pop(k, None)
            last[k] = None
    return list(last)


def _absent(program: Program, operation_of: Mapping[str, int], present: set[int]) -> dict[int, int | None]:
    """Operations that the partitioner has no call of, each with the one that it was merged with, if there is one."""
    first = first_equals(program.module)
    twins = {k: operation_of[first[name]] for name, k in operation_of.items()}  # the last call of an operation stays
    return {k: twin if (twin := twins[k]) != k else None for k in range(program.graph.n) if k not in present}


class _Walk:
    """Collects the sequence of operations; each input is there before it is read.

    Args:
        graph: the graph of the operations.
        absent: operations that no part lists, with those that they are equal to.
    """

    def __init__(self, graph: Graph, absent: Mapping[int, int | None]) -> None:
        self.sequence: list[int] = []
        self._graph = graph
        self._absent = absent
        self._waiting = sorted(absent, reverse=True)
        self._ever: set[int] = set()
        self._here: set[int] = set()

    def run_all(self, operations: Iterable[int]) -> None:
        """Run the operations of one part."""
        self._here = set()
        for k in operations:
            if k not in self._ever:
                self.run_absent(before=k)
            if k not in self._here:
                self._run(k)

    def run_absent(self, before: int | None = None) -> None:
        """Run what no part lists for the first time: whatever comes before an operation in the graph's order."""
        while self._waiting and (before is None or self._waiting[-1] < before):
            k = self._waiting.pop()
            if k not in self._ever:
                self._run(k)

    def _run(self, k: int) -> None:
        for v in self._graph.inputs(k):
            maker = int(self._graph.producer[v])
            again = maker not in self._here and self._absent.get(maker) in self._here
            if again or maker not in self._ever:
                self._run(maker)
        self.sequence.append(k)
        self._ever.add(k)
        self._here.add(k)

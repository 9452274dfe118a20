"""PyTorch's activation memory budget as a plan on our graph, so that it runs and is measured as every plan is.

`as_stages` and `schedule_of` lead from a sequence of operations to stages, and to a schedule where it is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from remat_explorer.capture import Program, is_random, storage_key, tensors_of
from remat_explorer.checker import check_schedule
from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.min_cut_partitioner import partition
from remat_explorer.schedule import Computations, Schedule


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
    walk = _SequenceBuilder(program.graph, _absent(program, operation_of, {k for part in runs for k in part}))
    for part in runs:
        walk.run_all(part)
    walk.run_absent()
    return Plan.from_sequence(program.graph, as_stages(walk.sequence))


def first_equal_calls(module: GraphModule) -> dict[str, str]:
    """For each call the name of the first call with the same operator and equal arguments: its own, if it is that one.

    Random calls are equal to none but themselves.
    """
    first: dict[tuple[object, str, str], Node] = {}
    equal: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op != "call_function" or is_random([node]):
            equal[node] = node
            continue
        args, kwargs = map_arg((node.args, node.kwargs), equal.__getitem__)
        equal[node] = first.setdefault((node.target, str(args), str(kwargs)), node)
    return {node.name: keeper.name for node, keeper in equal.items() if node.op == "call_function"}


def as_stages(sequence: Sequence[int]) -> list[tuple[int, int, int]]:
    """Each computation as (stage, operation, implementation), the stages of a frontier-advancing schedule.

    A stage ends with the first run of an operation, whose number it has; the repetitions before belong to it. Stages
    never go back, also where first runs are not in the order of the numbers.

    >>> as_stages([0, 1, 0, 2, 3])
    [(0, 0, 1), (1, 1, 1), (2, 0, 1), (2, 2, 1), (3, 3, 1)]
    """
    first = {k: place for place, k in reversed(list(enumerate(sequence)))}
    stages, stage = [0] * len(sequence), max(sequence, default=0)
    for place, k in reversed(list(enumerate(sequence))):
        if first[k] == place:
            stage = min(stage, k)
        stages[place] = stage
    return [(stage, k, 1) for stage, k in zip(stages, sequence, strict=True)]


def sort_first_runs(sequence: Sequence[int]) -> list[int]:
    """The same computations with first runs in the order of their numbers: an operation waits for those before it.

    What is traced may differ from that order, where weight gradients go before input gradients.

    >>> sort_first_runs([0, 2, 1, 0, 3])
    [0, 1, 2, 0, 3]
    """
    ordered: list[int] = []
    waiting: set[int] = set()
    following = 0
    for k in sequence:
        if k < following:
            ordered.append(k)
        waiting.add(k)
        while following in waiting:
            ordered.append(following)
            following += 1
    return ordered


def schedule_of(plan: Plan) -> Schedule | None:
    """The schedule with the computations of a plan, checked; None where its stages are no rows of R.

    Rows of R run in the order of the operations' numbers, and so do first runs: where a plan has them in another order,
    the schedule's peak differs a little from the plan's.

    >>> from remat_explorer.instances import linear
    >>> graph = linear(1)
    >>> schedule_of(Plan.from_sequence(graph, as_stages([0, 1, 0, 2]))).R.tolist()
    [[1, 0, 0], [0, 1, 0], [1, 0, 1]]
    >>> schedule_of(Plan.from_sequence(graph, as_stages([0, 1, 0, 0, 2]))) is None
    True
    """
    graph = plan.graph
    runs = [statement for statement in plan.statements if isinstance(statement, Compute)]
    computed = set(as_stages(sort_first_runs([run.operation for run in runs])))
    schedule = Schedule.leanest(graph, graph.n, Computations.of(computed))
    if len(computed) != len(runs) or not schedule.is_frontier_advancing:
        return None
    try:
        return check_schedule(schedule).schedule
    except ScheduleError:
        return None


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
    first = first_equal_calls(program.module)
    twins = {k: operation_of[first[name]] for name, k in operation_of.items()}  # the last call of an operation stays
    return {k: twin if (twin := twins[k]) != k else None for k in range(program.graph.n) if k not in present}


class _SequenceBuilder:
    """Collects the sequence of operations; each input is there before it is read.

    ``absent`` are the operations that no part lists, with those that they are equal to.
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

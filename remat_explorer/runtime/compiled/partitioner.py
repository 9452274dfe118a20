"""A partitioner for AOTAutograd and Inductor that keeps to a memory budget by the optimal schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch.fx import GraphModule

from remat_explorer.capture.operations.program import Program
from remat_explorer.claims import relative_gap
from remat_explorer.entry_checks import Seconds, require_arguments
from remat_explorer.errors import ExecutionError
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes, format_share
from remat_explorer.runtime.compiled.halves import halves_of
from remat_explorer.runtime.compiled.joint_program import joint_program
from remat_explorer.solution import Solution
from remat_explorer.solvers import minimum_budget, solve
from remat_explorer.solvers.memory.minimum_budget import Budget, budget_of, require_budget, smallest_known


@dataclass(eq=False)
class PlannedGraph:
    """One graph that was compiled for training.

    Attributes:
        solution: its schedule, for the graph as the partitioner saw it.
        budget: bytes that were asked for. Where it was planned again, the solution's own budget is smaller, and its
            status, lower bound and gap are for that.
        measured_peak: highest bytes of a trial step of the compiled code, resident bytes included; None where none ran.
        turns: how often it was planned, each time for less, until the measured peak kept to the budget.
        at_budget: the last solution for the budget that was asked for, where it was planned again.
        fused_peak: highest bytes by the buffers of Inductor's kernels, resident bytes included; None without Inductor.
    """

    solution: Solution
    budget: int
    measured_peak: int | None = None
    turns: int = 1
    at_budget: Solution | None = None
    fused_peak: int | None = None

    @property
    def lower_bound(self) -> float | None:
        """No schedule within the budget that was asked for costs less, of operations that are not fused."""
        return (self.at_budget or self.solution).lower_bound

    @property
    def gap(self) -> float | None:
        """(cost - lower bound) / cost for the budget asked for; None when unknown, or where it was planned for more."""
        return None if self.solution.budget > self.budget else relative_gap(self.solution.cost, self.lower_bound)

    @property
    def predicted_peak(self) -> int:
        """Bytes of the plan, resident bytes included."""
        assert self.solution.peak is not None  # nothing is compiled without a schedule
        return self.solution.peak

    @property
    def moved(self) -> float | None:
        """(measured - predicted) / predicted: how far workspace, fusion and the compiler's order moved the peak."""
        return None if self.measured_peak is None else self.measured_peak / self.predicted_peak - 1

    @property
    def within_budget(self) -> bool | None:
        """Whether the measured peak keeps to the budget; None until it is measured."""
        return None if self.measured_peak is None else self.measured_peak <= self.budget

    def __str__(self) -> str:
        measured = "not measured yet"
        if self.measured_peak is not None:
            measured = f"measured {format_bytes(self.measured_peak)} ({self.moved:+.2%})"
        text = f"{self.solution}; budget {format_bytes(self.budget)}, {measured}"
        if self.at_budget is None or self.at_budget is self.solution:
            return text
        proven = "no bound proven" if self.gap is None else f"gap {format_share(self.gap)}"
        return f"{text}, planned for {format_bytes(self.solution.budget)}; for the budget asked for, {proven}"


class Partitioner(CustomPartitionerFn):
    """Parts a joint graph by a schedule; `partitioner` makes one.

    Args:
        again: it was planned before; a budget below the smallest with a known schedule then means that one.
        measured: makes of the program's graph the one with measured workspace.

    Attributes:
        planned: the graphs that it has parted, in order.
        program: of the last one, before what was measured.
        held, beside: of the last one's `Halves`.
    """

    def __init__(
        self,
        budget: Budget,
        strategy: str,
        time_limit: float,
        in_place: bool,
        again: bool = False,
        measured: Callable[[Graph], Graph] | None = None,
    ) -> None:
        self.budget, self.strategy, self.time_limit, self.in_place = budget, strategy, time_limit, in_place
        self.again, self.measured = again, measured
        self.program: Program | None = None
        self.held, self.beside = frozenset[str](), 0
        self.planned: list[PlannedGraph] = []

    def __call__(
        self, gm: GraphModule, joint_inputs: Sequence[object], *, num_fwd_outputs: int, **kwargs: Any
    ) -> tuple[GraphModule, GraphModule]:
        """The forward and the backward graph.

        Args:
            gm: the joint graph; it is changed.
            joint_inputs: not looked at; the graph has their FakeTensors.
            num_fwd_outputs: how many results are of the forward pass.
            kwargs: other settings of PyTorch's partitioners, which a plan does not need.

        Raises:
            ExecutionError: if no schedule fits, with the smallest budget worth trying, or the graph has no plan.
        """
        joint = joint_program(gm, num_fwd_outputs, self.in_place)
        self.program = joint.program
        if self.measured is not None:
            graph = self.measured(joint.program.graph)
            joint = replace(joint, program=replace(joint.program, graph=graph))
        graph = joint.program.graph
        asked = budget_of(graph, self.budget)
        if self.again:
            asked = max(asked, smallest_known(graph))
        solution = solve(graph, asked, self.strategy, self.time_limit)
        if solution.schedule is None or solution.plan is None:
            smallest = minimum_budget(graph)
            if solution.status == "infeasible":
                raise ExecutionError(smallest.explain_infeasible(self.strategy, asked))
            raise ExecutionError(smallest.explain_unknown(self.strategy, asked, solution.limit))
        self.planned.append(PlannedGraph(solution, asked))
        halves = halves_of(solution.plan, joint)
        self.held, self.beside = halves.held, halves.beside
        return halves.forward, halves.backward

    def __deepcopy__(self, memo: object) -> Partitioner:
        """Itself: Inductor copies its settings, and FakeTensors cannot be copied outside of their mode."""
        return self

    def uuid(self) -> None:
        """None: a compiled graph is not kept, since it depends on what a search found in time."""


def partitioner(
    budget: Budget, strategy: str = "optimal", *, time_limit: Seconds = 60.0, in_place: bool = False
) -> Partitioner:
    """A partitioner of joint graphs, for ``partition_fn`` of AOTAutograd and for Inductor's ``custom_partitioner_fn``.

    Each graph that it parts is a problem of its own, with the whole budget; a model that breaks into several graphs
    keeps what one graph saves while the next one runs, which no budget here counts. `remat_explorer.compile` therefore
    refuses graph breaks.

    Args:
        budget: bytes, "2 GiB", "60%" of what keeping everything takes, or "smallest"; parameters, inputs, gradients and
            the gradients of the outputs are included.
        strategy, time_limit: as for `remat_explorer.solve`.
        in_place: for back ends that run the graphs as they are: operations may write over tensors that die, as plans of
            `remat_explorer.rematerialize` do. Without it operations are kernels, as Inductor is expected to make them;
            what it then fuses and in which order it runs the kernels is its own choice, which
            `remat_explorer.compile` restricts.

    >>> from torch._dynamo.backends.common import aot_autograd
    >>> from torch._dynamo.backends.debugging import boxed_nop
    >>> import torch
    >>> parts = partitioner("80%", in_place=True)
    >>> backend = aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=parts)
    >>> layers = [layer for _ in range(4) for layer in (torch.nn.Linear(32, 32), torch.nn.Tanh())]
    >>> model = torch.compile(torch.nn.Sequential(*layers), backend=backend, fullgraph=True)
    >>> model(torch.ones(256, 32)).sum().backward()
    >>> parts.planned[0].predicted_peak <= parts.planned[0].budget
    True
    """
    require_arguments(partitioner, locals())
    require_budget(budget)
    return Partitioner(budget, strategy, time_limit, in_place)

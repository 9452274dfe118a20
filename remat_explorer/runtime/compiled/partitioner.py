"""A partitioner for AOTAutograd and Inductor that keeps to a memory budget by the optimal schedule.

The plan becomes the two graph modules that AOTAutograd wants: the forward graph, and a backward graph that recomputes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch._functorch._aot_autograd.descriptors import SavedForBackwardsAOTOutput
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from remat_explorer.capture import Call, Overwriting, Program, is_random
from remat_explorer.entry_checks import Seconds, require_arguments
from remat_explorer.errors import ExecutionError
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_bytes, format_share
from remat_explorer.runtime.compiled.joint_program import GraphResult, JointProgram, joint_program
from remat_explorer.runtime.emitter import Emitter, NodeLookup, needed_after, nodes_read, split_point
from remat_explorer.solution_summary import relative_gap
from remat_explorer.solvers import Budget, Solution, budget_of, minimum_budget, require_budget, smallest_known, solve


def partitioner(
    budget: Budget, strategy: str = "optimal", *, time_limit: Seconds = 60.0, in_place: bool = False
) -> Partitioner:
    """A partitioner of joint graphs, for ``partition_fn`` of AOTAutograd and for Inductor's ``custom_partitioner_fn``.

    Each graph that it parts is a problem of its own, with the whole budget; a model that breaks into several graphs
    keeps what one graph saves while the next one runs, which no budget here counts. `remat_explorer.compile` therefore
    refuses graph breaks.

    Args:
        budget: bytes, "2 GiB", "60%" of what keeping everything takes, "smallest", or "40% of the way" from that to
            keeping everything; parameters, inputs, gradients and
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


class Partitioner(CustomPartitionerFn):
    """Parts a joint graph by a schedule; `partitioner` makes one.

    Args:
        again: it was planned before; a budget below the smallest with a known schedule then means that one.
        measured: makes of the program's graph the one with measured workspace.

    Attributes:
        planned: the graphs that it has parted, in order.
        program: of the last one, before what was measured.
        held, beside: of the last one's `ForwardBackwardGraphs`.
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
        graphs = forward_backward_graphs(solution.plan, joint)
        self.held, self.beside = graphs.held, graphs.beside
        return graphs.forward, graphs.backward

    def __deepcopy__(self, memo: object) -> Partitioner:
        """Itself: Inductor copies its settings, and FakeTensors cannot be copied outside of their mode."""
        return self

    def uuid(self) -> None:
        """None: a compiled graph is not kept, since it depends on what a search found in time."""


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


OPERATION = "planned operation"  # key of Node.meta: the number of the operation that a call belongs to


@dataclass(frozen=True, eq=False)
class ForwardBackwardGraphs:
    """The two graphs of a step, and what else is in memory while the backward graph runs."""

    forward: GraphModule  # gives the results of the forward pass, then what is saved
    backward: GraphModule  # takes what is saved, then the gradients of the results
    held: frozenset[str]  # its inputs that are results of the forward pass, and so stay
    beside: int  # bytes of the other results of the forward pass


def forward_backward_graphs(plan: Plan, joint: JointProgram) -> ForwardBackwardGraphs:
    """The graphs of a plan.

    Operations stand in the plan's order, repetitions included, an operation as often as the plan repeats it. One that
    draws random numbers and is repeated saves the generator's state where it first runs, and repeats from there.
    """
    split = split_point(plan)
    forward = _GraphEmitter(plan, joint)
    for node in joint.primals:
        forward.placeholder(node)
    forward.constants()
    forward.emit_statements(0, split)
    results = [forward.ending(ending) for ending in joint.forward]
    read_last = (nodes_read(ending.views) or {ending.node} for ending in joint.backward if ending.node is not None)
    needed = needed_after(plan, split, lambda statement: joint.program.bodies[statement.operation], read_last)
    tangents = set(joint.tangents)
    saved = [node for node in needed if node not in tangents and node.op != "get_attr"]
    outputs = [*results, *(forward.nodes[node] for node in saved), *forward.random.values()]
    for target, ending in joint.writes:
        source = forward.ending(ending)
        assert source is not None  # only results of backward are ever None
        write = forward.graph.call_function(torch.ops.aten.copy_.default, (forward.nodes[target], source))
        write.meta["val"] = target.meta["val"]
        outputs = [
            write if out is forward.nodes[target] and place < len(results) else out for place, out in enumerate(outputs)
        ]
    marks: list[Any] = [ending.descriptor for ending in joint.forward]
    forward.finish(outputs, [*marks, *(SavedForBackwardsAOTOutput(i) for i in range(len(outputs) - len(marks)))])

    backward = _GraphEmitter(plan, joint)
    for node in saved:
        backward.placeholder(node)
    for node in forward.random:
        state = backward.graph.placeholder(f"random_state_{node.name}")
        state.meta["val"] = joint.random_state
        backward.random[node] = state
    for node in joint.tangents:
        backward.placeholder(node)
    backward.constants()
    backward.emit_statements(split, len(plan.statements))
    backward.finish(
        [backward.ending(ending) for ending in joint.backward], [ending.descriptor for ending in joint.backward]
    )
    given = {
        node
        for ending in joint.forward
        if ending.node is not None
        for node in nodes_read(ending.views) or {ending.node}
    }
    held, others = given & set(saved), given - set(saved) - set(joint.primals)
    return ForwardBackwardGraphs(
        GraphModule(_constants_owner(joint), forward.graph),
        GraphModule(_constants_owner(joint), backward.graph),
        frozenset(backward.nodes[node].name for node in held),
        sum(joint.program.fakes[node].nbytes for node in others),
    )


class _GraphEmitter(Emitter):
    """One graph under construction, whose nodes have the meta of those that they stand for."""

    def __init__(self, plan: Plan, joint: JointProgram) -> None:
        super().__init__(plan, joint.program, torch.device("cpu"))
        self.random: dict[Node, Node] = {}
        self._joint = joint
        self._operation: int | None = None
        self._repeats: bool | None = None  # of a random operation that runs again: whether this is a repetition

    def placeholder(self, node: Node) -> None:
        """An argument that stands for a node of the joint graph."""
        self.nodes[node] = self.graph.placeholder(node.name)
        self.nodes[node].meta = {**_meta_of(node), "val": self.program.fakes[node]}

    def constants(self) -> None:
        """Tensors that the joint graph owns."""
        for node in self.program.module.graph.nodes:
            if node.op == "get_attr":
                self.nodes[node] = self.graph.get_attr(str(node.target))
                self.nodes[node].meta = dict(node.meta)

    def ending(self, ending: GraphResult) -> Node | None:
        """The node of a result."""
        if ending.node is None:
            return None
        local = self._calls(ending.views)
        return local[ending.node] if ending.node in local else self.nodes[ending.node]

    def finish(self, outputs: Sequence[Node | None], descriptors: Sequence[Any]) -> None:
        """The end of the graph; constants that nobody reads go."""
        end = self.graph.output(tuple(outputs))
        end.meta["desc"] = list(descriptors)
        for node in reversed(self.graph.nodes):
            if node.op == "get_attr" and not node.users:
                self.graph.erase_node(node)

    def _compute(self, statement: Compute) -> None:
        body = self.program.body(statement) if self.program.in_place else self.program.bodies[statement.operation]
        self._repeats = None if statement.operation not in self._again else not statement.first
        self._operation = statement.operation
        self._body(body, statement.drops)
        self._repeats = self._operation = None

    def _emit_call(self, call: Call, look_up: NodeLookup) -> Node:
        args, kwargs = map_arg((call.args, call.kwargs), look_up)
        target: Any = call.target
        if isinstance(target, Overwriting):
            target, args, kwargs = target.lowered(args, kwargs)
        value = self.program.fakes[call.node]
        if self._repeats is None or not is_random([call.node]):
            made = self.graph.create_node("call_function", target, args, kwargs, self._name(call))
        elif self._repeats:
            made = self.graph.call_function(run_with_rng_state, (self.random[call.node], target, *args), kwargs)
        else:
            both = self.graph.call_function(run_and_save_rng_state, (target, *args), kwargs)
            both.meta["val"] = (self._joint.random_state, value)
            self.random[call.node] = self.graph.call_function(operator.getitem, (both, 0))
            self.random[call.node].meta["val"] = self._joint.random_state
            made = self.graph.call_function(operator.getitem, (both, 1))
        made.meta = {**_meta_of(call.node), "val": value, OPERATION: self._operation}
        return self._mark(made)


def _meta_of(node: Node) -> dict[str, Any]:
    """The meta of a node, without a mark that AOTAutograd wants sorted: versions of all that is saved are checked."""
    return {key: value for key, value in node.meta.items() if key != "saved_tensor_with_no_vc_check"}


def _constants_owner(joint: JointProgram) -> nn.Module:
    owner = nn.Module()
    for node in joint.program.module.graph.nodes:
        if node.op == "get_attr":
            setattr(owner, str(node.target), getattr(joint.program.module, str(node.target)))
    return owner

"""A plan as the two graph modules that AOTAutograd wants: the forward graph, and a backward graph that recomputes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._functorch._aot_autograd.descriptors import SavedForBackwardsAOTOutput
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from remat_explorer.capture.captured_program import Call
from remat_explorer.capture.graph_rewrites import is_random
from remat_explorer.capture.in_place import Overwriting
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.backward.cut import cut_of, needed_after
from remat_explorer.runtime.compiled.joint_program import Ending, JointProgram
from remat_explorer.runtime.emission import Emission, LookUp, reads

OPERATION = "planned operation"  # key of Node.meta: the number of the operation that a call belongs to


@dataclass(frozen=True, eq=False)
class Halves:
    """The two graphs of a step, and what else is in memory while the backward graph runs.

    Attributes:
        forward: gives the results of the forward pass, and then what is saved.
        backward: takes what is saved, and then the gradients of the results.
        held: inputs of the backward graph that are results of the forward pass, and so stay when it has read them.
        beside: bytes of the other results of the forward pass.
    """

    forward: GraphModule
    backward: GraphModule
    held: frozenset[str]
    beside: int


def halves_of(plan: Plan, joint: JointProgram) -> Halves:
    """The graphs of a plan.

    Operations stand in the plan's order, repetitions included, an operation as often as the plan repeats it. One that
    draws random numbers and is repeated saves the generator's state where it first runs, and repeats from there.

    Args:
        plan: of the program's graph.
        joint: what it is a plan of.

    Raises:
        ExecutionError: if the plan begins the backward pass before the forward pass is complete.
    """
    cut = cut_of(plan)
    forward = _Half(plan, joint)
    for node in joint.primals:
        forward.placeholder(node)
    forward.constants()
    forward.statements(0, cut)
    results = [forward.ending(ending) for ending in joint.forward]
    read_last = (reads(ending.views) or {ending.node} for ending in joint.backward if ending.node is not None)
    needed = needed_after(plan, cut, lambda statement: joint.program.bodies[statement.operation], read_last)
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
    marks: list[Any] = [ending.meaning for ending in joint.forward]
    forward.finish(outputs, [*marks, *(SavedForBackwardsAOTOutput(i) for i in range(len(outputs) - len(marks)))])

    backward = _Half(plan, joint)
    for node in saved:
        backward.placeholder(node)
    for node in forward.random:
        state = backward.graph.placeholder(f"random_state_{node.name}")
        state.meta["val"] = joint.random_state
        backward.random[node] = state
    for node in joint.tangents:
        backward.placeholder(node)
    backward.constants()
    backward.statements(cut, len(plan.statements))
    backward.finish(
        [backward.ending(ending) for ending in joint.backward], [ending.meaning for ending in joint.backward]
    )
    given = {
        node for ending in joint.forward if ending.node is not None for node in reads(ending.views) or {ending.node}
    }
    held, others = given & set(saved), given - set(saved) - set(joint.primals)
    return Halves(
        GraphModule(_owner(joint), forward.graph),
        GraphModule(_owner(joint), backward.graph),
        frozenset(backward.nodes[node].name for node in held),
        sum(joint.program.fakes[node].nbytes for node in others),
    )


class _Half(Emission):
    """One graph under construction, whose nodes have the meta of those that they stand for.

    Attributes:
        random: for each random call that runs again, the node of the generator's state.
    """

    def __init__(self, plan: Plan, joint: JointProgram) -> None:
        super().__init__(plan, joint.program, torch.device("cpu"))
        self.random: dict[Node, Node] = {}
        self._joint = joint
        self._operation: int | None = None
        self._repeats: bool | None = None  # of a random operation that runs again: whether this is a repetition

    def placeholder(self, node: Node) -> None:
        """An argument that stands for a node of the joint graph."""
        self.nodes[node] = self.graph.placeholder(node.name)
        self.nodes[node].meta = {**_meta(node), "val": self.program.fakes[node]}

    def constants(self) -> None:
        """Tensors that the joint graph owns."""
        for node in self.program.module.graph.nodes:
            if node.op == "get_attr":
                self.nodes[node] = self.graph.get_attr(str(node.target))
                self.nodes[node].meta = dict(node.meta)

    def ending(self, ending: Ending) -> Node | None:
        """The node of a result."""
        if ending.node is None:
            return None
        local = self._calls(ending.views)
        return local[ending.node] if ending.node in local else self.nodes[ending.node]

    def finish(self, outputs: Sequence[Node | None], meanings: Sequence[Any]) -> None:
        """The end of the graph; constants that nobody reads go."""
        end = self.graph.output(tuple(outputs))
        end.meta["desc"] = list(meanings)
        for node in reversed(self.graph.nodes):
            if node.op == "get_attr" and not node.users:
                self.graph.erase_node(node)

    def _compute(self, statement: Compute) -> None:
        body = self.program.body(statement) if self.program.in_place else self.program.bodies[statement.operation]
        self._repeats = None if statement.operation not in self._again else not statement.first
        self._operation = statement.operation
        self._body(body, statement.drops)
        self._repeats = self._operation = None

    def _written(self, call: Call, look_up: LookUp) -> Node:
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
        made.meta = {**_meta(call.node), "val": value, OPERATION: self._operation}
        return self._marked(made)


def _meta(node: Node) -> dict[str, Any]:
    """The meta of a node, without a mark that AOTAutograd wants sorted: versions of all that is saved are checked."""
    return {key: value for key, value in node.meta.items() if key != "saved_tensor_with_no_vc_check"}


def _owner(joint: JointProgram) -> nn.Module:
    owner = nn.Module()
    for node in joint.program.module.graph.nodes:
        if node.op == "get_attr":
            setattr(owner, str(node.target), getattr(joint.program.module, str(node.target)))
    return owner

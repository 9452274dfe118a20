"""The torch side of a captured graph: what to call for each operation, and what inputs and results mean.

`Program` holds the `Body` of each operation, which is its calls in order. A `CapturedImplementation` is another way to
compute an operation: the calls that take the place of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from remat_explorer.capture.attributes import AttributeReads, Changes
from remat_explorer.capture.input_assumptions import Assumptions
from remat_explorer.capture.inputs_and_outputs import OutputStructure
from remat_explorer.capture.sharding import local_part
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute

InputKind = Literal["parameter", "buffer", "input", "tangent", "constant"]
ResultKind = Literal["output", "gradient", "buffer"]
Registers = dict[Node, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Call:
    """One call of an operator, which makes what ``node`` stands for.

    Attributes:
        target: what is called.
        frees: the intermediate tensors that no later call of its body reads.
        arguments: of an alternative implementation, which reads something else than the node; else the node's own.
    """

    node: Node
    target: Callable[..., Any]
    frees: tuple[Node, ...] = ()
    arguments: tuple[Any, ...] | None = None

    @property
    def args(self) -> Any:
        """Positional arguments."""
        return self.node.args if self.arguments is None else self.arguments

    @property
    def kwargs(self) -> Any:
        """Keyword arguments."""
        return self.node.kwargs if self.arguments is None else {}

    @property
    def sources(self) -> tuple[Node, ...]:
        """The nodes among the arguments, each once."""
        nodes: dict[Node, None] = {}
        map_arg((self.args, self.kwargs), nodes.setdefault)
        return tuple(nodes)


@dataclass(frozen=True, eq=False)
class Body:
    """How one operation runs. Profiling and execution both come through `run`, so what one saw the other repeats.

    Attributes:
        calls: the operators, views of the inputs included, in order.
        outputs: for each value id written, the node that carries it.
        random: whether it draws random numbers.
        overwrites: the node whose tensor the output takes the place of, or None.
    """

    calls: tuple[Call, ...]
    outputs: Mapping[int, Node] = field(default_factory=dict)
    random: bool = False
    overwrites: Node | None = None

    def run(self, registers: Registers, drops: Collection[int] = ()) -> None:
        """Read inputs from ``registers`` and write the outputs there, except the value ids in ``drops``.

        What is overwritten is no longer in the registers afterwards.
        """
        local = self._evaluate(registers)
        for value, node in self.outputs.items():
            if value not in drops:
                registers[node] = local[node]
        if self.overwrites is not None:
            del registers[self.overwrites]

    def result(self, registers: Registers, node: Node) -> torch.Tensor:
        """The tensor of ``node`` after the calls, without writing to ``registers``."""
        local = self._evaluate(registers)
        return local[node] if node in local else registers[node]

    def _evaluate(self, registers: Registers) -> dict[Node, Any]:
        local: dict[Node, Any] = {}

        def look_up(node: Node) -> Any:
            return local[node] if node in local else registers[node]

        for call in self.calls:
            # no name may hold an argument or a result beyond its call: it would keep memory that the plan frees
            local[call.node] = call.target(*map_arg(call.args, look_up), **map_arg(call.kwargs, look_up))
            for node in call.frees:
                del local[node]
        return local


@dataclass(frozen=True, eq=False)
class Input:
    """A tensor that is there before the plan starts: a named parameter or buffer, or the ``place``-th plain input.

    Of a tangent, the gradient from which backward starts, ``place`` is the number of the output that it belongs to.
    """

    node: Node
    kind: InputKind
    name: str = ""
    place: int = -1


@dataclass(frozen=True, eq=False)
class Result:
    """A tensor that the plan leaves behind, read through views of a value that stays.

    The outputs are the loss alone, or what the model returns for a loss that is computed elsewhere.

    Attributes:
        of: of a gradient, the parameter or plain input that it belongs to.
    """

    node: Node
    kind: ResultKind
    name: str
    views: Body
    of: Input | None = None


def bind_inputs(
    inputs: tuple[Input, ...], module: GraphModule, model: nn.Module, tensors: tuple[torch.Tensor, ...]
) -> Registers:
    """Registers that hold the model's own parameters and buffers, not copies, the plain inputs, tangents and constants.

    Tangents are ones, as for the sum of all outputs; constants are those of ``module``. The model is the captured one,
    or has the same parameter names.
    """
    registers: Registers = {}
    for entry in inputs:
        if entry.kind == "parameter":
            registers[entry.node] = local_part(model.get_parameter(entry.name)).detach()
        elif entry.kind == "buffer":
            registers[entry.node] = model.get_buffer(entry.name)
        elif entry.kind == "input":
            registers[entry.node] = tensors[entry.place]
        elif entry.kind == "tangent":
            fake = entry.node.meta["val"]
            registers[entry.node] = torch.empty_strided(
                fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device
            ).fill_(1)
        else:
            registers[entry.node] = getattr(module, entry.name)
    return registers


@dataclass(frozen=True, eq=False)
class Program:
    """A graph together with what is needed to run it.

    Attributes:
        graph: operations and values.
        bodies: one for each operation of the graph.
        carriers: for each value the node whose tensor is kept in the registers.
        inputs: parameters, buffers, plain inputs, the tangent and constants.
        results: loss or outputs, parameter gradients and new buffer contents.
        returned: how the outputs lie in what the model returns.
        prologue: what makes the constants that are resident, run once before the plan.
        epilogue: bookkeeping such as ``num_batches_tracked``, run once after the plan.
        module: the joint graph, which owns the constants.
        fakes: for each node its FakeTensors, for costs.
        in_place: for each operation that may overwrite an input the body that does, by the default implementation.
        choices: bodies of the other implementations, by operation and number of the implementation: the one that takes
            new tensors, and the one that overwrites an input, or None.
        assumptions: what the trace read out of inputs and buffers; the program serves steps in which it would be read.
        reads: which attributes of the model the trace has read.
        changes: which attributes a forward pass changes.
        hoisted: of each constant whether the prologue makes it, and not an operation of the graph.
    """

    graph: Graph
    bodies: tuple[Body, ...]
    carriers: tuple[Node, ...]
    inputs: tuple[Input, ...]
    results: tuple[Result, ...]
    returned: OutputStructure
    prologue: tuple[Body, ...]
    epilogue: tuple[Body, ...]
    module: GraphModule
    fakes: Mapping[Node, Any]
    in_place: Mapping[int, Body] = field(default_factory=dict)
    choices: Mapping[tuple[int, int], tuple[Body, Body | None]] = field(default_factory=dict)
    assumptions: Assumptions = field(default_factory=Assumptions)
    reads: AttributeReads | None = None
    changes: Changes = field(default_factory=dict)
    hoisted: tuple[bool, ...] = ()

    def body(self, statement: Compute) -> Body:
        """What runs for a statement of a plan of `graph`."""
        if statement.implementation > 1:
            beside, over = self.choices[statement.operation, statement.implementation]
            return beside if statement.overwrites is None or over is None else over
        return (self.bodies if statement.overwrites is None else self.in_place)[statement.operation]

    def bind(self, model: nn.Module, tensors: tuple[torch.Tensor, ...], tangents: bool = True) -> Registers:
        """Registers that hold the resident tensors: the model's own parameters and buffers, not copies.

        Args:
            model: the captured model, or one with the same parameter names.
            tensors: the plain inputs, as `TrainingStep.tensors` gives them.
            tangents: whether to start backward from ones, or from what is put into the registers later.
        """
        inputs = tuple(entry for entry in self.inputs if tangents or entry.kind != "tangent")
        registers = bind_inputs(inputs, self.module, model, tensors)
        with torch.no_grad():
            for body in self.prologue:
                body.run(registers)
        return registers


@dataclass(frozen=True, eq=False)
class CapturedImplementation:
    """An implementation that replaces calls of an operation, mostly one, with the getitems that pick its outputs.

    What else the operation does, such as a ReLU that overwrites the result, stays. What ``steps`` do not make, the
    implementation does not write. Of ``steps_over``, the first makes the first output. One that replaces several calls
    has ``parts``, the ways that replace each: ``main`` and ``steps_over`` are then those of the part that overwrites,
    and ``steps`` are empty.
    """

    kind: str  # a key of `remat_explorer.capture_options.KINDS`
    name: str  # as people read it
    main: Node  # the call that is replaced
    steps: tuple[Call, ...]  # the calls instead
    tolerance: float = 0.0  # largest difference from PyTorch's kernel, relative to the largest entry; 0: bit-equal
    over: Node | None = None  # the argument that ``steps_over`` overwrite, or None
    steps_over: tuple[Call, ...] = ()
    launches: int = 1  # how often a kernel starts, for predicted costs
    gpu_launches: int = 0  # the same for kernels of our own on a GPU; 0 if there are none
    again: tuple[Node, ...] = ()  # calls of other operations within it, for predicted costs
    workspace: int = 0  # bytes beside the results, by shapes; a profile measures it
    arithmetic: float = 1.0  # floating-point operations, relative to the call it replaces
    portion: float = 1.0  # of the batch that is computed at a time; what a kernel needs grows with it
    also: tuple[str, ...] = ()  # further kinds that it is of; it is for those who want all of them
    parts: tuple[CapturedImplementation, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds that it is of, its own first."""
        return self.kind, *self.also

    @property
    def each(self) -> tuple[CapturedImplementation, ...]:
        """What replaces one call each: its parts, or itself."""
        return self.parts or (self,)


def step(node: Node, target: Callable[..., Any], *arguments: Any) -> Call:
    """A call that makes what ``node`` stands for from other arguments than the node's."""
    return Call(node, target, arguments=arguments)

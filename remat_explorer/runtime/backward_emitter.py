"""Writes the backward pass for gradients of some of the outputs, in whatever strides they come.

A gradient that did not come is a symbolic zero. Plain PyTorch computes nothing from it: what depends on no other
gradient is a symbolic zero, too, and so is the gradient of a parameter that only such a way leads to, where plain
PyTorch leaves None. A sum with a symbolic zero is its other operand. A call that reads real gradients beside it gets
zeros in its place, as the formulas of autograd fill them in.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from remat_explorer.capture import REDUCE_SCATTER, SWAPPED, Body, Call, Overwriting, Program
from remat_explorer.errors import ExecutionError
from remat_explorer.offload import Drop, Fetch, Send
from remat_explorer.plan import Compute, Free
from remat_explorer.runtime.copies import AnyPlan
from remat_explorer.runtime.emitter import Emitter, NodeLookup
from remat_explorer.runtime.gradient_handover import Gradient, separate_memory
from remat_explorer.runtime.random_state import set_generator_state
from remat_explorer.runtime.strided_gradients import (
    FROM_SHAPES,
    RESHAPES,
    may_alias,
    overwriting,
    takes_any_strides,
    with_strides,
    write_over,
)

aten = torch.ops.aten


class BackwardEmitter(Emitter):
    """A backward pass under construction; ``missing`` are the captured graph's tangents that did not come.

    ``zeros`` are the nodes that are symbolic zeros: calls that make zeros, which go where no other call reads them.
    """

    def __init__(self, plan: AnyPlan, program: Program, device: torch.device, missing: Collection[fx.Node]) -> None:
        super().__init__(plan, program, device)
        self.zeros: set[fx.Node] = set()
        self._missing = frozenset(missing)
        self._from_gradients: set[fx.Node] = set()  # what depends on a gradient that came
        self._any_strides: set[fx.Node] = set()  # what may have other strides than in the captured graph
        self._tangents: set[fx.Node] = set()
        self._source: dict[fx.Node, fx.Node] = {}  # of what may be a view: the node of which
        self._overwriting: dict[fx.Node, tuple[Overwriting, bool]] = {}
        self._kept: set[fx.Node] = set()

    def emit_placeholders(self, residents: Iterable[fx.Node]) -> None:
        super().emit_placeholders(residents)
        for entry in self.program.inputs:
            if entry.kind != "tangent" or entry.node not in self.nodes:
                continue
            if entry.node in self._missing:
                self.nodes[entry.node] = self._zero(entry.node)
            else:
                self._tangents.add(self.nodes[entry.node])
        self._from_gradients |= self._tangents
        self._any_strides |= self._tangents

    def end(self, results: Iterable[Gradient], others: Iterable[fx.Node] = ()) -> fx.Node:
        """The end of the code; nothing is left that does not lead there."""
        made = super().end([(result, None if node in self.zeros else node) for result, node in results], others)
        for node in reversed(self.graph.nodes):
            if node.op == "call_function" and not node.users and node not in self._kept:
                self.graph.erase_node(node)
                self._overwriting.pop(node, None)
                self._source.pop(node, None)
        order = {node: place for place, node in enumerate(self.graph.nodes)}
        for write, (over, swapped) in self._overwriting.items():
            self._guard_in_place(write, over, swapped, order)
        return made

    def separate_gradients(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        return separate_memory(self.graph, gradients, self._tangents)

    def call(self, function: Callable[..., Any], *args: Any) -> fx.Node:
        made = super().call(function, *args)
        if function is set_generator_state:
            self._kept.add(made)
        return made

    def _compute(self, statement: Compute) -> None:
        before = set(self.graph.nodes) if self._draws_first(statement) else None
        super()._compute(statement)
        if before is not None:  # plain PyTorch draws these numbers, too, whoever reads them
            self._kept |= set(self.graph.nodes) - before - self.zeros

    def _transfer(self, place: int, statement: Free | Send | Fetch | Drop) -> None:
        carrier = self.program.carriers[statement.value]
        before = self.nodes.get(carrier)  # None if the forward pass has sent it
        if before in self.zeros:
            return
        super()._transfer(place, statement)
        for kind in (self._from_gradients, self._any_strides):
            if before in kind:
                kind.add(self.nodes[carrier])

    def _draws_first(self, statement: Compute) -> bool:
        body: Body = self.program.body(statement)
        return statement.first and body.random

    def _emit_call(self, call: Call, look_up: NodeLookup) -> fx.Node:
        sources = {source: look_up(source) for source in call.sources}
        zeros = [source for source, node in sources.items() if node in self.zeros]
        given = [source for source, node in sources.items() if node in self._from_gradients]
        over = overwriting(call.target)
        target = call.target if over is None else over.plain
        if zeros and not given and target not in FROM_SHAPES:
            return self._zero(call.node)
        if zeros and target is REDUCE_SCATTER:
            raise ExecutionError(
                "the loss was computed from some of the outputs, and reaches some of the parameters that are sharded "
                "together (fully_shard), but not others, whose gradient would be zero in place of None; make the loss "
                "a part of the model, or pass loss=... to rematerialize"
            )
        if zeros and (addend := self._addend(call, target, sources)) is not None:
            return addend
        if self._any_strides & {*sources.values()}:
            made = self._emit_with_any_strides(call, target, over, look_up)
        else:
            made = super()._emit_call(call, look_up)
        if given and target not in FROM_SHAPES:
            self._from_gradients.add(made)
            if over is not None:
                self._overwriting[made] = over, bool(call.node.meta.get(SWAPPED))
        return made

    def _zero(self, node: fx.Node) -> fx.Node:
        """A symbolic zero in place of ``node``."""
        fake = self.program.fakes.get(node)
        shape, options = ((), {})
        if isinstance(fake, torch.Tensor):
            shape, options = tuple(fake.shape), {"dtype": fake.dtype, "device": fake.device}
        zero = self._mark(self.graph.call_function(torch.zeros, (shape,), options))
        self.zeros.add(zero)
        return zero

    def _addend(self, call: Call, target: Any, sources: dict[fx.Node, fx.Node]) -> fx.Node | None:
        """What is left of a sum with a symbolic zero; None if it is no sum, or would be converted or expanded."""
        if target not in (aten.add.Tensor, aten.sub.Tensor):
            return None
        first, second = call.args
        if sources.get(second) in self.zeros:
            rest = first
        elif target is aten.add.Tensor and not call.kwargs:
            rest = second
        else:
            return None
        if rest not in sources or sources[rest] in self.zeros:
            return None
        mine, whole = self.program.fakes[rest], self.program.fakes[call.node]
        return sources[rest] if (mine.shape, mine.dtype) == (whole.shape, whole.dtype) else None

    def _emit_with_any_strides(self, call: Call, target: Any, over: Overwriting | None, look_up: NodeLookup) -> fx.Node:
        """The call with arguments that may have other strides than the captured ones."""
        if target is not operator.getitem and not (call.arguments is None and takes_any_strides(target)):
            return super()._emit_call(call, lambda source: self._with_captured_strides(source, look_up(source)))
        size = None if self.program.choices else _reshaped_after(call)  # other implementations may read the copy
        if target in RESHAPES or size is not None:
            first, *sizes = map_arg(call.args, look_up)
            arguments = (first, *(sizes if size is None else (size,)))
            made = self._mark(
                self.graph.create_node("call_function", aten.reshape.default, arguments, {}, self._name(call))
            )
        else:
            made = super()._emit_call(call, look_up)
        self._any_strides.add(made)
        if over is None and (target is operator.getitem or may_alias(made.target)):  # type: ignore[arg-type]
            self._source[made] = made.args[0]  # type: ignore[assignment]
        return made

    def _with_captured_strides(self, source: fx.Node, node: fx.Node) -> fx.Node:
        """The node with the strides that its source had in the captured graph."""
        fake = self.program.fakes.get(source)
        if node not in self._any_strides or not isinstance(fake, torch.Tensor):
            return node
        made = self.call(with_strides, node, tuple(fake.stride()))
        self._source[made] = node
        return made

    def _guard_in_place(self, write: fx.Node, over: Overwriting, swapped: bool, order: dict[fx.Node, int]) -> None:
        """Let a call in place take new memory where what it would overwrite is read later, or belongs to the caller."""
        plain_args, plain_kwargs = self._plain_arguments(write, over)
        operand: Any = plain_args[over.position]
        rivals = [
            node
            for node in self._memory_of(operand)
            if order[node] < order[write] and (node in self._tangents or self._is_read(node, operand, write, order))
        ]
        operands = {argument for argument in plain_args if isinstance(argument, fx.Node)}
        if not rivals and (len(operands) == 1 or not operands & self._any_strides):
            return
        with self.graph.inserting_before(write):
            arguments: Any = (over.plain, over.position, swapped, rivals, list(plain_args), plain_kwargs)
            guarded = self.graph.call_function(write_over, arguments)
        guarded.meta = write.meta
        order[guarded] = order[write]
        self._any_strides.add(guarded)
        write.replace_all_uses_with(guarded)
        self.graph.erase_node(write)
        self._source = {view: guarded if source is write else source for view, source in self._source.items()}

    @staticmethod
    def _is_read(node: fx.Node, operand: fx.Node, write: fx.Node, order: dict[fx.Node, int]) -> bool:
        """Whether a node is read after a call that overwrites the operand, or by it as another argument."""
        return any(order[user] > order[write] or (user is write and node is not operand) for user in node.users)

    @staticmethod
    def _plain_arguments(write: fx.Node, over: Overwriting) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call that takes new memory, from those of the one that overwrites."""
        names = [argument.name for argument in over.plain._schema.arguments]
        kwargs = {key: value for key, value in write.kwargs.items() if key in names}
        args = write.args
        if over.position:
            args = (args[1], args[0], *args[2:])
        return args, kwargs

    def _memory_of(self, node: fx.Node) -> list[fx.Node]:
        """Every node that may be in the memory of ``node``: what it is a view of, and other views of that."""
        while node in self._source:
            node = self._source[node]
        group = {node}
        for view, source in self._source.items():  # in order, so a view comes after its source
            if source in group:
                group.add(view)
        return sorted(group, key=lambda member: member.name)


def _reshaped_after(call: Call) -> list[int] | None:
    """The size to which a copy is reshaped, where the copy is only made for that: eager calls reshape for both."""
    users = list(call.node.users)
    if call.target is not aten.clone.default or call.kwargs.get("memory_format") is not torch.contiguous_format:
        return None
    if not users or any(user.target is not aten._unsafe_view.default for user in users):
        return None
    sizes = [list(user.args[1]) for user in users]  # type: ignore[arg-type]
    return sizes[0] if all(size == sizes[0] for size in sizes) else None

"""Writes the statements of a plan as nodes of an fx graph, whose Python frees each tensor after its last use.

`split_point` says where the backward pass of a plan begins, and `needed_after` what it reads of what was made before.
"""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture import Body, Call, Overwriting, Program, Result, identifier
from remat_explorer.errors import ExecutionError
from remat_explorer.offload import Drop, Fetch, Send, TransferPlan
from remat_explorer.plan import Compute, Free
from remat_explorer.runtime.copies import AnyPlan, statement_text
from remat_explorer.runtime.random_state import generator_state, set_generator_state

NodeLookup = Callable[[fx.Node], fx.Node]
STATEMENT = "statement"  # key of Node.meta: the index of the plan's statement that a node belongs to
RESULTS = "results"  # key of the output node's meta: what the results are
_KEYWORD = re.compile(rf"(torch\.ops\.\w+\.\w+)\.({'|'.join(keyword.kwlist)})\b")


class Emitter:
    """A graph under construction; ``device`` is the one whose generator random operations draw from.

    Nothing is written for `Free`: fx sets a name to None right after the last node that reads it, which is where the
    plan frees, since a value is read for the last time by the statement before. A value that is sent is freed by a call
    of `Copies`, which reads it, too; that object is the argument "copies". ``nodes`` has for each node of the
    captured graph the one that holds it now, ``states`` for each random operation that runs again the generator state
    of its first run, and ``kept`` the ids of values in memory that nothing may be written over.
    """

    def __init__(self, plan: AnyPlan, program: Program, device: torch.device) -> None:
        self.plan, self.program, self.device = plan, program, device
        self.graph = fx.Graph()
        self.graph.on_generate_code(lambda before: _without_keywords)
        self.nodes: dict[fx.Node, fx.Node] = {}
        self.states: dict[int, fx.Node] = {}
        self.kept: set[int] = set()
        computed = [s.operation for s in plan.statements if isinstance(s, Compute)]
        self._again = {k for k in computed if program.bodies[k].random and computed.count(k) > 1}
        self._statement: int | None = None
        self._names = {node: program.graph.values[v].name for v, node in enumerate(program.carriers)}
        self._sent = sent_values(plan)
        self._copies: fx.Node | None = None
        self._arriving: set[int] = set()  # fetched values that nobody has waited for

    def emit_placeholders(self, residents: Iterable[fx.Node]) -> None:
        """An argument for each tensor that is there before the plan starts."""
        names = {
            entry.node: f"{entry.kind}_{entry.name or entry.place}"
            for entry in self.program.inputs
            if entry.kind != "constant"  # the same one may come in several nodes
        }
        for node in residents:
            self.nodes[node] = self.graph.placeholder(identifier(names.get(node, f"constant_{node.name}")))

    def emit_copies(self, start: int = 0) -> None:
        """An argument for the copies of a plan that sends, after all others; statements from ``start`` on follow."""
        if isinstance(self.plan, TransferPlan):
            self._copies = self.graph.placeholder("copies")
            self._arriving = arriving_before(self.plan, start)

    def emit_statements(self, start: int, stop: int) -> None:
        """The statements from ``start`` up to, but without, ``stop``."""
        for place in range(start, stop):
            statement = self.plan.statements[place]
            self._statement = place
            if not isinstance(statement, Compute):
                self._transfer(place, statement)
                continue
            for value in sorted(self._arriving.intersection(self.plan.graph.inputs(statement.operation))):
                self._call_copies("arrive", value)
                self._arriving.remove(value)
            if statement.overwrites in self._sent:
                self._call_copies("settle", statement.overwrites)
            self._compute(statement)
        self._statement = None

    def _transfer(self, place: int, statement: Free | Send | Fetch | Drop) -> None:
        value = statement.value
        if value not in self._sent:
            return
        node = self.program.carriers[value]
        if isinstance(statement, Send):
            self._call_copies("send", place, value, self.nodes[node])
        elif isinstance(statement, Free):
            self._call_copies("free", value, self.nodes[node])
            self._arriving.discard(value)
        elif isinstance(statement, Drop):
            self._call_copies("drop", place, value)
        else:
            self.nodes[node] = self._call_copies("fetch", place, value, name=identifier(self._names[node]))
            self._arriving.add(value)

    def _call_copies(self, method: str, *args: Any, name: str | None = None) -> fx.Node:
        assert self._copies is not None
        return self._mark(self.graph.create_node("call_method", method, (self._copies, *args), {}, name))

    def emit_bodies(self, bodies: Iterable[Body]) -> None:
        """Operations that are no part of the plan."""
        for body in bodies:
            self._body(body)

    def result(self, result: Result) -> fx.Node:
        """The tensor of a result."""
        local = self._calls(result.views)
        return local[result.node] if result.node in local else self.nodes[result.node]

    def output(self, results: Iterable[Result], others: Iterable[fx.Node] = ()) -> fx.Node:
        """The end of the code, which gives results and then ``others``."""
        return self.end([(result, self.result(result)) for result in results], others)

    def end(self, results: Iterable[tuple[Result, fx.Node | None]], others: Iterable[fx.Node] = ()) -> fx.Node:
        """The same for results whose nodes are there already, None of one that is None."""
        named = list(results)
        end = self.graph.output((*(node for _, node in named), *others))
        end.meta[RESULTS] = ", ".join(result_name(result) for result, _ in named)
        return end

    def separate_gradients(
        self, gradients: Sequence[tuple[Result, fx.Node | None]]
    ) -> list[tuple[Result, fx.Node | None]]:
        """Gradients in memory of their own, each, in complete code, in the order in which they are given away."""
        return list(gradients)

    def call(self, function: Callable[..., Any], *args: Any) -> fx.Node:
        """A call of any function."""
        return self._mark(self.graph.call_function(function, args))

    def _compute(self, statement: Compute) -> None:
        if statement.overwrites in self.kept:
            statement = dataclasses.replace(statement, overwrites=None)
        k, body = statement.operation, self.program.body(statement)
        self.kept -= body.outputs.keys() - set(statement.drops)  # made anew
        if k not in self._again:
            self._body(body, statement.drops)
        elif statement.first:
            self.states[k] = self.call(generator_state, self.device)
            self._body(body, statement.drops)
        else:
            now = self.call(generator_state, self.device)
            self.call(set_generator_state, self.states[k], self.device)
            self._body(body, statement.drops)
            self.call(set_generator_state, now, self.device)

    def _body(self, body: Body, drops: Collection[int] = ()) -> None:
        local = self._calls(body)
        self.nodes |= {node: local[node] for value, node in body.outputs.items() if value not in drops}

    def _calls(self, body: Body) -> dict[fx.Node, fx.Node]:
        local: dict[fx.Node, fx.Node] = {}

        def look_up(node: fx.Node) -> fx.Node:
            return local[node] if node in local else self.nodes[node]

        for call in body.calls:
            local[call.node] = self._emit_call(call, look_up)
        return local

    def _emit_call(self, call: Call, look_up: NodeLookup) -> fx.Node:
        """A call of a body, with the nodes that ``look_up`` gives for what it reads."""
        args, kwargs = map_arg((call.args, call.kwargs), look_up)
        target = call.target
        if isinstance(target, Overwriting):
            target, args, kwargs = target.lowered(args, kwargs)
        return self._mark(self.graph.create_node("call_function", target, args, kwargs, self._name(call)))

    def _name(self, call: Call) -> str:
        return identifier(self._names.get(call.node, call.node.name))

    def _mark(self, node: fx.Node) -> fx.Node:
        node.meta[STATEMENT] = self._statement
        return node


def result_name(result: Result) -> str:
    """What a result is, in words."""
    return result.name if result.kind == "output" else f"{result.kind} of {result.name}"


def nodes_read(body: Body) -> set[fx.Node]:
    """The nodes that a body reads and does not make itself."""
    made = {call.node for call in body.calls}
    return {source for call in body.calls for source in call.sources} - made


def source_nodes(result: Result) -> set[fx.Node]:
    """The nodes from which a result's views start."""
    return nodes_read(result.views) or {result.node}


def statement_of_line(line: str, statements: dict[str, int | None]) -> int | None:
    """The statement that a line of generated code belongs to.

    >>> statement_of_line("    relu_1 = torch.ops.aten.relu.default(mm);  mm = None", {"relu_1": 7})
    7
    """
    match = re.match(r"\s+(\w+)(?:\s*:[^=]+)? = ", line)
    return statements.get(match.group(1)) if match else None


def _without_keywords(lines: list[str]) -> list[str]:
    """Lines of Python in which an overload whose name is a keyword, as random_.from, is read by getattr.

    >>> _without_keywords(["a = torch.ops.aten.random_.from(b, 0, 3)", "from x import y"])
    ["a = getattr(torch.ops.aten.random_, 'from')(b, 0, 3)", 'from x import y']
    """
    return [_KEYWORD.sub(r"getattr(\1, '\2')", line) for line in lines]


def sent_values(plan: AnyPlan) -> frozenset[int]:
    """The values that a plan sends."""
    return frozenset(statement.value for statement in plan.statements if isinstance(statement, Send))


def arriving_before(plan: AnyPlan, start: int) -> set[int]:
    """Values that are fetched before a statement, and not read until then."""
    found: set[int] = set()
    for statement in plan.statements[:start]:
        if isinstance(statement, Fetch):
            found.add(statement.value)
        elif isinstance(statement, Free):
            found.discard(statement.value)
        elif isinstance(statement, Compute):
            found -= set(plan.graph.inputs(statement.operation, statement.implementation))
    return found


def split_point(plan: AnyPlan) -> int:
    """The index of the first statement that belongs to the backward pass.

    The forward pass ends with the last first run of an operation of the forward pass, and what is freed or sent then.
    Repetitions that follow serve the backward pass, so they wait for it, and so do optional operations. An
    ExecutionError if the plan begins the backward pass before the forward pass is complete.
    """
    operations = plan.graph.operations
    first_runs = [i for i, s in enumerate(plan.statements) if isinstance(s, Compute) and s.first]
    mandatory = [i for i in first_runs if not operations[plan.statements[i].operation].optional]  # type: ignore[union-attr]
    forward = [i for i in mandatory if operations[plan.statements[i].operation].phase == "forward"]  # type: ignore[union-attr]
    backward = [i for i in mandatory if i not in set(forward)]
    if forward and backward and forward[-1] > backward[0]:
        raise ExecutionError(
            f"the plan begins the backward pass with {statement_text(plan, backward[0])!r} before it has run "
            f"{statement_text(plan, forward[-1])!r}; such a plan can be measured, but not train a model"
        )
    split = forward[-1] + 1 if forward else 0
    while split < len(plan.statements) and not isinstance(plan.statements[split], Compute | Fetch):
        split += 1
    return split


def needed_after(
    plan: AnyPlan,
    split: int,
    body_of: Callable[[Compute], Body],
    read_last: Iterable[set[Node]],
    carriers: Sequence[Node] = (),
) -> list[Node]:
    """What the backward pass reads without having made it, in order of first use; ``read_last`` makes its results.

    ``carriers`` are the nodes of values, if some are sent.
    """
    sent = sent_values(plan)
    made: set[Node] = set()
    needed: dict[Node, None] = {}

    def read(nodes: set[Node]) -> None:
        needed.update(dict.fromkeys(sorted(nodes - made, key=lambda node: node.name)))

    for statement in plan.statements[split:]:
        if isinstance(statement, Compute):
            body = body_of(statement)
            read(nodes_read(body))
            made |= {node for value, node in body.outputs.items() if value not in statement.drops}
        elif isinstance(statement, Fetch):
            made.add(carriers[statement.value])
        elif isinstance(statement, Send | Free) and statement.value in sent:
            read({carriers[statement.value]})
    for nodes in read_last:
        read(nodes)
    return list(needed)

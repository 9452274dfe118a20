"""What the operations of a program really make: bytes of storages, which of them are shared, what memory stays.

A graph says what FakeTensors predict. Here every result of a run with real tensors is looked at, and the meter tells
what no tensor shows, so that a profiled graph holds for operators that nobody knows, too.

Some workspace depends on data. `y[mask] = 0` makes a list of the places that the mask names; a profile sees one mask,
training others. So the workspace is that of a mask that names all places (`_worst_case`).
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture.captured_program import Body, Call, Program, Registers
from remat_explorer.capture.graph_rewrites import state_bytes
from remat_explorer.capture.memory_meter import Reading
from remat_explorer.capture.propagation import storage_key
from remat_explorer.errors import ExecutionError
from remat_explorer.quantities import format_bytes

aten = torch.ops.aten
ASSIGNING = (aten.index_put.default, aten._unsafe_index_put.default)
Choice = tuple[int, int]  # an operation, and the number of one of its implementations
_REAL_KERNELS = "capture the model with fake=False, which looks at what kernels give, or mend the fake kernel"
Section = Callable[[], AbstractContextManager[Any]]


@dataclass
class Run:
    """One metered run of an implementation."""

    choice: Choice
    body: Body
    made: dict[int, int]  # bytes of the storage of each output
    taken: int = 0  # bytes of the operand that is overwritten, or 0
    heirs: frozenset[int] = frozenset()  # the output in that operand's storage, if one is
    operand: int | None = None  # the value that is overwritten, in the run of a plan
    apart: bool = False  # whether it ran on registers that `beside` gave
    reading: Reading | None = None  # of the meter, when it is known


@dataclass
class StorageCensus:
    """Collects what runs show.

    Attributes:
        program: whose operations run.
        device: where they run.
        runs: what ran, of each choice in order.

    Raises:
        ExecutionError: from `run` and `read`, if storages are shared, or memory stays, in a way that no graph can say.
    """

    program: Program
    device: torch.device
    runs: defaultdict[Choice, list[Run]] = field(default_factory=lambda: defaultdict(list))
    _waiting: list[Run | tuple[int, int]] = field(default_factory=list)  # for the meter: runs; values freed, and bytes

    @cached_property
    def _value_of(self) -> dict[Node, int]:
        return {carrier: value for value, carrier in enumerate(self.program.carriers)}

    def run(
        self, choice: Choice, body: Body, registers: Registers, section: Section, drops: Collection[int] = ()
    ) -> None:
        """Run a body within a section of the meter, and look at what it makes.

        Memory that stays is asked for where ``registers`` are those of a plan, and not made by `beside`.

        Args:
            choice: whose body it is.
            body: what runs.
            registers: as for `Body.run`.
            section: of the meter.
            drops: values that go at once.
        """
        operand = None if body.overwrites is None else registers[body.overwrites]
        taken, size = (None, 0) if operand is None else (storage_key(operand), self._bytes_of(operand))
        del operand  # nothing here may hold what the body frees
        owners = {storage_key(registers[node]): node for node in _sources(body) if node in registers}
        there = {body.outputs[value]: registers.pop(body.outputs[value], None) for value in drops}
        with section():
            body.run(registers)
        entry = Run(choice, body, {}, size)
        for value, node in body.outputs.items():
            entry.made[value] = self._bytes_of(registers[node])
            key = storage_key(registers[node])
            if key == taken and not entry.heirs:
                entry.heirs = frozenset({value})
            elif key in owners and entry.made[value]:
                raise self._shared(choice[0], node, owners[key], owners[key] in body.outputs.values())
            owners[key] = node
        entry.apart = isinstance(registers, Scratch)
        if body.overwrites is not None and not entry.apart:
            entry.operand = self._value_of.get(body.overwrites)
        self.runs[choice].append(entry)
        self._waiting.append(entry)
        for node, before in there.items():  # what is dropped does not take the place of what an earlier run has made
            del registers[node]
            if before is not None:
                registers[node] = before

    def free(self, value: int, registers: Registers, section: Section) -> None:
        """Take a value out of the registers within a section of the meter."""
        node = self.program.carriers[value]
        self._waiting.append((value, self._bytes_of(registers[node])))
        with section():
            del registers[node]

    def read(self, readings: Iterable[Reading]) -> None:
        """Take what the meter has read in all sections since the last time."""
        hidden: dict[int, int] = {}  # bytes that stay with a value beside its storage
        for entry, reading in zip(self._waiting, readings, strict=True):
            if isinstance(entry, Run):
                entry.reading = reading
                if entry.apart:
                    continue
                kept = reading.after - reading.before - (sum(entry.made.values()) - entry.taken)
                if entry.operand is not None and (waited := hidden.pop(entry.operand, 0)):
                    if kept + waited > 0:
                        raise self._stays(int(self.program.graph.producer[entry.operand]), waited)
                    kept += waited
                hidden |= dict.fromkeys(entry.made, 0)
                if kept > 0:
                    largest = max(entry.made, key=entry.made.__getitem__, default=None)
                    if largest is None:
                        raise self._stays(entry.choice[0], kept)
                    hidden[largest] = kept
                    entry.made[largest] += kept
            else:
                value, size = entry
                if (kept := size + hidden.get(value, 0) - (reading.before - reading.after)) > 0:
                    raise self._stays(int(self.program.graph.producer[value]), kept)
        self._waiting.clear()

    def require_views(self, registers: Registers) -> None:
        """Refuse results that copy what is in ``registers`` at the end, where they were predicted to be views."""
        registers = dict(registers)
        for body in self.program.epilogue:
            body.run(registers)
        there = {storage_key(tensor) for tensor in registers.values()}
        for result in self.program.results:
            tensor = result.views.result(registers, result.node)
            if storage_key(tensor) not in there and tensor.untyped_storage().nbytes():
                raise ExecutionError(
                    f"the result {result.name!r} was predicted to be a view, but its operators copy it; {_REAL_KERNELS}"
                )

    def forms(self, choice: Choice) -> list[Body]:
        """The body that takes new tensors, the one that overwrites an operand, and those of the worst case."""
        k, code = choice
        pair = (self.program.bodies[k], self.program.in_place.get(k)) if code == 1 else self.program.choices[choice]
        bodies = [body for body in pair if body is not None]
        return [*bodies, *(worst for body in bodies if (worst := _worst_case(body, self.program, self.device)))]

    def bytes_of_values(self) -> tuple[int, ...]:
        """The most that each value's storage has, of the bodies that take new tensors; predicted where none ran."""
        found: dict[int, int] = {}
        for run in chain.from_iterable(self.runs.values()):
            for value, size in run.made.items() if run.body.overwrites is None else ():
                found[value] = max(found.get(value, 0), size)
        return tuple(found.get(v, value.bytes) for v, value in enumerate(self.program.graph.values))

    def resident_difference(self, registers: Registers) -> int:
        """Bytes of storages that are there before the plan starts, less those predicted.

        Args:
            registers: as `Program.bind` gives them.
        """
        nodes = [node for node in registers if node in self.program.fakes]
        real = {storage_key(registers[node]): registers[node].untyped_storage().nbytes() for node in nodes}
        fakes = [self.program.fakes[node] for node in nodes]
        return sum(real.values()) - sum({storage_key(f): f.untyped_storage().nbytes() for f in fakes}.values())

    def takes_over(self, choice: Choice, sizes: tuple[int, ...]) -> bool:
        """Whether an implementation puts an output in the place of what it overwrites, as graphs understand it.

        Args:
            choice: the implementation.
            sizes: bytes of all values.
        """
        graph, (k, code) = self.program.graph, choice
        way = graph.operations[k].implementations[code - 1]
        if way.overwrites is None:
            return False
        fitting = [v for v in way.outputs if sizes[v] == sizes[way.overwrites]]
        heir = min(fitting, key=lambda v: graph.values[v].persistent, default=None)
        over = [run for run in self.runs[choice] if run.body.overwrites is not None]
        return heir is not None and all(heir in run.heirs for run in over)

    def workspace(self, choice: Choice, sizes: tuple[int, ...]) -> int:
        """Bytes that an implementation needs while it runs, beside its inputs and outputs; the most of its forms.

        One that draws takes no less than the state of the generator, which is read before its outputs are there.
        """
        k, code = choice
        overwritten = self.program.graph.operations[k].implementations[code - 1].overwrites
        overwrites, most = self.takes_over(choice, sizes), 0
        state = state_bytes(self.device.type) if self.program.bodies[k].random else 0
        for run in self.runs[choice]:
            if run.reading is None or (run.body.overwrites is not None and not overwrites):
                continue
            taken = sizes[overwritten] if overwritten is not None and run.body.overwrites is not None else 0
            grown = sum(sizes[v] for v in run.made) - taken
            most = max(most, run.reading.highest - run.reading.before - grown, state and state - grown)
        return most

    def _bytes_of(self, tensor: torch.Tensor) -> int:
        """Bytes of a storage on the device; what a kernel leaves on the CPU, such as the seed of a mask, has none."""
        return tensor.untyped_storage().nbytes() if tensor.device.type == self.device.type else 0

    def _shared(self, k: int, mine: Node, theirs: Node, siblings: bool) -> ExecutionError:
        return ExecutionError(
            f"{self.program.graph.operations[k].name!r} gives {self._name(mine)} in the storage of "
            f"{self._name(theirs)}, while its FakeTensors say that both have their own, and a plan would free or "
            f"overwrite one without the other; {'let each output have its own' if siblings else _REAL_KERNELS}"
        )

    def _stays(self, k: int, size: int) -> ExecutionError:
        name = self.program.graph.operations[k].name
        if name.endswith("efficientzerotensor"):
            return ExecutionError(
                f"{name!r} makes zeros that have no memory, for a derivative in forward mode, and no plan can promise "
                "a peak with them. Take derivatives in reverse mode: torch.func.jacrev in place of jacfwd and jvp, "
                "and jacrev(jacrev(f)) in place of torch.func.hessian(f)"
            )
        return ExecutionError(
            f"{format_bytes(size)} stay in memory when everything that {name!r} gives "
            "is freed: it holds on to tensors, as a cache does, so that no plan can promise a peak; take the model "
            "without that operator, or let it hold on to nothing"
        )

    def _name(self, node: Node) -> str:
        if node in self._value_of:
            return repr(self.program.graph.values[self._value_of[node]].name)
        for entry in self.program.inputs:
            if entry.node is node and entry.kind != "constant":
                return f"the {entry.kind} {entry.name or entry.place!r}"
        return f"the tensor {node.name!r}"


def _sources(body: Body) -> set[Node]:
    return {source for call in body.calls for source in call.sources}


class Scratch(Registers):
    """Registers of a run beside the plan."""


def beside(body: Body, registers: Registers) -> Scratch:
    """Registers in which a body can run without a trace in ``registers``; it overwrites a copy."""
    scratch = Scratch(registers)
    if body.overwrites is not None:
        scratch[body.overwrites] = registers[body.overwrites].clone()
    return scratch


def _worst_case(body: Body, program: Program, device: torch.device) -> Body | None:
    """The body with masks that name all places, or None where no call of it takes a mask that could."""
    calls = tuple(_with_all_places(call, program, device) for call in body.calls)
    return None if calls == body.calls else dataclasses.replace(body, calls=calls)


def _with_all_places(call: Call, program: Program, device: torch.device) -> Call:
    if call.target not in ASSIGNING or call.arguments is not None:
        return call
    tensor, indices, values = (_fakes(argument, program) for argument in call.args[:3])
    masks = [None if index is None or index.dtype != torch.bool else index for index in indices]
    if not any(mask is not None for mask in masks) or not _fits(tensor, indices, values):
        return call
    full = [None if mask is None else torch.ones(mask.shape, dtype=torch.bool, device=device) for mask in masks]
    target: Any = call.target

    def assign(tensor: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, *others: Any) -> torch.Tensor:
        chosen = [index if mask is None else mask for index, mask in zip(indices, full, strict=True)]
        return target(tensor, chosen, values, *others)

    return dataclasses.replace(call, target=assign)


def _fakes(argument: Any, program: Program) -> Any:
    return map_arg(argument, program.fakes.__getitem__)


def _fits(tensor: torch.Tensor, indices: Sequence[Any], values: torch.Tensor) -> bool:
    """Whether as many values as there are places can be assigned: one for all, or a row for each entry of a mask."""
    if values.numel() == 1:
        return True
    if len(indices) != 1:
        return False
    places = (indices[0].numel(), *tensor.shape[indices[0].dim() :])
    return values.dim() <= len(places) and all(
        size in (1, room) for size, room in zip(reversed(values.shape), reversed(places), strict=False)
    )

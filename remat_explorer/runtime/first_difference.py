"""Finds the first operation of a plan that gives what plain PyTorch does not have.

Tensors of one run are looked for in another by fingerprints, without keeping either.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node
from torch.utils._python_dispatch import TorchDispatchMode

from remat_explorer.capture import Body, Registers, Result, storage_key, tensors_of
from remat_explorer.operation_details import Details
from remat_explorer.plan import Compute
from remat_explorer.runtime.comparison import FirstDifference
from remat_explorer.runtime.interpreter import Interpreter, StepOutcome

MASKS = (torch.bool, torch.uint8, torch.int8)


def find_first_difference(
    observed: ObservedPlan, seen: Collection[Fingerprint], different: Collection[tuple[str, str]]
) -> FirstDifference:
    """Where the results that differ go wrong first; ``seen`` are fingerprints of everything in plain PyTorch's run.

    An output that plain PyTorch does not have need not be wrong: memory that nobody filled, or the mask of a dropout
    that plain PyTorch keeps in another form. A mask is taken to be right if what is computed with it is.
    """
    versions = observed.versions
    wrong = {i for i, version in enumerate(versions) if version.content not in seen}
    wrong -= {i for i in wrong if _unfilled(observed, versions[i])}
    wrong -= _masks_in_another_form(versions, wrong)
    results = [result for result in observed.program.results if (result.kind, result.name) in different]
    leading = _leading_to(versions, wrong, _last_versions(observed, results)) or wrong
    first = [i for i in sorted(leading) if not wrong.intersection(versions[i].reads)]
    if not first:
        return FirstDifference(reason="no operation of the plan gives what plain PyTorch does not have")
    statements = observed.plan.statements
    operations = dict.fromkeys(statements[versions[i].statement].operation for i in first)  # type: ignore[union-attr]
    return replace(_described(observed, versions, wrong, first[0]), others=len(operations) - 1)


@dataclass(frozen=True, eq=False)
class Version:
    """One output of one statement."""

    statement: int  # index in the plan
    value: int
    content: Fingerprint
    reads: tuple[int, ...]  # numbers of the versions that the statement read


class ObservedPlan:
    """A run of a plan that remembers the fingerprint of everything that it computes, in the order of computation."""

    def __init__(self, interpreter: Interpreter, registers: Registers, cancelled: Callable[[], bool]) -> None:
        self.plan, self.program = interpreter.plan, interpreter.program
        self.versions: list[Version] = []
        self.last: dict[int, int] = {}
        statements = enumerate(self.plan.statements)

        @contextlib.contextmanager
        def section() -> Iterator[None]:
            place, statement = next(statements)
            yield
            if isinstance(statement, Compute):
                self._remember(place, statement, registers)

        self.outcome: StepOutcome = interpreter.run(registers, section, cancelled).copied()

    @property
    def forms(self) -> set[Form]:
        """Dtype and shape of everything that was computed."""
        return {version.content[:2] for version in self.versions}

    def _remember(self, place: int, statement: Compute, registers: Registers) -> None:
        graph, outputs = self.plan.graph, self.program.body(statement).outputs
        reads = tuple(self.last[value] for value in graph.inputs(statement.operation, statement.implementation))
        for value, node in outputs.items():
            if value not in statement.drops:
                self.last[value] = len(self.versions)
                self.versions.append(Version(place, value, fingerprint(registers[node]), reads))


UNFILLED = "empty"  # in the names of the operators that give memory as it is
AT_A_TIME = 1 << 20  # entries copied to be read
Form = tuple[torch.dtype, torch.Size]
Fingerprint = tuple[torch.dtype, torch.Size, bytes]


def form_of(tensor: torch.Tensor) -> Form:
    """Dtype and shape."""
    return tensor.dtype, tensor.shape


def fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """The same for tensors of one dtype and shape whose entries are equal, however they lie in memory.

    Zeros of both signs are equal, and so are all entries that are no number, as `comparison.same` has it. Different
    entries give different fingerprints, but for a chance of one in 2**128.
    """
    content = hashlib.blake2b(digest_size=16)
    plain = tensor.detach().resolve_conj().resolve_neg()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    for part in plain.reshape(-1).split(AT_A_TIME):
        if part.is_floating_point() and part.element_size() > 1:  # what has one byte cannot be added to
            part = (part + 0).masked_fill_(part.isnan(), float("nan"))
        content.update(part.contiguous().cpu().view(torch.uint8).numpy().data)
    return *form_of(tensor), content.digest()


class FingerprintRecorder(TorchDispatchMode):
    """Fingerprints of every tensor of ``forms`` that an operator takes or gives while this is on, backward included.

    What an operator takes is read before and after it, since it may write there. Memory that nobody wrote to is not
    read: it may still hold what another run left there.
    """

    def __init__(self, forms: Collection[Form]) -> None:
        super().__init__()
        self._forms = forms
        self._unfilled: set[int] = set()  # storages
        self.fingerprints: set[Fingerprint] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        taken = tensors_of((args, kwargs))
        self._look_at(taken)
        before = {storage_key(tensor) for tensor in taken}
        result = func(*args, **(kwargs or {}))
        given = tensors_of(result)
        new = {storage_key(tensor) for tensor in given} - before
        if is_unfilled(func):
            self._unfilled |= new
        else:
            self._unfilled -= new | before if func._schema.is_mutable else new
        self._look_at([*taken, *given] if func._schema.is_mutable else given)
        return result

    def _look_at(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            if form_of(tensor) in self._forms and storage_key(tensor) not in self._unfilled:
                self.fingerprints.add(fingerprint(tensor))


def is_unfilled(target: Any) -> bool:
    """Whether an operator gives memory without writing to it."""
    return UNFILLED in str(getattr(target, "__name__", target))


def _described(observed: ObservedPlan, versions: list[Version], wrong: set[int], begins: int) -> FirstDifference:
    """What people are told of the operation that gave a version."""
    version = versions[begins]
    statement = observed.plan.statements[version.statement]
    assert isinstance(statement, Compute)
    operation = observed.plan.graph.operations[statement.operation]
    way, details = operation.implementations[statement.implementation - 1], operation.details or Details()
    before = [i for i, other in enumerate(versions[:begins]) if other.value == version.value]
    return FirstDifference(
        operation=statement.operation,
        name=operation.name,
        phase=operation.phase,
        module=details.module,
        operator=details.operator,
        line=details.line,
        implementation="" if statement.implementation == 1 else way.name,
        tolerance=way.tolerance,
        dtype=str(version.content[0]).removeprefix("torch."),
        statement=version.statement,
        again=bool(before) and not wrong.intersection(before),
    )


def _unfilled(observed: ObservedPlan, version: Version) -> bool:
    """Whether it is memory that an operator gave without writing to it."""
    statement = observed.plan.statements[version.statement]
    assert isinstance(statement, Compute)
    body: Body = observed.program.body(statement)
    made = [call for call in body.calls if call.node is body.outputs[version.value]]
    return any(is_unfilled(call.target) for call in made)


def _masks_in_another_form(versions: list[Version], wrong: set[int]) -> set[int]:
    """Masks that plain PyTorch does not have, though it has what was computed beside them, or from them first."""
    statements, readers = defaultdict(list), defaultdict(list)
    for i, version in enumerate(versions):
        statements[version.statement].append(i)
        for read in version.reads:
            readers[read].append(i)
    rightful: set[int] = set()
    for i in sorted(wrong):
        if versions[i].content[0] in MASKS and not (wrong - rightful).intersection(versions[i].reads):
            beside = statements[versions[i].statement]
            later = (j for j in readers[i] if not (wrong - rightful - {i}).intersection(versions[j].reads))
            if not wrong.issuperset((*beside, *later)):
                rightful.add(i)
    return rightful


def _last_versions(observed: ObservedPlan, results: list[Result]) -> list[int]:
    """The versions that results are read from."""
    values: dict[Node, int] = {node: value for value, node in enumerate(observed.program.carriers)}
    nodes = [node for r in results for node in (r.node, *(source for call in r.views.calls for source in call.sources))]
    return [observed.last[values[node]] for node in nodes if values.get(node) in observed.last]


def _leading_to(versions: list[Version], wrong: set[int], ends: list[int]) -> set[int]:
    """The wrong versions from which only wrong ones lead to one of ``ends``."""
    leading: set[int] = set()
    waiting = [i for i in ends if i in wrong]
    while waiting:
        i = waiting.pop()
        if i not in leading:
            leading.add(i)
            waiting += [j for j in versions[i].reads if j in wrong]
    return leading

"""What a trace read out of inputs and buffers: a plan holds for every step in which the same would be read.

`Derivations` keep from what the content of a tensor follows, an `Evaluation` computes it again for other inputs, and
`Assumptions.broken` finds the first read that gives something else there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

from remat_explorer.capture.autocast import no_autocast

aten = torch.ops.aten
_NUMBERS = (aten._local_scalar_dense.default, aten.item.default, aten.is_nonzero.default)


@dataclass(frozen=True, eq=False)
class GivenTensor:
    """A tensor that is there before a step: the ``place``-th input, the buffer ``name``, or a ``constant``."""

    kind: Literal["input", "buffer", "constant"]
    place: int = -1
    name: str = ""
    constant: torch.Tensor | None = None

    def tensor(self, buffers: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """What it is in a step with these ``buffers``, and ``inputs`` as `detached_inputs` gives them."""
        if self.kind == "input":
            return inputs[self.place]
        if self.kind == "buffer":
            return buffers[self.name]
        assert self.constant is not None
        return self.constant


@dataclass(frozen=True, eq=False)
class Derivation:
    """A call of an operator on contents alone: it can be made again wherever those are there."""

    number: int  # later calls have larger ones
    operator: Any
    leaves: tuple[Any, ...]  # the arguments, flat; contents in place of tensors
    nesting: pytree.TreeSpec  # how the arguments are nested

    @property
    def sources(self) -> list[Content]:
        """The contents among the arguments."""
        return [leaf for leaf in self.leaves if isinstance(leaf, GivenTensor | DerivedTensor)]


@dataclass(frozen=True, eq=False)
class DerivedTensor:
    """One of the results of a derivation."""

    derivation: Derivation
    place: int


Content = GivenTensor | DerivedTensor


@dataclass(frozen=True)
class UnknownContent:
    """Why the content of a tensor is none that can be told beforehand: what it depends on, in words."""

    reason: str
    uniform: bool = False  # drawn uniformly from 0 up to 1, so that comparisons with either are known


RANDOM = UnknownContent("random numbers")


class Derivations:
    """Calls on contents, each kept once: an operator gives the same for the same arguments."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._derivations: dict[Any, Derivation] = {}
        self._constants: dict[int, GivenTensor] = {}

    def constant(self, tensor: torch.Tensor) -> GivenTensor:
        """The content of a tensor that the model holds, or makes of Python's numbers."""
        return self._constants.setdefault(id(tensor), GivenTensor("constant", constant=tensor))

    def derivation(self, operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Derivation:
        """The call of ``operator`` with these arguments, contents in place of tensors."""
        leaves, nesting = pytree.tree_flatten((tuple(args), kwargs))
        named = tuple((type(leaf), id(leaf) if isinstance(leaf, GivenTensor) else _name(leaf)) for leaf in leaves)
        key = (operator, str(nesting), named)
        if key not in self._derivations:
            self._derivations[key] = Derivation(next(self._numbers), operator, tuple(leaves), nesting)
        return self._derivations[key]


def _name(leaf: Any) -> Any:
    return (leaf.derivation.number, leaf.place) if isinstance(leaf, DerivedTensor) else repr(leaf)


def derivations_of(wanted: Iterable[Derivation]) -> list[Derivation]:
    """All derivations that the wanted ones take, themselves included, in the order of their calls."""
    found: dict[int, Derivation] = {}
    waiting = list(wanted)
    while waiting:
        derivation = waiting.pop()
        if derivation.number not in found:
            found[derivation.number] = derivation
            waiting += [source.derivation for source in derivation.sources if isinstance(source, DerivedTensor)]
    return [found[number] for number in sorted(found)]


class Evaluation:
    """The results of derivations in one step; inputs are as `detached_inputs` gives them."""

    def __init__(self, buffers: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        self._buffers, self._inputs = buffers, inputs
        self._results: dict[int, list[Any]] = {}

    def results(self, derivation: Derivation) -> list[Any]:
        """The results of a derivation, flat; they and those of its sources are kept."""
        for needed in derivations_of([derivation]):
            if needed.number not in self._results:
                self.call(needed)
        return self._results[derivation.number]

    def call(self, derivation: Derivation) -> list[Any]:
        """The results of a derivation whose sources are there; they are kept."""
        leaves = [
            self._tensor(leaf) if isinstance(leaf, GivenTensor | DerivedTensor) else leaf for leaf in derivation.leaves
        ]
        args, kwargs = pytree.tree_unflatten(leaves, derivation.nesting)
        with torch.inference_mode(False), torch.no_grad(), no_dispatch():
            self._results[derivation.number] = pytree.tree_leaves(derivation.operator(*args, **kwargs))
        return self._results[derivation.number]

    def later(self, derivation: Derivation) -> torch.Tensor | None:
        """The tensor of one entry that a derivation reads, if its device would have to be waited for; else None."""
        if derivation.operator not in _NUMBERS:
            return None
        tensor = self._tensor(derivation.leaves[0])
        if not needs_synchronization(tensor):
            return None
        with torch.inference_mode(False), torch.no_grad(), no_dispatch():
            return tensor.ne(0) if derivation.operator is aten.is_nonzero.default else tensor

    def assume(self, derivation: Derivation, number: Any) -> None:
        """Take a number for what the derivation reads."""
        self._results[derivation.number] = [number]

    def forget(self, derivations: Iterable[Derivation]) -> None:
        """Let go of results."""
        for derivation in derivations:
            self._results.pop(derivation.number, None)

    def _tensor(self, content: Content) -> Any:
        if isinstance(content, DerivedTensor):
            return self._results[content.derivation.number][content.place]
        return content.tensor(self._buffers, self._inputs)


def needs_synchronization(tensor: torch.Tensor) -> bool:
    """Whether Python has to wait for a device to know what is in a tensor."""
    return tensor.device.type != "cpu"


def numbers_of(tensors: Sequence[torch.Tensor]) -> list[Any]:
    """The only entry of each tensor as Python has it, with one transfer for all of them."""
    with torch.inference_mode(False), torch.no_grad(), no_dispatch():
        plain = [tensor.detach().resolve_conj().resolve_neg().reshape(1) for tensor in tensors]
        together = torch.cat([tensor.view(torch.uint8) for tensor in plain]).cpu()
        parts = together.split([tensor.element_size() for tensor in plain])
        return [part.clone().view(tensor.dtype).item() for part, tensor in zip(parts, plain, strict=True)]


ReadKind = Literal["value", "size"]


@dataclass(frozen=True, eq=False)
class Assumption:
    """One read."""

    derivation: Derivation  # how what was read follows from inputs, buffers and constants
    kind: ReadKind  # whether its value was read, or the sizes of its results
    expected: Any  # what was read
    line: str  # file and line
    text: str  # of the source

    def found(self, results: Sequence[Any]) -> Any:
        """What is read where the derivation has these results."""
        return results[0] if self.kind == "value" else tuple(tuple(result.shape) for result in results)

    @property
    def sources(self) -> list[GivenTensor]:
        """What it follows from, each once."""
        given = (s for d in derivations_of([self.derivation]) for s in d.sources if isinstance(s, GivenTensor))
        return sorted(set(given), key=lambda one: (one.kind, one.place, one.name))

    def where(self) -> str:
        """The line that reads, ``net.py:12 `if mask.all():` ``."""
        return f"{self.line} `{self.text}`" if self.text else self.line or "a backward pass"

    def __str__(self) -> str:
        return f"{_read(self.expected, self.kind)} at {self.where()}"


@dataclass(frozen=True)
class BrokenAssumption:
    """A read that gives something else.

    Attributes:
        words: what is read, out of what and where, and what the plan was made for.
        is_truth: whether truth values were read, of which there are two.
        buffers: names of the buffers that it follows from.
    """

    words: str
    is_truth: bool = False
    buffers: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.words


class Assumptions:
    """Everything that a trace read, in order; ``names`` are what a person calls each input tensor, by its place."""

    def __init__(self, reads: Sequence[Assumption] = (), names: Sequence[str] = ()) -> None:
        self.reads, self._names = tuple(reads), tuple(names)
        self._order = derivations_of(read.derivation for read in self.reads)
        self._readers: dict[int, list[Assumption]] = {}
        for read in self.reads:
            self._readers.setdefault(read.derivation.number, []).append(read)
        last = {s.derivation: d for d in self._order for s in d.sources if isinstance(s, DerivedTensor)}
        self._over: dict[Derivation, list[Derivation]] = {}  # what is needed no more after a derivation
        for derivation in self._order:
            self._over.setdefault(last.get(derivation, derivation), []).append(derivation)

    @property
    def truths(self) -> tuple[tuple[str, bool], ...]:
        """The truth values among the reads, each with the place that read it."""
        return tuple((read.where(), read.expected) for read in self.reads if isinstance(read.expected, bool))

    def broken(self, model: nn.Module, inputs: Sequence[torch.Tensor]) -> BrokenAssumption | None:
        """The first read that would give something else in a step of ``model`` with ``inputs``, or None.

        The model is the captured one, or has the same buffers; inputs are as `detached_inputs` gives them.
        """
        if not self.reads:
            return None
        with no_autocast():  # what was recorded has its casts
            return self._broken(Evaluation(dict(model.named_buffers()), inputs))

    def _broken(self, evaluation: Evaluation) -> BrokenAssumption | None:
        """The first read that gives something else.

        Numbers on a device are read together, when all of them are computed: until then they are taken for what the
        plan was made for. What is computed from a number that was not as expected is of no interest.
        """
        waiting: list[tuple[Assumption, torch.Tensor]] = []
        for derivation in self._order:
            readers = self._readers.get(derivation.number, [])
            try:
                if readers and (number := evaluation.later(derivation)) is not None:
                    waiting += [(read, number) for read in readers]
                    evaluation.assume(derivation, readers[0].expected)
                    results, readers = [], []
                else:
                    results = evaluation.call(derivation)
            except Exception as error:  # whatever an operator says of these inputs
                read = next(read for read in self.reads if derivation in derivations_of([read.derivation]))
                failed = BrokenAssumption(
                    f"nothing can be read out of {self._sources(read)} at {read.where()}: {error}"
                )
                return self._broken_number(waiting) or failed
            for read in readers:
                if other := self._other(read, read.found(results)):
                    return self._broken_number(waiting) or other
            evaluation.forget(self._over.get(derivation, ()))
        return self._broken_number(waiting)

    def _broken_number(self, waiting: Sequence[tuple[Assumption, torch.Tensor]]) -> BrokenAssumption | None:
        """The first of the numbers on a device that is another one, or None; all are read at once."""
        if not waiting:
            return None
        numbers = numbers_of([tensor for _, tensor in waiting])
        others = (self._other(read, found) for (read, _), found in zip(waiting, numbers, strict=True))
        return next(filter(None, others), None)

    def _other(self, read: Assumption, found: Any) -> BrokenAssumption | None:
        if _same(found, read.expected):
            return None
        return BrokenAssumption(
            f"{_read(found, read.kind)} is read out of {self._sources(read)} at {read.where()}, but the plan was made "
            f"for {_read(read.expected, read.kind)}",
            isinstance(found, bool) and isinstance(read.expected, bool),
            frozenset(given.name for given in read.sources if given.kind == "buffer"),
        )

    def __str__(self) -> str:
        """The first reads, in words, or nothing."""
        more = f" and {len(self.reads) - 3} more" if len(self.reads) > 3 else ""
        return ", ".join(map(str, self.reads[:3])) + more

    def _sources(self, read: Assumption) -> str:
        words = []
        for given in read.sources:
            if given.kind == "input":
                words.append(
                    self._names[given.place] if given.place < len(self._names) else f"input tensor {given.place}"
                )
            elif given.kind == "buffer":
                words.append(f"the buffer {given.name!r}")
        return " and ".join(words) or "a constant of the model"


def _read(value: Any, kind: ReadKind) -> str:
    if kind == "value":
        return repr(value)
    return "a result of shape " + " and ".join(str(list(shape)) for shape in value)


def _same(first: Any, second: Any) -> bool:
    return type(first) is type(second) and (first == second or (first != first and second != second))

"""What a trace read out of inputs and buffers: a plan holds for every step in which the same would be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from remat_explorer.capture.joint.content import Derivation, Evaluation, Given, Part, derivations_of, numbers_of
from remat_explorer.capture.step.autocast import no_autocast

Kind = Literal["value", "size"]


@dataclass(frozen=True, eq=False)
class Assumption:
    """One read.

    Attributes:
        derivation: how what was read follows from inputs, buffers and constants.
        kind: whether its value was read, or the sizes of its results.
        expected: what was read.
        line, text: where: file and line, and the source text.
    """

    derivation: Derivation
    kind: Kind
    expected: Any
    line: str
    text: str

    def found(self, results: Sequence[Any]) -> Any:
        """What is read where the derivation has these results."""
        return results[0] if self.kind == "value" else tuple(tuple(result.shape) for result in results)

    @property
    def sources(self) -> list[Given]:
        """What it follows from, each once."""
        given = (s for d in derivations_of([self.derivation]) for s in d.sources if isinstance(s, Given))
        return sorted(set(given), key=lambda one: (one.kind, one.place, one.name))

    def where(self) -> str:
        """The line that reads, ``net.py:12 `if mask.all():` ``."""
        return f"{self.line} `{self.text}`" if self.text else self.line or "a backward pass"

    def __str__(self) -> str:
        return f"{_read(self.expected, self.kind)} at {self.where()}"


@dataclass(frozen=True)
class Broken:
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
    """Everything that a trace read.

    Args:
        reads: in the order in which they were made.
        names: what a person calls each input tensor, by its place.
    """

    def __init__(self, reads: Sequence[Assumption] = (), names: Sequence[str] = ()) -> None:
        self.reads, self._names = tuple(reads), tuple(names)
        self._order = derivations_of(read.derivation for read in self.reads)
        self._readers: dict[int, list[Assumption]] = {}
        for read in self.reads:
            self._readers.setdefault(read.derivation.number, []).append(read)
        last = {s.derivation: d for d in self._order for s in d.sources if isinstance(s, Part)}
        self._over: dict[Derivation, list[Derivation]] = {}  # what is needed no more after a derivation
        for derivation in self._order:
            self._over.setdefault(last.get(derivation, derivation), []).append(derivation)

    @property
    def truths(self) -> tuple[tuple[str, bool], ...]:
        """The truth values among the reads, each with the place that read it."""
        return tuple((read.where(), read.expected) for read in self.reads if isinstance(read.expected, bool))

    def broken(self, model: nn.Module, inputs: Sequence[torch.Tensor]) -> Broken | None:
        """The first read that would give something else in a step of ``model`` with ``inputs``, or None.

        Args:
            model: the captured model, or one with the same buffers.
            inputs: as `plain_inputs` gives them.
        """
        if not self.reads:
            return None
        with no_autocast():  # what was recorded has its casts
            return self._broken(Evaluation(dict(model.named_buffers()), inputs))

    def _broken(self, evaluation: Evaluation) -> Broken | None:
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
                failed = Broken(f"nothing can be read out of {self._sources(read)} at {read.where()}: {error}")
                return self._broken_number(waiting) or failed
            for read in readers:
                if other := self._other(read, read.found(results)):
                    return self._broken_number(waiting) or other
            evaluation.forget(self._over.get(derivation, ()))
        return self._broken_number(waiting)

    def _broken_number(self, waiting: Sequence[tuple[Assumption, torch.Tensor]]) -> Broken | None:
        """The first of the numbers on a device that is another one, or None; all are read at once."""
        if not waiting:
            return None
        numbers = numbers_of([tensor for _, tensor in waiting])
        others = (self._other(read, found) for (read, _), found in zip(waiting, numbers, strict=True))
        return next(filter(None, others), None)

    def _other(self, read: Assumption, found: Any) -> Broken | None:
        if _same(found, read.expected):
            return None
        return Broken(
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


def _read(value: Any, kind: Kind) -> str:
    if kind == "value":
        return repr(value)
    return "a result of shape " + " and ".join(str(list(shape)) for shape in value)


def _same(first: Any, second: Any) -> bool:
    return type(first) is type(second) and (first == second or (first != first and second != second))

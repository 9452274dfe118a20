"""From what the content of a tensor follows, and how to compute it again for other inputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

aten = torch.ops.aten
_NUMBERS = (aten._local_scalar_dense.default, aten.item.default, aten.is_nonzero.default)


@dataclass(frozen=True, eq=False)
class Given:
    """A tensor that is there before a step: the ``place``-th input, the buffer ``name``, or a ``constant``."""

    kind: Literal["input", "buffer", "constant"]
    place: int = -1
    name: str = ""
    constant: torch.Tensor | None = None

    def tensor(self, buffers: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """What it is in a step with these ``buffers``, and ``inputs`` as `plain_inputs` gives them."""
        if self.kind == "input":
            return inputs[self.place]
        if self.kind == "buffer":
            return buffers[self.name]
        assert self.constant is not None
        return self.constant


@dataclass(frozen=True, eq=False)
class Derivation:
    """A call of an operator on contents alone: it can be made again wherever those are there.

    Attributes:
        number: later calls have larger ones.
        leaves: the arguments, flat; contents in place of tensors.
        nesting: how the arguments are nested.
    """

    number: int
    operator: Any
    leaves: tuple[Any, ...]
    nesting: pytree.TreeSpec

    @property
    def sources(self) -> list[Content]:
        """The contents among the arguments."""
        return [leaf for leaf in self.leaves if isinstance(leaf, Given | Part)]


@dataclass(frozen=True, eq=False)
class Part:
    """One of the results of a derivation."""

    derivation: Derivation
    place: int


Content = Given | Part


@dataclass(frozen=True)
class Unknown:
    """Why the content of a tensor is none that can be told beforehand: what it depends on, in words.

    Attributes:
        uniform: whether it is drawn uniformly from 0 up to 1, so that comparisons with either are known.
    """

    reason: str
    uniform: bool = False


RANDOM = Unknown("random numbers")


class Contents:
    """Calls on contents, each kept once: an operator gives the same for the same arguments."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._derivations: dict[Any, Derivation] = {}
        self._constants: dict[int, Given] = {}

    def constant(self, tensor: torch.Tensor) -> Given:
        """The content of a tensor that the model holds, or makes of Python's numbers."""
        return self._constants.setdefault(id(tensor), Given("constant", constant=tensor))

    def derivation(self, operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Derivation:
        """The call of ``operator`` with these arguments, contents in place of tensors."""
        leaves, nesting = pytree.tree_flatten((tuple(args), kwargs))
        named = tuple((type(leaf), id(leaf) if isinstance(leaf, Given) else _name(leaf)) for leaf in leaves)
        key = (operator, str(nesting), named)
        if key not in self._derivations:
            self._derivations[key] = Derivation(next(self._numbers), operator, tuple(leaves), nesting)
        return self._derivations[key]


def _name(leaf: Any) -> Any:
    return (leaf.derivation.number, leaf.place) if isinstance(leaf, Part) else repr(leaf)


def derivations_of(wanted: Iterable[Derivation]) -> list[Derivation]:
    """All derivations that the wanted ones take, themselves included, in the order of their calls."""
    found: dict[int, Derivation] = {}
    waiting = list(wanted)
    while waiting:
        derivation = waiting.pop()
        if derivation.number not in found:
            found[derivation.number] = derivation
            waiting += [source.derivation for source in derivation.sources if isinstance(source, Part)]
    return [found[number] for number in sorted(found)]


class Evaluation:
    """The results of derivations in one step.

    Args:
        buffers: of the model, by name.
        inputs: as `plain_inputs` gives them.
    """

    def __init__(self, buffers: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        self._buffers, self._inputs = buffers, inputs
        self._results: dict[int, list[Any]] = {}

    def results(self, derivation: Derivation) -> list[Any]:
        """The results of a derivation, flat; they and those of its sources are kept.

        Raises:
            Exception: whatever an operator raises for these inputs.
        """
        for needed in derivations_of([derivation]):
            if needed.number not in self._results:
                self.call(needed)
        return self._results[derivation.number]

    def call(self, derivation: Derivation) -> list[Any]:
        """The results of a derivation whose sources are there; they are kept."""
        leaves = [self._tensor(leaf) if isinstance(leaf, Given | Part) else leaf for leaf in derivation.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, derivation.nesting)
        with torch.inference_mode(False), torch.no_grad(), no_dispatch():
            self._results[derivation.number] = pytree.tree_leaves(derivation.operator(*args, **kwargs))
        return self._results[derivation.number]

    def later(self, derivation: Derivation) -> torch.Tensor | None:
        """The tensor of one entry that a derivation reads, if its device would have to be waited for; else None."""
        if derivation.operator not in _NUMBERS:
            return None
        tensor = self._tensor(derivation.leaves[0])
        if not waits_for(tensor):
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
        if isinstance(content, Part):
            return self._results[content.derivation.number][content.place]
        return content.tensor(self._buffers, self._inputs)


def waits_for(tensor: torch.Tensor) -> bool:
    """Whether Python has to wait for a device to know what is in a tensor."""
    return tensor.device.type != "cpu"


def numbers_of(tensors: Sequence[torch.Tensor]) -> list[Any]:
    """The only entry of each tensor as Python has it, with one transfer for all of them.

    >>> numbers_of([torch.tensor([3]), torch.tensor(0.5), torch.tensor(True)])
    [3, 0.5, True]
    """
    with torch.inference_mode(False), torch.no_grad(), no_dispatch():
        plain = [tensor.detach().resolve_conj().resolve_neg().reshape(1) for tensor in tensors]
        together = torch.cat([tensor.view(torch.uint8) for tensor in plain]).cpu()
        parts = together.split([tensor.element_size() for tensor in plain])
        return [part.clone().view(tensor.dtype).item() for part, tensor in zip(parts, plain, strict=True)]

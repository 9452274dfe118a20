"""What a model takes and returns: tensors in nested containers, and those from which backward starts.

`map_tensors` and `tensors_in` go through tuples, lists, dictionaries, dataclasses and whatever else PyTorch knows how
to take apart. `results_of_output` gives a scalar loss, or the outputs themselves; an `OutputStructure` is how they lie
in what the model returns.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from remat_explorer.errors import CaptureError


def map_tensors(function: Callable[[torch.Tensor], Any], nested: Any) -> Any:
    """The same nesting with ``function`` applied to each tensor; everything else stays the object that it is.

    Dataclasses are opened although `torch.utils._pytree` holds them for leaves, and are not registered there: what is
    registered stays so for the whole process.

    >>> map_tensors(lambda tensor: tensor.item(), {"a": (torch.tensor(1), "b"), "c": [torch.tensor(2.0)]})
    {'a': (1, 'b'), 'c': [2.0]}
    """
    return map_leaves(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, nested)


def map_leaves(function: Callable[[Any], Any], nested: Any) -> Any:
    """The same nesting with ``function`` applied to everything that is no container.

    >>> map_leaves(str, [1, (2.5, {"a": None})])
    ['1', ('2.5', {'a': 'None'})]
    """

    def visit(leaf: Any) -> Any:
        if not dataclasses.is_dataclass(leaf) or isinstance(leaf, type):
            return function(leaf)
        changed = copy.copy(leaf)
        for entry in dataclasses.fields(leaf):
            if hasattr(leaf, entry.name):  # a frozen dataclass is filled like an open one
                object.__setattr__(changed, entry.name, map_leaves(function, getattr(leaf, entry.name)))
        return changed

    return pytree.tree_map(visit, nested)


def tensors_in(nested: Any) -> list[torch.Tensor]:
    """Every tensor of a nesting, in the order in which `map_tensors` meets them.

    >>> tensors_in((torch.tensor(1), None, {"a": [torch.tensor(2)]}))
    [tensor(1), tensor(2)]
    """
    tensors: list[torch.Tensor] = []

    def take(tensor: torch.Tensor) -> torch.Tensor:
        tensors.append(tensor)
        return tensor  # a PackedSequence is made of tensors only

    map_tensors(take, nested)
    return tensors


def named_inputs(args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a model's inputs in the order of `tensors_in`, each with what a person calls it."""
    for number, argument in enumerate(args):
        yield from ((f"input {number}", tensor) for tensor in tensors_in(argument))
    for name, argument in (kwargs or {}).items():
        yield from ((f"input {name!r}", tensor) for tensor in tensors_in(argument))


_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout)


class Slot(int):
    """Where a tensor was: the number of the result that belongs there, or -1 where a plan gives none."""


@dataclass(frozen=True)
class OutputStructure:
    """The nesting that a model returns, with a `Slot` for each tensor.

    Args:
        nesting: containers as the model made them. Of what is neither a container nor a tensor, numbers and text stay;
            an object of another kind, such as a cache, may hold tensors of the trace and becomes None.
        is_loss: whether the one result is the loss; otherwise the loss is computed elsewhere, from these outputs.
        other_losses: how many more scalars there were beside a loss that could be losses, and that a plan leaves out.

    >>> OutputStructure({"logits": Slot(0), "state": Slot(-1), "steps": 3}, False).filled([torch.ones(2)])
    {'logits': tensor([1., 1.]), 'state': None, 'steps': 3}
    """

    nesting: Any
    is_loss: bool
    other_losses: int = field(default=0, repr=False)

    @staticmethod
    def of(output: Any, slot: Callable[[torch.Tensor], Slot], is_loss: bool) -> OutputStructure:
        """What is returned by a model that gave ``output``, with ``slot`` for each tensor in it."""
        left_out = (tensor for tensor in tensors_in(output) if is_loss and slot(tensor) < 0)
        other_losses = sum(tensor.numel() == 1 and tensor.requires_grad for tensor in left_out)

        def visit(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                return slot(leaf)
            return leaf if isinstance(leaf, _PLAIN) else None

        return OutputStructure(map_leaves(visit, output), is_loss, other_losses)

    def filled(self, results: Sequence[torch.Tensor]) -> Any:
        """The nesting with the results in their places."""

        def visit(leaf: Any) -> Any:
            if not isinstance(leaf, Slot):
                return leaf
            return results[leaf] if leaf >= 0 else None

        return map_leaves(visit, self.nesting)


Loss = Callable[[Any], torch.Tensor]


def loss_elsewhere(output: Any) -> Any:
    """What a model returns, as it is: given as ``loss``, it leaves the loss to the training loop in any case.

    Without it, the loss of an output that has one is what is trained, and the other tensors of the output are not kept.
    With it they are all there, as for a loop that reads logits beside the loss, or makes another loss of them.

    >>> from torch import nn
    >>> import remat_explorer as rx
    >>> class Scores(nn.Linear):
    ...     def forward(self, x):
    ...         scores = super().forward(x)
    ...         return {"loss": scores.square().mean(), "scores": scores}
    >>> x = torch.ones(2, 3)
    >>> rx.rematerialize(Scores(3, 4), (x,), budget="100%")(x)["scores"] is None
    True
    >>> rx.rematerialize(Scores(3, 4), (x,), budget="110%", loss=rx.loss_elsewhere)(x)["scores"].shape
    torch.Size([2, 4])
    """
    return output


def results_of_output(
    output: Any, loss: Loss | None, given: Iterable[torch.Tensor] = ()
) -> tuple[tuple[torch.Tensor, ...], OutputStructure]:
    """The results of a forward pass, and how they lie in what the model returns.

    In this order: what ``loss`` makes of the output; a scalar output; the scalar called ``loss`` of an output that has
    one, as attribute or key, such as the outputs of transformers models that were given labels. Else every tensor of
    the output is a result, and backward starts from the gradients of those that have one: the loss is computed
    elsewhere. Outputs may share memory with ``given``: inputs, parameters and buffers.

    A CaptureError if a loss is no scalar or is not real, no parameter has a part in any result, or tensors are in an
    object that is no container.
    """
    if loss is loss_elsewhere:
        return _every_tensor(output, given)
    if loss is not None:
        value = loss(output)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            shape = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise CaptureError(f"the loss must give a tensor with one element, but it gave {shape}")
        return (_differentiable(value),), OutputStructure(Slot(0), True)
    own = _own_loss(output)
    if own is not None:
        inside = any(tensor is own for tensor in tensors_in(output))
        returned = OutputStructure.of(output if inside else own, lambda tensor: Slot(0 if tensor is own else -1), True)
        return (_differentiable(own),), returned
    return _every_tensor(output, given)


def _own_loss(output: Any) -> torch.Tensor | None:
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    for candidate in (output, loss):
        if isinstance(candidate, torch.Tensor) and candidate.numel() == 1:
            return candidate
    return None


def _differentiable(value: torch.Tensor) -> torch.Tensor:
    if not value.is_floating_point():
        advice = "take .abs() or .real" if value.is_complex() else "pass loss=... that gives a floating-point tensor"
        raise CaptureError(f"the loss is {value.dtype}, which has no gradient; {advice}")
    if not value.requires_grad:
        raise CaptureError(
            "the loss depends on no parameter or input that requires a gradient: its output is detached, computed "
            "under torch.no_grad(), or made of whole numbers; train with a differentiable output"
        )
    return value


def _every_tensor(output: Any, given: Iterable[torch.Tensor]) -> tuple[tuple[torch.Tensor, ...], OutputStructure]:
    map_leaves(_require_no_tensors_in, output)
    tensors = list({id(tensor): tensor for tensor in tensors_in(output)}.values())
    if not any(tensor.is_floating_point() for tensor in tensors):
        raise CaptureError(f"the model gives {_describe(output)} without a floating-point tensor; pass loss=...")
    if not any(tensor.requires_grad for tensor in tensors):
        raise CaptureError(
            "no output depends on a parameter or an input that requires a gradient: they are detached, computed under "
            "torch.no_grad(), or made of whole numbers; train with a differentiable output"
        )
    number = {id(tensor): place for place, tensor in enumerate(tensors)}
    taken = {_memory(tensor) for tensor in given}
    results = []
    for tensor in tensors:
        # a gradient belongs to one tensor: of two views of one memory, the second gets memory of its own
        results.append(tensor.clone() if tensor.requires_grad and _memory(tensor) in taken else tensor)
        taken.add(_memory(tensor))
    return tuple(results), OutputStructure.of(output, lambda tensor: Slot(number[id(tensor)]), False)


def _require_no_tensors_in(leaf: Any) -> None:
    """Refuse an object that is no container and holds tensors, for which a step would give None.

    Caches of transformers are let through: who trains does not ask for them.
    """
    if isinstance(leaf, torch.Tensor | torch.nn.Module | type) or type(leaf).__name__.endswith("Cache"):
        return
    held = list(leaf) if isinstance(leaf, set | frozenset) else list(getattr(leaf, "__dict__", {}).values())
    if inspect.isgenerator(leaf) or any(tensor.requires_grad for tensor in tensors_in(held)):
        raise CaptureError(
            f"the model returns a {type(leaf).__name__}, in which a step would not find its tensors again; return them "
            "in tuples, lists, dictionaries or dataclasses, or pass loss=... that makes the loss of it"
        )


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _describe(output: Any) -> str:
    if isinstance(output, torch.Tensor):
        return f"a tensor of {output.dtype}"
    return "None" if output is None else type(output).__name__

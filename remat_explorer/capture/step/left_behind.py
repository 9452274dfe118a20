"""Tensors that forward leaves behind: a plan leaves a mark in attributes, as of attention maps, and refuses others."""

from __future__ import annotations

import functools
import gc
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils import _pytree as pytree

from remat_explorer.capture.step.attributes import Changes, Place
from remat_explorer.capture.step.contents import Content, TensorContent
from remat_explorer.capture.step.variables import ABSENT as _ABSENT
from remat_explorer.capture.step.variables import Variable
from remat_explorer.errors import CaptureError, ExecutionError

_IN_HOOKS = types.CellType, types.FunctionType, types.MethodType, functools.partial
_IS_NOT_THERE = "is not there after a training step by a plan, which does not run forward"
_OF_FORWARD = "Return it from forward, or keep it in a buffer (register_buffer), which plans update"
_OF_HOOKS = (
    "Hooks compute it when the model is called: before it is read, such as to prune it further, call the model once "
    "within torch.no_grad() and in evaluation mode, model.eval()"
)

_Made = tuple[weakref.ref[torch.Tensor], Any, bool]  # with its place, and whether the backward pass has made it


class LeftBehind(torch.Tensor):
    """Stands where forward would have left a tensor; to compute with it is an error, so that nothing old is used.

    >>> mark = LeftBehind.of("the map is not there")
    >>> isinstance(mark, torch.Tensor), mark
    (True, <the map is not there>)
    >>> torch.ones(2) + mark
    Traceback (most recent call last):
        ...
    remat_explorer.errors.ExecutionError: the map is not there
    """

    words: str

    @staticmethod
    @functools.cache
    def of(words: str) -> LeftBehind:
        """The mark that says so; the same one for the same words, so that attributes hold the same after each step."""
        mark = torch.empty(0).as_subclass(LeftBehind)
        mark.words = words
        return mark

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__self__.__name__ if func.__name__ == "__get__" else func.__name__
        if name in ("_version", "is_inference", "data_ptr"):  # by which changes are noticed
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        leaves = pytree.tree_leaves((args, kwargs or {}))
        raise ExecutionError(next(leaf.words for leaf in leaves if isinstance(leaf, LeftBehind)))

    def __deepcopy__(self, memo: Any) -> LeftBehind:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(None), ()  # pickled as None: who reads it need not have this class

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"<{self.words}>"


def is_left(before: Content, after: Content) -> bool:
    """Whether tensors, in lists and dictionaries of the same keys, are all in which two contents differ.

    >>> none, one = Content("plain", (type(None), None)), Content("plain", (int, 1))
    >>> is_left(none, none), is_left(none, one)
    (True, False)
    """
    if before == after:
        return True
    if before.kind == after.kind == "container" and before.value is after.value:
        keys = [[key for key, _ in content.items] for content in (before, after)]
        pairs = zip(before.items, after.items, strict=False)
        return keys[0] == keys[1] and all(is_left(then, now) for (_, then), (_, now) in pairs)
    return before.kind == after.kind == "tensor"


def left_of(before: Content, after: Content) -> Content:
    """What a pass left, of two contents that `is_left` holds of: without tensors of dictionaries that stayed.

    >>> stays, first, second = (Content("tensor", number) for number in range(3))
    >>> before, after = (Content("container", dict, (("weight", stays), ("map", one))) for one in (first, second))
    >>> [key for key, _ in left_of(before, after).items]
    ['map']
    """
    if after.kind != "container" or not isinstance(after.value, type) or before.kind != "container":
        return after
    pairs = zip(before.items, after.items, strict=False)
    items = [(key, then, left_of(then, now)) for (_, then), (key, now) in pairs]
    in_dict = issubclass(after.value, dict)
    kept = [(key, now) for key, then, now in items if not (in_dict and now.kind == "tensor" and then == now)]
    return Content("container", after.value, tuple(kept))


def is_marked(content: Content) -> bool:
    """Whether there is a mark in a content."""
    if content.kind == "tensor":
        return isinstance(content.value.tensor, LeftBehind)
    return any(is_marked(item) for _, item in content.items)


def leave(model: nn.Module, left: Mapping[Place, Content]) -> None:
    """Put marks where a forward pass would have left tensors.

    Args:
        model: its attributes are changed.
        left: places, and what a forward pass left there.
    """
    for (path, name), content in left.items():
        if isinstance(path, Variable):
            mark = LeftBehind.of(f"{path.words} {_IS_NOT_THERE}. Return it from forward")
            path.put(_marked(path.get(), content, mark))
            continue
        module = model.get_submodule(path)
        of = f"{path!r} ({type(module).__name__})" if path else f"the model ({type(module).__name__})"
        advice = _OF_HOOKS if module._forward_pre_hooks else _OF_FORWARD
        mark = LeftBehind.of(f"the attribute {name} of {of} {_IS_NOT_THERE}. {advice}")
        held = vars(module)
        held[name] = _marked(held.get(name, _ABSENT), content, mark)


def _marked(value: Any, content: Content, mark: LeftBehind) -> Any:
    """``value`` with a mark for each tensor of a content; lists and dictionaries are changed in place."""
    if content.kind == "tensor":
        return mark
    kind = content.value if content.kind == "container" and isinstance(content.value, type) else None
    if kind is None or not issubclass(kind, list | dict | tuple | deque):
        return None if value is _ABSENT else value
    if issubclass(kind, tuple) or type(value) is not kind:
        parts = {key: _marked(_ABSENT, item, mark) for key, item in content.items}
        return parts if issubclass(kind, dict) else (deque if issubclass(kind, deque) else list)(parts.values())
    for key, item in content.items:
        if isinstance(value, dict) or key < len(value):
            there = value.get(key, _ABSENT) if isinstance(value, dict) else value[key]
            value[key] = _marked(there, item, mark)
        elif key == len(value):
            value.append(_marked(_ABSENT, item, mark))
    return value


class MadeTensors:
    """While entered, notes every tensor that a trace makes, to find those that are alive after it.

    Args:
        place: where in the person's code execution is, and whether it is in the backward pass; it is given the autograd
            sequence number of the operation that is differentiated, or None.
    """

    def __init__(self, place: Callable[[int | None], tuple[Any, bool]]) -> None:
        self._place = place
        self._made: list[_Made] = []  # tensors compare entry by entry

    def __enter__(self) -> MadeTensors:
        self._plain = plain = vars(FunctionalTensor)["__new__"]

        def make(*args: Any, **kwargs: Any) -> torch.Tensor:
            tensor = plain.__func__(*args, **kwargs)
            self.note(tensor)
            return tensor

        FunctionalTensor.__new__ = staticmethod(make)  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        FunctionalTensor.__new__ = self._plain  # type: ignore[method-assign]

    def note(self, tensor: torch.Tensor) -> None:
        """Note a tensor that has just been made."""
        node = torch._C._current_autograd_node()
        self._made.append((weakref.ref(tensor), *self._place(None if node is None else node._sequence_nr())))

    def refuse_left(self, model: nn.Module, changes: Changes, words: Callable[[Any], str]) -> None:
        """Raise an error if a tensor of the trace, which is over, is alive in a place that nobody could restore.

        Args:
            model: what was traced.
            changes: what the trace is known to have left.
            words: what people call a place.

        Raises:
            CaptureError: with its shape, where it was made, and what holds it.
        """
        made, self._made = self._made, []
        told = {id(tensor) for change in changes.values() for content in change for tensor in _tensors_of(content)}
        if not any(_held(made, told)):
            return
        gc.collect()
        for tensor, holder, place, in_backward in _held(made, told):
            who = "a gradient hook or the backward of a custom Function" if in_backward else "forward or the loss"
            where = words(place)
            of = "in the backward pass of what is computed " if in_backward else ""
            made_at = f", made {of}{where}," if where else ""
            instead = (
                "take gradients from .grad, or by a hook on a parameter, which is called in each step"
                if in_backward
                else "return it from forward, or keep it in an attribute of the model"
            )
            raise CaptureError(
                f"{type(model).__name__} cannot be captured as a static training graph: {who} leaves a tensor of shape "
                f"{list(tensor.shape)}{made_at} in an object outside of the model (held by a {type(holder).__name__}), "
                "such as a queue, a generator, a thread's local storage or a name that is computed. A plan would not "
                f"put it there in each step: {instead}. What is there now is without content: take it out"
            )


def _held(made: list[_Made], told: set[int]) -> Iterator[tuple[torch.Tensor, Any, Any, bool]]:
    """What is alive of what was made, with an object that holds it, beside what autograd and ``told`` hold."""
    pairs = [(tensor, rest) for one, *rest in made if (tensor := one()) is not None and id(tensor) not in told]
    if not pairs:
        return
    gc.unfreeze()  # what is frozen is not looked into
    tensors, places = [tensor for tensor, _ in pairs], [rest for _, rest in pairs]
    del pairs
    held: dict[int, Any] = {}
    for holder in gc.get_referrers(*tensors):
        if holder is not tensors and not _is_of_autograd(holder):
            held |= {id(part): holder for part in gc.get_referents(holder)}
    for tensor, (place, in_backward) in zip(tensors, places, strict=True):
        if id(tensor) in held:
            yield tensor, held[id(tensor)], place, in_backward


def _is_of_autograd(holder: Any) -> bool:
    """Whether it may be part of a gradient hook, which autograd keeps in a circle, or looks for tensors itself."""
    if type(holder) is tuple:  # such as the arguments of a partial function
        return any(isinstance(one, functools.partial) for one in gc.get_referrers(holder))
    return isinstance(holder, (*_IN_HOOKS, types.FrameType, TensorContent))


def _tensors_of(content: Content) -> Iterator[torch.Tensor]:
    if isinstance(content.value, TensorContent):
        yield content.value.tensor
    for _, item in content.items:
        yield from _tensors_of(item)

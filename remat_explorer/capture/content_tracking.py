"""Tracing that knows the content of tensors that follow from inputs and buffers, beside their shapes.

A model may read a number, a truth value or a size out of such a tensor. Plain PyTorch would read the same there, so
the trace goes on with it, and remembers what was read (`remat_explorer.capture.input_assumptions`). Nothing is computed
until something is read. What rests on a version of torch is in this file: that a `FakeTensorMode` calls `dispatch`
for every operator, and that a FakeTensor keeps its attributes.

Where the size of a result depends on content, it is the one that plain PyTorch gives for the inputs. `fix_sizes` then
makes the graph static: it gives such operators size, strides and type as further arguments, and a result of another
size is refused.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from remat_explorer.cancellation import raise_if_cancelled
from remat_explorer.capture.fake_tensors import kernel_layout_mode
from remat_explorer.capture.input_assumptions import (
    RANDOM,
    Assumption,
    Content,
    Derivation,
    Derivations,
    DerivedTensor,
    Evaluation,
    ReadKind,
    UnknownContent,
)
from remat_explorer.capture.source_locations import line_of_read
from remat_explorer.capture.trace_errors import side_effect_error
from remat_explorer.errors import ExecutionError

aten = torch.ops.aten
NAMESPACE = "remat_explorer"
_SIZED = (
    aten.nonzero.default,
    aten.masked_select.default,
    aten.index.Tensor,
    aten.repeat_interleave.Tensor,
    aten.bincount.default,
    aten._unique.default,
    aten._unique2.default,
    aten.unique_consecutive.default,
    aten.unique_dim.default,
    aten._ctc_loss.Tensor,
    aten._grouped_mm.default,  # its size is static, but torch's fake kernel refuses most types
)
_ATTRIBUTE = "remat_explorer_content"
_DEVICE = torch.ops.prim.device.default
_READS = {
    aten._local_scalar_dense.default,
    aten.item.default,
    aten.is_nonzero.default,
    aten.equal.default,
    aten.allclose.default,
}
_SOMETHING = UnknownContent("what the model computes from its parameters")
_OF_SHAPE_ALONE: dict[Any, Any] = {  # what the result is full of
    aten.zeros_like.default: 0,
    aten.new_zeros.default: 0,
    aten.ones_like.default: 1,
    aten.new_ones.default: 1,
    aten.empty_like.default: 0,
    aten.new_empty.default: 0,
}
_COMPARISONS: dict[Any, Any] = {  # with a number p, of a number from 0 up to 1: what is known, or None
    aten.lt.Scalar: lambda p: False if p <= 0 else True if p >= 1 else None,
    aten.ge.Scalar: lambda p: True if p <= 0 else False if p >= 1 else None,
    aten.le.Scalar: lambda p: False if p < 0 else True if p >= 1 else None,
    aten.gt.Scalar: lambda p: True if p < 0 else False if p >= 1 else None,
}


class ContentTracker:
    """What is known of the tensors of one trace, and what was read out of them.

    ``evaluation`` computes contents for the inputs that were given; ``refused`` says why the last read was refused.
    """

    def __init__(self, evaluation: Evaluation, on_cuda: bool = False) -> None:
        self._evaluation, self.contents = evaluation, Derivations()
        self._read: dict[tuple[Any, str], Assumption] = {}
        self.refused: UnknownContent | None = None
        self.mode = kernel_layout_mode(on_cuda)
        self._plain = self.mode.dispatch
        self.mode.dispatch = self._dispatch  # type: ignore[method-assign]

    def empty(
        self, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """A new FakeTensor."""
        with self.mode:
            return torch.empty_strided(size, stride, dtype=dtype, device=device)

    def read_size(self, derivation: Derivation) -> list[torch.Tensor]:
        """The results of a derivation, whose size the trace now rests on."""
        results = self._evaluation.results(derivation)
        self._assume(derivation, "size", tuple(tuple(result.shape) for result in results))
        return results

    def read_value(self, derivation: Derivation) -> Any:
        """The number or truth value that a derivation gives, on which the trace now rests."""
        value = self._evaluation.results(derivation)[0]
        self._assume(derivation, "value", value)
        return value

    def set_content(self, fake: torch.Tensor, content: Content | UnknownContent) -> torch.Tensor:
        """Say what a FakeTensor contains."""
        setattr(fake, _ATTRIBUTE, content)
        return fake

    @property
    def assumptions(self) -> list[Assumption]:
        """What was read, each once."""
        return list(self._read.values())

    def stop(self) -> None:
        """Let the mode know layouts alone from now on, and let go of buffers and inputs: the trace is over."""
        self.mode.dispatch = self._plain  # type: ignore[method-assign]

    def reset(self) -> None:
        """Begin a trace anew."""
        self._read.clear()
        self.refused = None

    def _dispatch(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is _DEVICE:  # two of five calls, and no operator
            return self._plain(func, types, args, kwargs or {})
        raise_if_cancelled()
        kwargs = dict(kwargs or {})
        if not isinstance(func, torch._ops.OpOverload):
            return self._plain(func, types, args, kwargs)
        if func is aten._linalg_check_errors.default:  # in some versions nothing in the graph tells of it
            raise side_effect_error(str(func))
        contents: Any = None
        unknown = self._unknown(args) or self._unknown(kwargs.values())
        if unknown is None or func in _SIZED:  # most calls depend on parameters, and need no more
            contents = pytree.tree_map_only(torch.Tensor, self._content, (tuple(args), kwargs))
        if func in _READS:
            if unknown is None:
                return self.read_value(self.contents.derivation(func, *contents))
            self.refused = unknown
        elif func in _SIZED and not any(isinstance(leaf, torch.SymInt) for leaf in pytree.tree_leaves((args, kwargs))):
            found = _SIZED_RESULTS.get(func, _sized_by_content)(self, func, args, contents)
            if found is not None:
                return found
        result = self._plain(func, types, args, kwargs)
        if result is NotImplemented:
            return result
        self._tell(func, args, contents, unknown, result)
        return result

    def _unknown(self, values: Iterable[Any]) -> UnknownContent | None:
        """The first content among arguments of a call that is not known."""
        for value in values:
            if isinstance(value, torch.Tensor):
                found = self._content(value)
            elif isinstance(value, list | tuple):
                found = self._unknown(value)
            else:
                continue
            if isinstance(found, UnknownContent):
                return found
        return None

    def _content(self, tensor: torch.Tensor) -> Content | UnknownContent:
        found = getattr(tensor, _ATTRIBUTE, None)
        if found is not None:
            return found
        if type(tensor) is not torch.Tensor or tensor.requires_grad or tensor.device.type == "meta":
            return _SOMETHING
        return self.contents.constant(tensor)

    def _tell(self, func: Any, args: Sequence[Any], contents: Any, unknown: UnknownContent | None, result: Any) -> None:
        """Say what the results of a call contain."""
        leaves = [result] if isinstance(result, torch.Tensor) else pytree.tree_leaves(result)
        tensors = [(place, leaf) for place, leaf in enumerate(leaves) if isinstance(leaf, FakeTensor)]
        if not tensors:
            return
        if torch.Tag.nondeterministic_seeded in func.tags:
            unknown = UnknownContent(RANDOM.reason, uniform=func in (aten.rand.default, aten.uniform.default))
        elif unknown is not None and func in _OF_SHAPE_ALONE:
            self._tell_full(tensors[0][1], _OF_SHAPE_ALONE[func])
            return
        elif unknown is not None and unknown.uniform:
            known = _COMPARISONS[func](args[1]) if func in _COMPARISONS else None
            if known is not None:
                self._tell_full(tensors[0][1], known)
                return
            unknown = unknown if func in (aten.detach.default, aten.alias.default, aten.clone.default) else RANDOM
        elif func._schema.is_mutable:
            unknown = unknown or _SOMETHING
            for leaf in pytree.tree_leaves(args):
                if isinstance(leaf, FakeTensor):
                    self.set_content(leaf, unknown)
        derivation = None if unknown else self.contents.derivation(func, *contents)
        for place, tensor in tensors:
            self.set_content(tensor, unknown or DerivedTensor(derivation, place))  # type: ignore[arg-type]

    def _tell_full(self, tensor: torch.Tensor, value: Any) -> None:
        options = {"dtype": tensor.dtype, "device": tensor.device}
        self.set_content(
            tensor, DerivedTensor(self.contents.derivation(aten.full.default, (list(tensor.shape), value), options), 0)
        )

    def _assume(self, derivation: Any, kind: ReadKind, value: Any) -> None:
        if (derivation, kind) not in self._read:
            line, text = line_of_read(sys._getframe(1))
            self._read[derivation, kind] = Assumption(derivation, kind, value, line, text)


_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_MADE: dict[Any, Any] = {}


def _with_size(operator: Any) -> Any:
    """The operator that is ``operator`` with size, strides and type of each result for its last keyword arguments."""
    if operator not in _MADE:
        name = operator._schema.name.removeprefix("aten::")
        if operator._schema.overload_name:
            name += f"_{operator._schema.overload_name}"
        takes, gives = str(operator._schema).split("(", 1)[1].split(" -> ")
        results = range(len(operator._schema.returns))
        sizes = ", ".join(f"int[] size{n}, int[] stride{n}, ScalarType dtype{n}" for n in results)
        marks = "" if "*" in takes else "*, "
        _LIBRARY.define(f"{name}({takes.removesuffix(')')}, {marks}{sizes}) -> {gives}")
        _LIBRARY.impl(name, _checked(operator), "CompositeExplicitAutograd")
        torch.library.register_fake(f"{NAMESPACE}::{name}", _empty, lib=_LIBRARY)
        _MADE[operator] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return _MADE[operator]


def fix_sizes(module: GraphModule) -> None:
    """Let every operator of ``_SIZED`` in the graph give the size that it had when it was traced."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in _SIZED and _depends_on_content(node):
            node.target = _with_size(node.target)
            for number, result in enumerate(pytree.tree_leaves(node.meta["val"])):
                layout = (list(result.shape), list(result.stride()), result.dtype)
                named = zip(("size", "stride", "dtype"), layout, strict=True)
                node.kwargs = {**node.kwargs, **{f"{name}{number}": part for name, part in named}}


def _depends_on_content(node: Node) -> bool:
    if node.target is aten._grouped_mm.default:
        return node.meta["val"].dtype != torch.bfloat16
    if node.target is not aten.index.Tensor:
        return True
    indices: Any = node.args[1]
    return any(index is not None and index.meta["val"].dtype in (torch.bool, torch.uint8) for index in indices)


def _layouts(kwargs: dict[str, Any]) -> list[tuple[list[int], list[int], torch.dtype]]:
    """Take size, strides and type of each result out of the keyword arguments."""
    count = sum(name.startswith("size") for name in kwargs)
    return [
        (list(kwargs.pop(f"size{n}")), list(kwargs.pop(f"stride{n}")), kwargs.pop(f"dtype{n}")) for n in range(count)
    ]


def _checked(operator: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        layouts = _layouts(kwargs)
        results = operator(*args, **kwargs)
        for result, (size, _, _) in zip(pytree.tree_leaves(results), layouts, strict=True):
            if list(result.shape) != list(size):
                raise ExecutionError(
                    f"{operator._schema.name.removeprefix('aten::')} gives a result of shape {list(result.shape)}, but "
                    f"the plan was made for {size}: capture again, with inputs like these"
                )
        return results

    return run


def _empty(*args: Any, **kwargs: Any) -> Any:
    """What it gives without content."""
    device = args[0].device
    results = [torch.empty_strided(s, strides, dtype=d, device=device) for s, strides, d in _layouts(kwargs)]
    return tuple(results) if len(results) > 1 else results[0]


_MASKS = (torch.bool, torch.uint8)


def _sized_by_content(tracker: ContentTracker, operator: Any, args: Any, contents: Any) -> Any:
    """The results of a call whose size depends on all of its arguments, or None if one of those is unknown."""
    if unknown := _unknown(contents):
        tracker.refused = unknown
        return None
    derivation = tracker.contents.derivation(operator, *contents)
    results = tracker.read_size(derivation)
    fakes = [tracker.empty(r.shape, r.stride(), r.dtype, r.device) for r in results]
    for place, fake in enumerate(fakes):
        tracker.set_content(fake, DerivedTensor(derivation, place))
    return tuple(fakes) if len(operator._schema.returns) > 1 else fakes[0]


def _indexed(tracker: ContentTracker, operator: Any, args: Any, contents: Any) -> Any:
    """Entries that masks pick: as by the numbers of those entries."""
    source, indices = args
    masks = [index is not None and index.dtype in _MASKS for index in indices]
    if not any(masks):
        return None
    known = contents[0][1]
    if unknown := _unknown([content for content, is_mask in zip(known, masks, strict=True) if is_mask]):
        tracker.refused = unknown
        return None
    numbers: list[Any] = []
    for index, content, is_mask in zip(indices, known, masks, strict=True):
        if is_mask:
            count = _count(tracker, content)
            numbers += [tracker.empty([count], [1], torch.int64, index.device) for _ in index.shape]
        else:
            numbers.append(index)
    with tracker.mode:
        result = operator(source, numbers)
    return _known(tracker, operator, contents, result)


def _selected(tracker: ContentTracker, operator: Any, args: Any, contents: Any) -> Any:
    source, mask = args
    if unknown := _unknown(contents[0][1]):
        tracker.refused = unknown
        return None
    shape = list(torch.broadcast_shapes(source.shape, mask.shape))
    spread = DerivedTensor(tracker.contents.derivation(aten.expand.default, (contents[0][1], shape), {}), 0)
    result = tracker.empty([_count(tracker, spread)], [1], source.dtype, source.device)
    return _known(tracker, operator, contents, result)


def _aligned(tracker: ContentTracker, operator: Any, args: Any, contents: Any) -> Any:
    """The CTC loss, and its table of alignments, which is as wide as the longest target."""
    probabilities, _, _, lengths, *_ = args
    if unknown := _unknown(contents[0][3]):
        tracker.refused = unknown
        return None
    longest = DerivedTensor(tracker.contents.derivation(aten.max.default, (contents[0][3],), {}), 0)
    width = (
        2 * int(tracker.read_value(tracker.contents.derivation(aten._local_scalar_dense.default, (longest,), {}))) + 1
    )
    time, batch = probabilities.shape[0], lengths.shape[0]
    kind = (probabilities.dtype, probabilities.device)
    losses = tracker.empty([batch], [1], *kind)
    table = tracker.empty([batch, time, width], [time * width, width, 1], *kind)
    return tuple(tracker.set_content(result, _unknown(contents) or _SEVERAL) for result in (losses, table))


def _multiplied_in_groups(tracker: ContentTracker, operator: Any, args: Any, contents: Any) -> Any:
    """Products of the groups that offsets mark; rows begin at multiples of 16 bytes."""
    first, second, *others = args
    if first.dtype == torch.bfloat16:
        return None
    if first.dim() == 2 and second.dim() == 2:
        groups = others[0].shape[0]
        size = [groups, first.shape[0], second.shape[1]]
    elif first.dim() == 2 or second.dim() == 2:
        size = [first.shape[-2], second.shape[-1]]
    else:
        size = [first.shape[0], first.shape[1], second.shape[-1]]
    entries = 16 // first.element_size()
    row = math.ceil(size[-1] / entries) * entries
    strides = [row, 1] if len(size) == 2 else [size[1] * row, row, 1]
    return tracker.set_content(tracker.empty(size, strides, first.dtype, first.device), _unknown(contents) or _SEVERAL)


_SIZED_RESULTS: dict[Any, Callable[[ContentTracker, Any, Any, Any], Any]] = {
    aten.index.Tensor: _indexed,
    aten.masked_select.default: _selected,
    aten._ctc_loss.Tensor: _aligned,
    aten._grouped_mm.default: _multiplied_in_groups,
}
_SEVERAL = UnknownContent("a loss or a product of inputs alone")


def _known(tracker: ContentTracker, operator: Any, contents: Any, result: torch.Tensor) -> torch.Tensor:
    if unknown := _unknown(contents):
        return tracker.set_content(result, unknown)
    return tracker.set_content(result, DerivedTensor(tracker.contents.derivation(operator, *contents), 0))


def _unknown(contents: Any) -> UnknownContent | None:
    return next((leaf for leaf in pytree.tree_leaves(contents) if isinstance(leaf, UnknownContent)), None)


def _count(tracker: ContentTracker, mask: Content) -> int:
    """How many entries of a mask are true."""
    (numbers,) = tracker.read_size(tracker.contents.derivation(aten.nonzero.default, (mask,), {}))
    return numbers.shape[0]

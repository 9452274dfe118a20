"""Tracing that knows the content of tensors that follow from inputs and buffers, beside their shapes.

A model may read a number, a truth value or a size out of such a tensor. Plain PyTorch would read the same there, so
the trace goes on with it, and remembers what was read (`remat_explorer.capture.joint.assumptions`). Nothing is computed
until something is read. What rests on a version of torch is in this file: that a `FakeTensorMode` calls `dispatch`
for every operator, and that a FakeTensor keeps its attributes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from remat_explorer.cancellation import raise_if_cancelled
from remat_explorer.capture.joint.assumptions import Assumption, Kind
from remat_explorer.capture.joint.content import RANDOM, Content, Contents, Derivation, Evaluation, Part, Unknown
from remat_explorer.capture.joint.explain import does_more
from remat_explorer.capture.joint.kernel_layouts import kernel_layouts
from remat_explorer.capture.joint.known_sizes import SIZED
from remat_explorer.capture.joint.sized_results import SIZED_RESULTS, sized_by_content
from remat_explorer.capture.joint.source_lines import reading_line

aten = torch.ops.aten
_ATTRIBUTE = "remat_explorer_content"
_DEVICE = torch.ops.prim.device.default
_READS = {
    aten._local_scalar_dense.default,
    aten.item.default,
    aten.is_nonzero.default,
    aten.equal.default,
    aten.allclose.default,
}
_SOMETHING = Unknown("what the model computes from its parameters")
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


class Knowledge:
    """What is known of the tensors of one trace, and what was read out of them.

    Args:
        evaluation: computes contents for the inputs that were given.
        on_cuda: whether tensors stand for those of a CUDA device that is not there.

    Attributes:
        mode: the FakeTensorMode to trace with.
        contents: from what tensors follow.
        refused: why the last read was refused, or None.
    """

    def __init__(self, evaluation: Evaluation, on_cuda: bool = False) -> None:
        self._evaluation, self.contents = evaluation, Contents()
        self._read: dict[tuple[Any, str], Assumption] = {}
        self.refused: Unknown | None = None
        self.mode = kernel_layouts(on_cuda)
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

    def know(self, fake: torch.Tensor, content: Content | Unknown) -> torch.Tensor:
        """Say what a FakeTensor contains."""
        setattr(fake, _ATTRIBUTE, content)
        return fake

    @property
    def assumptions(self) -> list[Assumption]:
        """What was read, each once."""
        return list(self._read.values())

    def rest(self) -> None:
        """Let the mode know layouts alone from now on, and let go of buffers and inputs: the trace is over."""
        self.mode.dispatch = self._plain  # type: ignore[method-assign]

    def forget(self) -> None:
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
            raise does_more(str(func))
        contents: Any = None
        unknown = self._unknown(args) or self._unknown(kwargs.values())
        if unknown is None or func in SIZED:  # most calls depend on parameters, and need no more
            contents = pytree.tree_map_only(torch.Tensor, self._content, (tuple(args), kwargs))
        if func in _READS:
            if unknown is None:
                return self.read_value(self.contents.derivation(func, *contents))
            self.refused = unknown
        elif func in SIZED and not any(isinstance(leaf, torch.SymInt) for leaf in pytree.tree_leaves((args, kwargs))):
            found = SIZED_RESULTS.get(func, sized_by_content)(self, func, args, contents)
            if found is not None:
                return found
        result = self._plain(func, types, args, kwargs)
        if result is NotImplemented:
            return result
        self._tell(func, args, contents, unknown, result)
        return result

    def _unknown(self, values: Iterable[Any]) -> Unknown | None:
        """The first content among arguments of a call that is not known."""
        for value in values:
            if isinstance(value, torch.Tensor):
                found = self._content(value)
            elif isinstance(value, list | tuple):
                found = self._unknown(value)
            else:
                continue
            if isinstance(found, Unknown):
                return found
        return None

    def _content(self, tensor: torch.Tensor) -> Content | Unknown:
        found = getattr(tensor, _ATTRIBUTE, None)
        if found is not None:
            return found
        if type(tensor) is not torch.Tensor or tensor.requires_grad or tensor.device.type == "meta":
            return _SOMETHING
        return self.contents.constant(tensor)

    def _tell(self, func: Any, args: Sequence[Any], contents: Any, unknown: Unknown | None, result: Any) -> None:
        """Say what the results of a call contain."""
        leaves = [result] if isinstance(result, torch.Tensor) else pytree.tree_leaves(result)
        tensors = [(place, leaf) for place, leaf in enumerate(leaves) if isinstance(leaf, FakeTensor)]
        if not tensors:
            return
        if torch.Tag.nondeterministic_seeded in func.tags:
            unknown = Unknown(RANDOM.reason, uniform=func in (aten.rand.default, aten.uniform.default))
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
                    self.know(leaf, unknown)
        derivation = None if unknown else self.contents.derivation(func, *contents)
        for place, tensor in tensors:
            self.know(tensor, unknown or Part(derivation, place))  # type: ignore[arg-type]

    def _tell_full(self, tensor: torch.Tensor, value: Any) -> None:
        options = {"dtype": tensor.dtype, "device": tensor.device}
        self.know(tensor, Part(self.contents.derivation(aten.full.default, (list(tensor.shape), value), options), 0))

    def _assume(self, derivation: Any, kind: Kind, value: Any) -> None:
        if (derivation, kind) not in self._read:
            line, text = reading_line(sys._getframe(1))
            self._read[derivation, kind] = Assumption(derivation, kind, value, line, text)

"""Another implementation of an operation: the calls that take the place of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from remat_explorer.capture.operations.program import Call


@dataclass(frozen=True, eq=False)
class CapturedImplementation:
    """An implementation that replaces calls of an operation, mostly one, with the getitems that pick its outputs.

    What else the operation does, such as a ReLU that overwrites the result, stays.

    Attributes:
        kind: a key of `remat_explorer.capture_options.KINDS`.
        name: as people read it.
        main: the call that is replaced.
        steps: the calls instead; what they do not make, the implementation does not write.
        tolerance: largest difference of a result from that of PyTorch's own kernel, relative to the largest entry;
            0 if they are equal bit for bit.
        over: the argument that ``steps_over`` overwrite, or None.
        steps_over: the calls that write the first output over it; that one is the first that they make.
        launches: how often a kernel starts, for predicted costs.
        gpu_launches: the same on a GPU, if there are kernels of our own for it; 0 if not.
        again: calls of other operations that run within it, for predicted costs.
        workspace: bytes beside the results, as far as shapes tell; a profile measures it.
        arithmetic: floating-point operations, relative to those of the call it replaces.
        portion: of the batch that is computed at a time; what a kernel needs beside that grows with it.
        also: further kinds that it is of; it is for those who want all of them.
        parts: of one that replaces several calls, the ways that replace each; ``main`` and ``steps_over`` are then
            those of the part that overwrites, and ``steps`` are empty.
    """

    kind: str
    name: str
    main: Node
    steps: tuple[Call, ...]
    tolerance: float = 0.0
    over: Node | None = None
    steps_over: tuple[Call, ...] = ()
    launches: int = 1
    gpu_launches: int = 0
    again: tuple[Node, ...] = ()
    workspace: int = 0
    arithmetic: float = 1.0
    portion: float = 1.0
    also: tuple[str, ...] = ()
    parts: tuple[CapturedImplementation, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds that it is of, its own first."""
        return self.kind, *self.also

    @property
    def each(self) -> tuple[CapturedImplementation, ...]:
        """What replaces one call each: its parts, or itself."""
        return self.parts or (self,)


def step(node: Node, target: Callable[..., Any], *arguments: Any) -> Call:
    """A call that makes what ``node`` stands for from other arguments than the node's."""
    return Call(node, target, arguments=arguments)

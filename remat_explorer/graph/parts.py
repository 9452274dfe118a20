"""What a graph is made of: values, and operations with their implementations; and a graph as functions read it.

`Contents` are the fields of a `Graph` and the arrays that follow from them. `Graph` imports the functions behind its
methods, so they read its contents, and cannot import it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from remat_explorer.capture_options import CaptureOptions
from remat_explorer.entry_checks import require_bytes, require_text
from remat_explorer.errors import GraphError
from remat_explorer.operation_details import Details


class Contents(Protocol):
    """A graph as it is read. What each property means is said in `Graph`."""

    @property
    def name(self) -> str: ...

    @property
    def values(self) -> tuple[Value, ...]: ...

    @property
    def operations(self) -> tuple[Operation, ...]: ...

    @property
    def resident_bytes(self) -> int: ...

    @property
    def options(self) -> CaptureOptions | None: ...

    @property
    def captured_structure(self) -> str | None: ...

    @cached_property
    def value_bytes(self) -> np.ndarray: ...

    @cached_property
    def persistent(self) -> np.ndarray: ...

    @cached_property
    def producer(self) -> np.ndarray: ...

    @cached_property
    def costs(self) -> np.ndarray: ...

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]: ...

    @cached_property
    def is_backward(self) -> np.ndarray: ...

    @cached_property
    def has_choices(self) -> bool: ...

    @cached_property
    def total_cost(self) -> float: ...


Phase = Literal["forward", "backward"]


@dataclass(frozen=True)
class Value:
    """One storage: its bytes, and whether it stays from its first computation to the end."""

    name: str
    bytes: int
    persistent: bool = False

    def __post_init__(self) -> None:
        require_text(self.name, "the name of a value", GraphError)
        require_bytes(self.bytes, f"the size of value {self.name!r}", GraphError)


@dataclass(frozen=True)
class Implementation:
    """One way to run an operation: value ids read and written, cost (seconds or FLOPs), workspace bytes.

    ``overwrites`` is the one input whose storage an output takes over wherever that input dies: where it is not read
    again before it is computed again. Where it lives on, the output has a storage of its own, unless the implementation
    is ``in_place``: then it may run only where that input dies, and another one writes the same elsewhere.
    ``tolerance`` is the largest error that the outputs have relative to the default implementation's: 0 where they are
    bit-equal. ``kinds`` are those that it is of, such as "masks"; it may be chosen where all of them may, and the
    default has none.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    cost: float
    workspace: int = 0
    name: str = "default"
    overwrites: int | None = None
    tolerance: float = 0.0
    kinds: tuple[str, ...] = ()
    in_place: bool = False

    @property
    def kind(self) -> str:
        """The first of its kinds, which says what it is for; "" where it has none."""
        return self.kinds[0] if self.kinds else ""


@dataclass(frozen=True)
class Operation:
    """A node of the training graph, in the forward or the backward pass.

    An ``optional`` one has no stage of its own: it runs where an implementation reads what it writes, or never.

    ``details`` say where it comes from, and make no other graph of it: neither equality nor fingerprints see them.
    """

    name: str
    phase: Phase
    implementations: tuple[Implementation, ...]
    optional: bool = False
    details: Details | None = field(default=None, compare=False)

    @property
    def default(self) -> Implementation:
        """The first implementation: the one that plain execution uses."""
        return self.implementations[0]


def operation(
    name: str,
    phase: Phase,
    inputs: Iterable[int],
    outputs: Iterable[int],
    cost: float,
    workspace: int = 0,
    overwrites: int | None = None,
    details: Details | None = None,
) -> Operation:
    """An operation with a single implementation."""
    way = Implementation(tuple(inputs), tuple(outputs), cost, workspace, overwrites=overwrites)
    return Operation(name, phase, (way,), details=details)

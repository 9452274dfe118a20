"""What the functions behind `Graph`'s methods read: its fields, and the arrays that follow from them.

`Graph` imports those functions, so they cannot import it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np

from remat_explorer.capture_options import CaptureOptions
from remat_explorer.graph.parts import Operation, Value


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
    def readers(self) -> tuple[tuple[int, ...], ...]: ...

    @cached_property
    def is_backward(self) -> np.ndarray: ...

    @cached_property
    def has_choices(self) -> bool: ...

    @cached_property
    def total_cost(self) -> float: ...

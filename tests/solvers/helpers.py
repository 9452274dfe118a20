"""Small helpers: to wait for other processes, to use what may be None, and to write small graphs."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from remat_explorer.graph import Graph, Phase, Value, operation

T = TypeVar("T")


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether ``condition`` came true in time; it is not asked again once it has."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def present(value: T | None) -> T:
    """What must not be None."""
    assert value is not None
    return value


def simple_graph(
    reads: Sequence[Sequence[int]],
    sizes: Sequence[int] = (),
    costs: Sequence[float] = (),
    workspace: Mapping[int, int] | None = None,
    phases: str = "",
    name: str = "small",
) -> Graph:
    """One value per operation, v0, v1 and so on, sizes and costs of 1 unless given; phases are f and b."""
    n = len(reads)
    values = tuple(Value(f"v{k}", size) for k, size in enumerate(sizes or [1] * n))
    letters: dict[str, Phase] = {"f": "forward", "b": "backward"}
    rows = zip(values, phases or "f" * n, reads, costs or [1] * n, strict=True)
    nodes = (
        operation(value.name, letters[phase], inputs, [k], cost, (workspace or {}).get(k, 0))
        for k, (value, phase, inputs, cost) in enumerate(rows)
    )
    return Graph(name, values, tuple(nodes))

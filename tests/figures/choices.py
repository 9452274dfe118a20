"""A small graph with alternative implementations, for tests that need no torch: a mask, and two more algorithms."""

from typing import Any

import remat_explorer as rx
from remat_explorer.graph import Implementation, Operation, Value
from remat_explorer.operation_details import Details

MASK = 8  # times smaller than what it stands for


def chain_with_choices() -> rx.Graph:
    """conv, relu and a sum, forward and backward: relu's gradient from its output or from a mask, conv's by two ways.

    Values: x0 conv, x1 relu, x2 mask, x3 sum, x4 gradient of the sum, x5 gradient of relu, x6 gradient of the weight.
    """
    sizes = {"conv": 800, "relu": 800, "mask": 800 // MASK, "wide": 2400, "wide_backward": 800, "relu_backward": 800}
    values = (*(Value(name, size) for name, size in sizes.items()), Value("weight_gradient", 40, persistent=True))

    def way(inputs: list[int], outputs: list[int], cost: float, *more: Any, kind: str = "") -> Implementation:
        workspace, name, tolerance = more if more else (0, "default", 0.0)
        return Implementation(
            tuple(inputs), tuple(outputs), cost, workspace, name, None, tolerance, (kind,) if kind else ()
        )

    conv = Details(module="conv", operator="conv2d")
    gradient = Details(module="conv", operator="conv2d_weight_gradient")
    operations = (
        Operation(
            "conv",
            "forward",
            (way([], [0], 4.0), way([], [0], 3.0, 1600, "native", 1e-6, kind="algorithms")),
            details=conv,
        ),
        Operation("relu", "forward", (way([0], [1], 1.0),), details=Details(module="relu", operator="relu")),
        Operation("make mask", "forward", (way([1], [2], 1.0),), optional=True),
        Operation("wide", "forward", (way([1], [3], 2.0),)),
        Operation("wide backward", "backward", (way([3], [4], 2.0),)),
        Operation(
            "relu backward",
            "backward",
            (way([4, 1], [5], 1.0), way([4, 2], [5], 2.0, 0, "from bits", 0.0, kind="masks")),
            details=Details(module="relu", operator="relu_backward"),
        ),
        Operation(
            "conv gradient",
            "backward",
            (way([5], [6], 4.0), way([5], [6], 5.0, 10, "in chunks of 1", 1e-6, kind="chunks")),
            details=gradient,
        ),
    )
    return rx.Graph("choices", values, operations)

"""The one line that brings a budget into torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch.fx import GraphModule

from remat_explorer.errors import UnknownNameError
from remat_explorer.runtime.compiled.metering import metered
from remat_explorer.runtime.compiled.partitioner import Partitioner, PlannedGraph, partitioner
from remat_explorer.solvers.memory.smallest_known import Budget

BACKENDS = ("aot_eager",)


class BudgetedBackend:
    """A back end of torch.compile that keeps to a budget.

    Attributes:
        budget, strategy, time_limit: as for `compile`.
        graphs: what was compiled for training, in order: one for each combination of sizes and modes that came.
    """

    def __init__(self, budget: Budget, strategy: str, time_limit: float) -> None:
        self.budget, self.strategy, self.time_limit = budget, strategy, time_limit
        self.graphs: list[PlannedGraph] = []

    def __call__(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile one graph, as torch.compile asks for it."""
        parts = partitioner(self.budget, self.strategy, time_limit=self.time_limit, in_place=True)
        made = self._compiler(parts)(module, inputs)
        self.graphs += parts.planned
        return made

    @staticmethod
    def _compiler(parts: Partitioner) -> Callable[..., Any]:
        def planned() -> PlannedGraph | None:
            return parts.planned[-1] if parts.planned else None

        return aot_autograd(
            fw_compiler=metered(boxed_nop, planned, backward=False),
            bw_compiler=metered(boxed_nop, planned, backward=True),
            inference_compiler=boxed_nop,
            partition_fn=parts,
            keep_inference_input_mutations=True,
        )


def compile(
    model: nn.Module,
    budget: Budget,
    strategy: str = "optimal",
    *,
    backend: str = "aot_eager",
    time_limit: float = 60.0,
) -> Any:
    """`torch.compile` of a model whose training steps keep to a memory budget.

    The joint graph that AOTAutograd traces is solved, and its forward and backward graph follow the schedule: our
    order, with what is recomputed in the backward graph. Gradients are bit for bit those of the model, dropout
    included: what draws random numbers and is repeated saves the generator's state and repeats from it.

    The attribute ``backend`` of what is returned has a `PlannedGraph` for each graph in ``graphs``: its solution with
    the lower bound, the predicted peak, and the peak that was measured in the first step.

    The model is compiled with ``fullgraph=True`` and ``dynamic=False``: a graph break is an error, since each graph
    would have the whole budget while it waits for the others, and inputs of other sizes are solved anew, with
    percentages of what they take. In evaluation, and where gradients are switched off, nothing is planned.

    Args:
        model: what to train.
        budget: bytes, "2 GiB", "60%" of what keeping everything takes, or "smallest"; parameters, inputs, gradients and
            gradients of the outputs are included, an optimizer's state is not.
        strategy, time_limit: as for `remat_explorer.solve`; the search runs in the first step.
        backend: "aot_eager", which runs the operations as they are.

    Raises:
        UnknownNameError: if there is no such back end. In the first step torch.compile raises an error of its own
            with ours in its text: if no schedule fits, or the graph has no plan.

    >>> layers = [layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.Dropout(0.1), nn.Tanh())]
    >>> compiled = compile(nn.Sequential(*layers), budget="80%")
    >>> compiled(torch.ones(256, 32)).sum().backward()
    >>> (graph,) = compiled.backend.graphs
    >>> graph.measured_peak <= graph.budget
    True
    """
    if backend not in BACKENDS:
        raise UnknownNameError("back end", str(backend), BACKENDS)
    made = BudgetedBackend(budget, strategy, time_limit)
    compiled = torch.compile(model, backend=made, fullgraph=True, dynamic=False)
    vars(compiled)["backend"] = made  # an assignment would go to the model
    return compiled

"""The one line that brings a budget into torch.compile."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch import config
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.compile_fx import compile_fx
from torch._inductor.virtualized import V
from torch.fx import GraphModule

from remat_explorer.capture.step.kernels import kernels_of_plain_pytorch
from remat_explorer.capture.step.sharding import shard_groups
from remat_explorer.entry_checks import Seconds, require_arguments
from remat_explorer.errors import ExecutionError, UnknownNameError
from remat_explorer.quantities import exact_bytes
from remat_explorer.runtime.compiled.fusion import FusionWithinBudget
from remat_explorer.runtime.compiled.partitioner import Partitioner, PlannedGraph
from remat_explorer.runtime.compiled.trial import trial_peak
from remat_explorer.runtime.compiled.workspace import measured_workspace, with_workspace, workspace_of
from remat_explorer.solvers.memory.minimum_budget import Budget, require_budget

BACKENDS = ("aot_eager", "inductor")
REPLANS = 3  # before the smallest plan, where the measured peak exceeds the budget


class BudgetedBackend:
    """A back end of torch.compile that keeps to a budget.

    Attributes:
        budget, strategy, time_limit: as for `compile`.
        graphs: what was compiled for training, in order: one for each combination of sizes and modes that came.
    """

    def __init__(self, budget: Budget, strategy: str, time_limit: float, backend: str) -> None:
        self.budget, self.strategy, self.time_limit, self.backend = budget, strategy, time_limit, backend
        self.graphs: list[PlannedGraph] = []

    def __call__(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile one graph, as torch.compile asks for it; again for less while a trial step exceeds the budget."""
        budget, best = self.budget, None
        asked, at_budget, measured, unforeseen = 0, None, None, 0
        in_place = self.backend == "aot_eager"
        for turn in itertools.count(1):
            parts = Partitioner(budget, self.strategy, self.time_limit, in_place, turn > 1, measured)
            fusion = None if in_place else FusionWithinBudget(parts, asked or None, unforeseen)
            try:
                run = _compiled(parts, fusion, module, inputs)
            except ExecutionError:
                if best is None:
                    raise
                break  # this strategy has no schedule for less
            if not parts.planned:
                return run  # no gradients are wanted
            graph = parts.planned[-1]
            asked = asked or graph.budget
            if graph.solution.budget == asked:
                at_budget = graph.solution
            graph.measured_peak = trial_peak(run, inputs) + graph.solution.graph.resident_bytes
            graph.budget, graph.turns = asked, turn
            if fusion is not None and fusion.peak is not None:
                graph.fused_peak = fusion.peak
                unforeseen = 0 if measured is None else max(0, graph.measured_peak - fusion.peak)
            if best is None or graph.measured_peak < (best[1].measured_peak or 0):
                best = run, graph
            excess = graph.measured_peak - asked
            if excess <= 0 or (isinstance(budget, int) and graph.solution.budget > budget) or turn > REPLANS + 1:
                break  # it keeps to the budget, or there is no smaller plan
            if turn == 1 and parts.program is not None and graph.solution.plan is not None:
                if fusion is None:
                    budget, measured = asked, measured_workspace(graph.solution.plan, parts.program).of
                else:
                    budget = asked - max(0, (graph.fused_peak or 0) - graph.predicted_peak)
                    measured = partial(with_workspace, workspace=workspace_of(parts.program, fusion.called))
            elif turn <= REPLANS:
                budget = max(1, min(graph.solution.budget, graph.predicted_peak) - excess)
            else:
                budget = 1  # the smallest plan
        assert best is not None  # the first turn has made one, or raised
        run, graph = best
        graph.at_budget = at_budget
        if not graph.within_budget:
            warnings.warn(
                f"compiled code takes {exact_bytes(graph.measured_peak or 0)}, above the budget of "
                f"{exact_bytes(graph.budget)}, planned for {exact_bytes(graph.solution.budget)}; give a larger budget",
                stacklevel=2,
            )
        self.graphs.append(graph)
        return run


@config.patch(force_non_lazy_backward_lowering=True)
def _compiled(parts: Partitioner, fusion: FusionWithinBudget | None, module: GraphModule, inputs: Sequence[Any]) -> Any:
    """One graph, by Inductor with choices of its own, or by running the operations as they are."""
    if fusion is None:
        aot = aot_autograd(
            fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=parts, keep_inference_input_mutations=True
        )
        with kernels_of_plain_pytorch():
            return aot(module, inputs)
    if not torch.is_grad_enabled() or not any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        return compile_fx(module, inputs)
    # C++ kernels in a row make one function, before which all of their results are allocated; here each is its own.
    with V.set_choices_handler(fusion), mock.patch.object(CppScheduling, "MAX_FUSED_KERNEL_ARGS_NUM", 0):
        return compile_fx(module, inputs, config_patches=fusion.settings())


def compile(
    model: nn.Module,
    budget: Budget,
    strategy: str = "optimal",
    *,
    backend: str = "aot_eager",
    time_limit: Seconds = 60.0,
) -> Any:
    """`torch.compile` of a model whose training steps keep to a memory budget.

    The joint graph that AOTAutograd traces is solved, and its forward and backward graph follow the schedule: our
    order, with what is recomputed in the backward graph. With "aot_eager" gradients are bit for bit those of the model,
    dropout included: what draws random numbers and is repeated saves the generator's state and repeats from it.

    With "inductor" an operation is what Inductor is expected to run in one kernel. It asks before each fusion, and one
    that would take more memory than the budget has room for, or that stands against the plan's order, is refused; at
    the end its kernels run in the plan's order. Its passes that order for memory and locality, change layouts or keep
    memory for reuse are off.

    Costs are predicted, and so is the peak, without the workspace of kernels. So a trial step of the compiled code is
    measured, with zeros for inputs. If it exceeds the budget, the workspace is measured, of each operation or of the
    library calls that Inductor leaves, and the step is planned again with that; then for less by the excess. It is
    planned three times again at most, and at last with the smallest plan that is known. A warning says if that was not
    enough.

    The attribute ``backend`` of what is returned has a `PlannedGraph` for each graph in ``graphs``: its solution, the
    predicted and the measured peak, and how far apart they are. Its ``lower_bound`` and ``gap`` are for the budget that
    was asked for; those of its solution for the bytes that it was planned for. Both are of the operations that were
    planned, whatever is fused of them.

    The model is compiled with ``fullgraph=True`` and ``dynamic=False``: a graph break is an error, since each graph
    would have the whole budget while it waits for the others, and inputs of other sizes are solved anew, with
    percentages of what they take. In evaluation, and where gradients are switched off, nothing is planned.

    Args:
        model: what to train.
        budget: bytes, "2 GiB", "60%" of what keeping everything takes, or "smallest"; parameters, inputs, gradients and
            gradients of the outputs are included, an optimizer's state is not.
        strategy, time_limit: as for `remat_explorer.solve`; the search runs in the first step.
        backend: "aot_eager", which runs the operations as they are, or "inductor".

    Raises:
        ExecutionError: if the model is sharded by `torch.distributed.fsdp.fully_shard`.
        UnknownNameError: if there is no such back end. In the first step torch.compile raises an error of its own
            with ours in its text: if no schedule fits, or the graph has no plan.

    >>> layers = [layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.Tanh())]
    >>> compiled = compile(nn.Sequential(*layers), budget="80%")
    >>> compiled(torch.ones(256, 32)).sum().backward()
    >>> (graph,) = compiled.backend.graphs
    >>> graph.measured_peak <= graph.budget
    True
    """
    require_arguments(compile, locals())
    require_budget(budget)
    if backend not in BACKENDS:
        raise UnknownNameError("back end", str(backend), BACKENDS)
    if shard_groups(model):
        raise ExecutionError(
            "the model is sharded (fully_shard), whose hooks break what torch.compile traces into several graphs; "
            "rx.rematerialize takes such a model"
        )
    made = BudgetedBackend(budget, strategy, time_limit, backend)
    compiled = torch.compile(model, backend=made, fullgraph=True, dynamic=False)
    vars(compiled)["backend"] = made  # an assignment would go to the model
    return compiled

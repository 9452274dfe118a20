"""The one line that brings a schedule into a training loop."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import nn

from remat_explorer.capture.step.checks import require_capturable
from remat_explorer.capture.step.losses import Loss
from remat_explorer.capture.step.processes import Processes
from remat_explorer.entry_checks import Seconds, require_arguments
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.assumptions.agreement import together
from remat_explorer.runtime.assumptions.plannable import require_plannable
from remat_explorer.runtime.assumptions.surroundings import require_plain_surroundings
from remat_explorer.runtime.loops.beginning import Example, with_counts_as_tensors
from remat_explorer.runtime.recipe import Recipe
from remat_explorer.runtime.rematerialization import Rematerialization
from remat_explorer.runtime.rematerialized import RematerializedModule, rematerialized
from remat_explorer.solution import Solution
from remat_explorer.solvers.base import Progress
from remat_explorer.solvers.memory.minimum_budget import Budget, require_budget
from remat_explorer.solvers.reserved import REQUESTED, require_meaning


def rematerialize(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    budget: Budget | None = None,
    loss: Loss | None = None,
    strategy: str = "optimal",
    solution: Solution | str | Path | None = None,
    *,
    resolve: bool = False,
    optimizer: str | None = None,
    time_limit: Seconds = 60.0,
    solver: str = "highs",
    on_progress: Callable[[Progress], None] | None = None,
    cache: bool = False,
    budget_means: str = REQUESTED,
    retain_graph: bool = False,
) -> RematerializedModule:
    """A drop-in for ``model`` whose training steps stay within a memory budget, with the gradients of plain PyTorch.

    It has the model's class, attributes, parameters and buffers, under the same names; optimizers, gradient clipping
    and accumulation, gradient scaling, `state_dict`, `train()` and `eval()`, `.to(...)` and DistributedDataParallel
    (around it) work as before, and so do Trainer of transformers, Lightning, accelerate and peft (docs/training.md).
    Buffers are updated once, and dropout draws what plain PyTorch would draw. Gradients reach autograd as the plan
    makes them, so that hooks run, and are sent to other processes, while it goes on.

    In evaluation mode, and where gradients are switched off, the model runs as it is. So does ``model`` itself, which
    shares all attributes: an assignment to one is an assignment to the other.

    A plan is for the model as it is in the first step. What forward reads of it, such as attributes, hooks and modes,
    is compared at every step; if it has changed, the step raises an ExecutionError that names it, unless ``resolve`` is
    set or it is a tensor that is no buffer, as a cache is. What a training loop sets up between here and the first
    step, such as autocast, modes, ``config.use_cache`` and an input ``num_items_in_batch``, is planned anew then,
    within ``budget``; set up before, it is planned once.

    Smaller batches and shorter sequences than those of ``args``, such as the last batch of an epoch, take the schedule
    that was found: the step is traced once more, which takes about as long as `remat_explorer.capture`, and the checker
    looks at the schedule with their sizes; where keeping everything fits, nothing is recomputed. Where operations are
    others for another size, as in a loop over time steps, the step is profiled, and planned anew, with a warning, if
    keeping everything does not fit. Every shape has a plan of its own, which is kept. An operation is assumed to need
    at most the workspace that it needed for the larger inputs. Inputs with a larger dimension are planned anew, within
    the same bytes, with a warning that says how long it took: begin with the largest.

    A model that `torch.distributed.fsdp.fully_shard` has sharded is rematerialized by all its processes at once. The
    budget is for one of them, which holds parts of parameters; the plan gathers them, and scatters gradients.

    Args:
        model: what to train, on the device where it shall be trained, in the mode in which it shall be trained.
        args, kwargs: inputs of forward, as large as they get. Those that require a gradient get one.
        budget: bytes, "2 GiB", or "60%" of what keeping everything takes for ``args``; "smallest" for the smallest with
            a known schedule, or what `remat_explorer.minimum_budget` gave. Parameters and gradients are included. A
            gradient that waits in ``.grad`` for the next one to be added comes on top, and so does what a loss that is
            computed elsewhere takes for itself. It is for one forward pass and its backward pass: each other call
            whose backward pass is still to come takes the attribute ``rematerialization.waiting_bytes`` more.
        loss: from the model's output to a scalar tensor, which is then what the model returns; it must not read
            tensors that change from step to step. None returns what the model returns: a loss that is computed
            elsewhere, or, of an output that has a ``loss``, that loss (other tensors of such an output are None);
            `remat_explorer.loss_elsewhere` returns all of such an output, too.
        strategy, solver, on_progress: as for `remat_explorer.solve`.
        time_limit: seconds of searching, as for `remat_explorer.solve`. Tracing and profiling come before.
        solution: a solution of this model, or a solution file, instead of solving; ``budget`` is not needed then.
        resolve: plan anew, within ``budget``, for inputs that differ in more than sizes, and after a change of the
            model, of PyTorch's settings or of autocast; plans are kept. Otherwise that is an error. After ``.to(...)``,
            and where forward reads the other of two truth values out of its inputs, it is planned anew in any case.
        optimizer: "sgd", "momentum" or "adam" counts that optimizer's state within the budget.
        cache: take a kept schedule for the same profile, budget and strategy, if its search was proven or had as much
            time, and keep a new one. It is checked against the graph that is captured and measured here, like any
            other; a profile that was measured anew has other costs, and is solved for anew. A second start then takes
            little more than tracing the model.
        budget_means: "requested" or "reserved", as for `remat_explorer.solve`: what tensors have, or what PyTorch's
            allocator on a GPU is predicted to take for them. A given ``solution`` is then held against its budget.
        retain_graph: plan for ``backward(retain_graph=True)``, which otherwise has no effect on the model: what the
            forward pass leaves stays until a backward pass that does not retain it, and the budget includes that: "60%"
            is then of what keeping everything takes so, and "smallest" the least of a row of schedules.

    Raises:
        CaptureError: if the model has no static training graph.
        ExecutionError: if no schedule fits, with the smallest budget worth trying, or memory runs out; if forward
            changes an attribute in every pass, which would be stale; if the model is compiled or wrapped, or sharded by
            anything else; if the processes of a sharded one have different inputs.
        SolutionError: if the solution is not this model's, or exceeds its budget with the workspace measured here, or
            with what is retained.

    >>> model = nn.Sequential(*(part for _ in range(5) for part in (nn.Linear(64, 64), nn.Tanh())))
    >>> x = torch.randn(512, 64)
    >>> trained = rematerialize(model, (x,), budget="80%")
    >>> trained(x).square().mean().backward()
    >>> trained.state_dict().keys() == model.state_dict().keys()
    True
    >>> trained.rematerialization.solution.plan.peak <= trained.rematerialization.solution.budget
    True
    >>> trained(x[:300]).square().mean().backward()
    >>> least = rematerialize(model, (x,), budget="smallest", time_limit=4)
    >>> least.rematerialization.solution.budget < trained.rematerialization.solution.budget
    True
    """
    require_arguments(rematerialize, locals(), but=("model", "args"))
    require_budget(budget)
    require_capturable(model, args, kwargs)
    require_plannable(model)
    require_plain_surroundings(model)
    _require_constant(loss)
    args, kwargs = tuple(args), with_counts_as_tensors(dict(kwargs or {}))
    require_meaning(budget_means, budget)
    recipe = Recipe(budget, loss, strategy, solution, time_limit, solver, optimizer, on_progress, cache, budget_means)
    recipe = dataclasses.replace(recipe, retain_graph=retain_graph)
    processes = Processes.of(model)
    if processes is None:
        planned = recipe.plan(model, args, kwargs)
    else:
        planned = together(processes, lambda: recipe.plan(model, args, kwargs), attrgetter("digest"))
    if more := planned.halves.program.returned.other_losses:
        warnings.warn(
            f"beside its loss the model returns {more} more that could be a loss, which a plan leaves out: it is None "
            "in a training step; loss=lambda output: output.loss + ... makes one of all",
            stacklevel=2,
        )
    return rematerialized(Rematerialization(model, recipe, planned, resolve, Example.of(args, kwargs)))


def _require_constant(loss: Loss | None) -> None:
    """Labels that a loss reads from around it would be those of the first step for ever."""
    if not inspect.isfunction(loss):
        return
    around = inspect.getclosurevars(loss)
    for name, value in {**around.globals, **around.nonlocals}.items():
        if isinstance(value, torch.Tensor):
            raise ExecutionError(
                f"the loss reads the tensor {name!r} of shape {list(value.shape)} from around it, whose content would "
                "stay that of now in every step; leave out loss=... and compute the loss from what the model returns, "
                "or make the loss a part of the model, with the tensor as an input"
            )

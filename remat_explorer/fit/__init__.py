"""Does a training step fit? Answered from shapes: without weights, and without a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from remat_explorer.allocator import predict_allocator
from remat_explorer.callable_module import make_callable
from remat_explorer.cancellation import cancellable
from remat_explorer.capture import is_absent_cuda, tensors_in
from remat_explorer.capture_options import CUDA
from remat_explorer.entry_checks import Seconds, require_arguments
from remat_explorer.errors import GraphError, ModelError
from remat_explorer.fit.answer import Alternative, Fit, reach_of, shares_at_peak, smallest_known, verdict_of
from remat_explorer.fit.optimizers import OPTIMIZERS, Recipe, Weight
from remat_explorer.graph import Graph
from remat_explorer.model_source import Source, capture_source
from remat_explorer.models import Size, load
from remat_explorer.quantities import parse_bytes
from remat_explorer.solvers import (
    BatchScaling,
    CondensedGraph,
    Solution,
    Status,
    checkpoint_all_peak,
    least_working_set,
    load_search,
    solve,
)

ALL = [Recipe(name) for name in OPTIMIZERS] + [Recipe("adamw", True), Recipe("adamw", True, True)]
RATES = "A100"  # published rates for costs, where no device is named
QUICK = 5.0  # seconds of a capture after which a second one, of twice the batch, is made
BOUNDING, SOLVING, OTHERS = 0.1, 0.4, 0.2  # shares of the time: a bound, a schedule, other recipes; then larger steps
FACTORS = (1.02, 1.1, 1.3)  # of a memory that is too small, for which a schedule is looked for


def fit(
    model: str | nn.Module | Source,
    memory: str | int | float,
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    loss: Any = None,
    *,
    optimizer: str = "adamw",
    master_weights: bool = False,
    full_gradients: bool = False,
    costs: str = RATES,
    time_limit: Seconds = 12.0,
    on_progress: Callable[[str], None] = lambda doing: None,
    cancelled: Callable[[], bool] = lambda: False,
    **sizes: Any,
) -> Fit:
    """Whether a training step of a model fits into a memory, what takes it, and how much larger it may be.

    Nothing is allocated. The graph is that of CUDA's kernels, made without a device. Bytes are those that tensors ask
    for; workspace is not in them, since nothing was run, nor what CUDA and its libraries take for themselves.

    Args:
        model: a name of the zoo, or a module, which may lie on the meta device.
        memory: of the device, bytes or "24 GB"; everything counts.
        args, kwargs, loss: of a module, as `remat_explorer.capture` takes them.
        optimizer: a key of `remat_explorer.fit.optimizers.OPTIMIZERS`.
        master_weights: whether a float32 copy of parameters in half precision is kept.
        full_gradients: whether gradients are kept in float32.
        costs: the device whose published rates give the costs.
        time_limit: seconds of wall time for all that comes after the capture. Compiling the search, once on a machine,
            comes before, too.
        on_progress: called with what is being done.
        cancelled: asked often; once True the answer has what is known until then.
        sizes: of a model of the zoo: batch, image, sequence, layers, tied, precision, as `remat_explorer.models.load`
            takes them; the precision is "bfloat16" unless given.

    Raises:
        QuantityError: if the memory cannot be read.
        UnknownNameError: if there is no such model, optimizer or device.
        ModelError: if a size does not suit the model.
        CaptureError: if the model is no static graph.
        Abandoned: if it is cancelled before there is a graph.

    >>> found = fit("mlp", "2 GB", batch=8, optimizer="adam", time_limit=2)
    >>> found.verdict, found.largest_of("batch")[0] > 8
    ('yes', True)
    """
    require_arguments(fit, locals())
    start = time.monotonic()
    room, recipe = parse_bytes(memory), Recipe(optimizer, master_weights, full_gradients)
    asked = _asked(model, args, kwargs, loss, costs, sizes)
    source, size = asked.source, asked.size
    weights = [Weight(tuple(p.shape), p.element_size()) for p in source.module.parameters() if p.requires_grad]
    on_progress("capturing the training graph")
    with cancellable(cancelled):
        graph = capture_source(source, costs)
    seconds = time.monotonic() - start
    load_search(lambda progress: on_progress(progress.doing))
    end, extra = time.monotonic() + time_limit, recipe.extra_bytes(weights)
    step = replace(graph, resident_bytes=graph.resident_bytes + extra)
    on_progress("bounding the memory")
    least = least_working_set(CondensedGraph.of(step), BOUNDING * time_limit)
    keep_all = checkpoint_all_peak(step)
    on_progress("looking for a schedule")
    solution = _solved(step, room, least.bytes, SOLVING * (end - time.monotonic()), cancelled)
    on_progress("looking for the largest step")
    spared = {other: other.extra_bytes(weights) - extra for other in ALL}
    known = solution.peak or smallest_known(step, [int(f * max(room, least.bytes)) for f in FACTORS], end, cancelled)
    tighter = sorted({room - more for more in spared.values() if least.bytes <= room - more < min(room, keep_all)})
    known = smallest_known(step, tighter, time.monotonic() + OTHERS * time_limit, cancelled) or known
    scaling = _scaling(step, asked, extra, seconds, cancelled)
    unit = "tokens" if asked.size.sequence else "examples"
    schedule, units = solution.schedule, asked.size.batch * (asked.size.sequence or 1)
    fitting = (0, 1.0) if schedule is None else (units, schedule.overhead)
    reach = scaling and reach_of(scaling, unit, room, max(0.0, end - time.monotonic()), cancelled, fitting)
    return Fit(
        graph.name,
        room,
        recipe,
        str(size),
        sum(weight.entries for weight in weights),
        " and ".join(sorted({str(p.dtype).removeprefix("torch.") for p in source.module.parameters()})),
        shares_at_peak(step, recipe, weights),
        (step.operations[least.operation].name, least.bytes),
        keep_all,
        least.bytes,
        known,
        solution,
        costs,
        step.total_cost,
        None if solution.plan is None else predict_allocator(solution.plan).peak_reserved,
        size.batch or None,
        size.sequence,
        reach,
        [
            Alternative(
                other,
                other.extra_bytes(weights),
                verdict_of(room - more, keep_all, least.bytes, known),
            )
            for other, more in spared.items()
        ],
        time.monotonic() - start,
    )


@dataclass(frozen=True)
class _Asked:
    """The model without weights, the size of a step, whether weights are cast in it, and a step of twice the batch."""

    source: Source
    size: Size
    casts: bool = False
    twice: Callable[[], Graph] | None = None


def _asked(model: Any, args: Any, kwargs: Any, loss: Any, costs: str, sizes: dict[str, Any]) -> _Asked:
    if isinstance(model, str):
        chosen = {"precision": "bfloat16", **sizes}
        device = CUDA if is_absent_cuda(CUDA) and chosen["precision"] != "autocast" else "cpu"
        loaded = load(model, device=device, costs=costs, **chosen)
        size = Size(loaded.batch, loaded.image, loaded.sequence, loaded.layers)
        source = Source(loaded.shapes, loaded.make_args, name=loaded.name, kernels=loaded.kernels)

        def twice() -> Graph:
            return load(model, device=device, costs=costs, **{**chosen, "batch": 2 * loaded.batch}).graph

        return _Asked(source, size, chosen["precision"] == "autocast", twice)
    if sizes:
        raise ModelError(f"{', '.join(sizes)} cannot be chosen for a model that comes with its inputs; leave it out")
    if isinstance(model, nn.Module):
        if args is None:
            raise ModelError(f"{type(model).__name__} comes without inputs; give them, as args=(x,)")
        given, kernels = args, CUDA if is_absent_cuda(CUDA) else None
        model = Source(model, lambda: given, kwargs, loss, kernels=kernels)
    inputs = tensors_in((tuple(model.make_args()), model.kwargs or {}))
    batch = inputs[0].shape[0] if inputs and inputs[0].dim() else 0
    return _Asked(model, Size(batch))


def _scaling(
    step: Graph, asked: _Asked, extra: int, seconds: float, cancelled: Callable[[], bool]
) -> BatchScaling | None:
    """What grows with the units of a step: by two captures where one is quick, else by the rule, or None.

    The rule lets every value grow but gradients of parameters; where autocast casts weights, that is wrong.
    """
    size = asked.size
    units = size.batch * (size.sequence or 1)
    if not units:
        return None
    if asked.twice is not None and seconds < QUICK:
        with cancellable(cancelled), suppress(GraphError):
            larger = asked.twice()
            larger = replace(larger, resident_bytes=larger.resident_bytes + extra)
            return BatchScaling.measured_from(step, larger, (units, 2 * units))
    return None if asked.casts else BatchScaling.by_rule(step, units)


def _solved(graph: Graph, memory: int, least: int, seconds: float, cancelled: Callable[[], bool]) -> Solution:
    """The cheapest schedule that is found, or an answer without one where none can fit."""
    if memory < least:
        return Solution(graph, "optimal", Status.INFEASIBLE, memory, None, None, 0.0)
    return solve(graph, memory, time_limit=max(0.5, seconds), cancelled=cancelled)


make_callable(__name__, fit)

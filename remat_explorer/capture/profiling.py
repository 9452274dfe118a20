"""Measured costs and workspace: the store-everything order, executed with real tensors."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from remat_explorer.capture.autocast import no_autocast
from remat_explorer.capture.losses import Loss
from remat_explorer.capture.memory_meter import is_out_of_memory, memory_meter
from remat_explorer.capture.placement import Placed, exact_kernels, place, require_same_structure
from remat_explorer.capture.profile_cache import Profile, load_profile, store_profile
from remat_explorer.capture.profile_key import profile_key
from remat_explorer.capture.program import Program, Registers
from remat_explorer.capture.progress_bar import progress_bar
from remat_explorer.capture.step import TrainingStep
from remat_explorer.capture.tracing import trace
from remat_explorer.errors import ExecutionError
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute, Plan

SHORTEST = 1e-9  # seconds; a cost of 0 would let a solver repeat the operation for nothing


def profile(
    graph: Graph,
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    loss: Loss | None = None,
    device: str = "auto",
    repeats: int = 3,
    on_progress: Callable[[int, int], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    refresh: bool = False,
) -> Graph:
    """The same graph with measured seconds (the median) and measured workspace bytes of every operation.

    Everything is kept in memory, as plain training does. Model, inputs and random state stay as they are.

    Measured once, the numbers are kept in `cache_folder` and taken from there for the same graph, kernels, device,
    torch and settings of torch (`profile_key`), so that two profiles give the same costs. Set the environment variable
    REMAT_EXPLORER_CACHE to keep them elsewhere.

    Args:
        graph: what `capture` gave for these inputs on this kind of device.
        model, args, kwargs, loss: as for `capture`.
        device: "auto", "cpu" or "cuda".
        repeats: timed runs, after one that warms up and one that meters memory.
        on_progress: called with operations done and in total, unless the numbers come from the cache; None shows a
            bar on a terminal or in a notebook.
        cancelled: asked after each operation.
        refresh: measure again, and replace what the cache has.

    Raises:
        ExecutionError: if the graph is not this model's, memory runs out, or it was cancelled.
    """
    repeats = max(1, repeats)
    placed = place(model, args, kwargs, device)
    program = trace(placed.model, placed.args, placed.kwargs, loss, options=graph.options)
    require_same_structure(graph, program.graph)
    key = profile_key(program, placed.device, repeats)
    found = None if refresh else load_profile(key, graph.n)
    if found is None:
        tensors = TrainingStep(placed.model, placed.args, placed.kwargs, loss).tensors(placed.args, placed.kwargs)
        total = graph.n * (repeats + 2)
        with progress_bar("profiling", total) if on_progress is None else contextlib.nullcontext(on_progress) as tell:
            found = _measured(program, placed, tensors, repeats, _steps(graph, total, tell, cancelled))
        store_profile(key, found)
    return found.of(graph)


def _steps(
    graph: Graph, total: int, on_progress: Callable[[int, int], None], cancelled: Callable[[], bool]
) -> Callable[[int], None]:
    """What to call with the number of each operation that has run."""
    count = itertools.count(1)

    def step(k: int) -> None:
        on_progress(next(count), total)
        if cancelled():
            raise ExecutionError(f"profiling was cancelled after {graph.operations[k].name!r}")

    return step


def _measured(
    program: Program, placed: Placed, tensors: tuple[torch.Tensor, ...], repeats: int, step: Callable[[int], None]
) -> Profile:
    """Medians of ``repeats`` timed runs, after one that warms up, and the workspace of one more."""
    plan = Plan.from_sequence(program.graph, [(k, k, 1) for k in range(program.graph.n)])

    def registers() -> Registers:
        return program.bind(placed.model, tensors)

    devices = [placed.device] if placed.device.type == "cuda" else []
    seconds: list[list[float]] = []
    with exact_kernels(), torch.no_grad(), no_autocast(), torch.random.fork_rng(devices):
        for _ in range(repeats + 1):
            seconds.append(list(_timed_run(plan, program, registers(), placed.device, step)))
        workspace = _metered_run(plan, program, registers(), placed.device, step)
    medians = [statistics.median(times) for times in zip(*seconds[1:], strict=True)]
    return Profile(tuple(max(median, SHORTEST) for median in medians), tuple(workspace))


def _timed_run(
    plan: Plan, program: Program, registers: Registers, device: torch.device, step: Callable[[int], None]
) -> Iterator[float]:
    """Seconds of each operation, waiting for the device before and after it."""
    for statement in plan.statements:
        if not isinstance(statement, Compute):
            del registers[program.carriers[statement.value]]
            continue
        _synchronize(device)
        start = time.perf_counter()
        with _memory_errors(plan, statement):
            program.body(statement).run(registers, statement.drops)
        _synchronize(device)
        yield time.perf_counter() - start
        step(statement.operation)


def _metered_run(
    plan: Plan, program: Program, registers: Registers, device: torch.device, step: Callable[[int], None]
) -> list[int]:
    """Workspace of each operation: its highest memory less what was there before and what it makes beyond that.

    An output that takes over the storage of an input is nothing beyond.
    """
    with memory_meter(device) as meter:
        for statement in plan.statements:
            if not isinstance(statement, Compute):
                del registers[program.carriers[statement.value]]
                continue
            with meter.section(), _memory_errors(plan, statement):
                program.body(statement).run(registers, statement.drops)
            step(statement.operation)
    sizes, computed = plan.graph.value_bytes, [s for s in plan.statements if isinstance(s, Compute)]
    taken = [0 if s.overwrites is None else int(sizes[s.overwrites]) for s in computed]
    made = [int(sizes[list(plan.graph.outputs(s.operation))].sum()) for s in computed]
    rows = zip(meter.readings, made, taken, strict=True)
    return [max(0, reading.highest - reading.before - (size - over)) for reading, size, over in rows]


@contextlib.contextmanager
def _memory_errors(plan: Plan, statement: Compute) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise ExecutionError(
            f"memory ran out while profiling {plan.text(statement)!r}, which keeps everything; use a smaller batch, "
            "or the predicted costs"
        ) from error


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

"""Measured costs and workspace: the store-everything order, executed with real tensors."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from remat_explorer.capture.autocast import no_autocast
from remat_explorer.capture.memory_meter import is_out_of_memory, memory_meter
from remat_explorer.capture.placement import exact_kernels, place, require_same_structure
from remat_explorer.capture.program import Program, Registers
from remat_explorer.capture.step import Loss, TrainingStep
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
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Graph:
    """The same graph with measured seconds (the median) and measured workspace bytes of every operation.

    Everything is kept in memory, as plain training does. Model, inputs and random state stay as they are.

    Args:
        graph: what `capture` gave for these inputs on this kind of device.
        model, args, kwargs, loss: as for `capture`.
        device: "auto", "cpu" or "cuda".
        repeats: timed runs, after one that warms up and one that meters memory.
        on_progress: called with operations done and in total.
        cancelled: asked after each operation.

    Raises:
        ExecutionError: if the graph is not this model's, memory runs out, or it was cancelled.
    """
    placed = place(model, args, kwargs, device)
    program = trace(placed.model, placed.args, placed.kwargs, loss)
    require_same_structure(graph, program.graph)
    tensors = TrainingStep(placed.model, placed.args, placed.kwargs, loss).tensors(placed.args, placed.kwargs)
    plan = Plan.from_sequence(graph, [(k, k, 1) for k in range(graph.n)])
    total, done = graph.n * (max(1, repeats) + 2), 0

    def step(k: int) -> None:
        nonlocal done
        done += 1
        on_progress(done, total)
        if cancelled():
            raise ExecutionError(f"profiling was cancelled after {graph.operations[k].name!r}")

    def registers() -> Registers:
        return program.bind(placed.model, tensors)

    devices = [placed.device] if placed.device.type == "cuda" else []
    seconds: list[list[float]] = []
    with exact_kernels(), torch.no_grad(), no_autocast(), torch.random.fork_rng(devices):
        for _ in range(max(1, repeats) + 1):
            seconds.append(list(_timed_run(plan, program, registers(), placed.device, step)))
        workspace = _metered_run(plan, program, registers(), placed.device, step)
    medians = [statistics.median(times) for times in zip(*seconds[1:], strict=True)]
    operations = [
        dataclasses.replace(
            node, implementations=(dataclasses.replace(node.default, cost=max(cost, SHORTEST), workspace=extra),)
        )
        for node, cost, extra in zip(graph.operations, medians, workspace, strict=True)
    ]
    return dataclasses.replace(graph, operations=tuple(operations))


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
            program.bodies[statement.operation].run(registers, statement.drops)
        _synchronize(device)
        yield time.perf_counter() - start
        step(statement.operation)


def _metered_run(
    plan: Plan, program: Program, registers: Registers, device: torch.device, step: Callable[[int], None]
) -> list[int]:
    """Workspace of each operation: its highest memory less what was there before and what it leaves."""
    with memory_meter(device) as meter:
        for statement in plan.statements:
            if not isinstance(statement, Compute):
                del registers[program.carriers[statement.value]]
                continue
            with meter.section(), _memory_errors(plan, statement):
                program.bodies[statement.operation].run(registers, statement.drops)
            step(statement.operation)
    sizes = plan.graph.value_bytes
    made = [int(sizes[list(node.default.outputs)].sum()) for node in plan.graph.operations]
    return [max(0, r.highest - r.before - size) for r, size in zip(meter.readings, made, strict=True)]


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

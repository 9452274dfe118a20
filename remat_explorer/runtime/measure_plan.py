"""Executes a solution and measures what was predicted: memory, time, and that nothing in the results changed.

`measure` is what people call; `record_memory_snapshot` adds PyTorch's own record of every CUDA allocation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from remat_explorer.capture import Loss, Program, exact_kernels, place, released_library_workspaces
from remat_explorer.entry_checks import Repeats, require_arguments
from remat_explorer.errors import ExecutionError, OutOfMemoryError, RematError
from remat_explorer.files import replacing
from remat_explorer.offload import TransferSolution
from remat_explorer.quantities import format_bytes
from remat_explorer.runtime.comparison import FinalState
from remat_explorer.runtime.copies import HOST, Tier, statement_text
from remat_explorer.runtime.measurement import Measurement, Reference, TransferMeasurement
from remat_explorer.runtime.plan_runner import PlanRunner
from remat_explorer.solvers import Solution

NOT_YET = "plain PyTorch has not run yet"
MOST_TURNS, FURTHER_SECONDS = 5, 5.0  # times the turns asked for, and how long, while they are too noisy to compare


def measure(
    solution: Solution | TransferSolution,
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    loss: Loss | None = None,
    device: str | torch.device | None = None,
    repeats: Repeats = 3,
    hard_cap: bool = False,
    snapshot: str | Path | None = None,
    program: Program | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    cancelled: Callable[[], bool] = lambda: False,
    on_measured: Callable[[Measurement], None] = lambda measurement: None,
    tier: str = HOST,
    folder: str | Path | None = None,
) -> Measurement:
    """Run the plan of ``solution`` beside plain PyTorch, from the same random state, and compare.

    Model, inputs and random state are left as they are. Where memory does not hold plain PyTorch, or the plan that
    keeps everything, the measurement says so and goes without it. Where results differ, plan and plain PyTorch run once
    more, to find the operation at which that begins.

    Args:
        solution: with a schedule, of the graph that `capture` (and `profile`) gave for these inputs; or with a plan
            that sends values, whose measurement is a `TransferMeasurement`. Copies are as fast as this machine makes
            them.
        model, args, kwargs, loss: as for `capture`.
        device: "cpu", "cuda", or "auto" for CUDA where there is one; None for where the model lies.
        repeats: timed runs of each of the plan, the plan that keeps everything, and plain PyTorch, taken in turn. From
            two on, up to five times as many, for five seconds, where an overhead is predicted and the runs are too
            noisy to show it.
        hard_cap: refuse to use more memory than the budget. On CUDA the allocator enforces it while the plan runs; on
            the CPU the measured run is judged when it is over.
        snapshot: where to write PyTorch's own memory snapshot of the plan's run, for pytorch.org/memory_viz; CUDA only.
        program: of the graph, where the step of this model on this device is traced already.
        on_progress: called with runs done and in total.
        cancelled: asked before each statement, and before each operation of plain PyTorch.
        on_measured: called with what is known once the plan's memory is, and once its results are compared, too; what
            is not timed yet has NaN seconds.
        tier, folder: where copies lie, as for `remat_explorer.rematerialize`.

    Raises:
        ArgumentError: if there is no such tier.
        OutOfMemoryError: if memory runs out while the plan runs, with the statement, what was alive, the prediction.
        ExecutionError: if there is no schedule, it belongs to another model, the cap is passed, a copy fails, or it was
            cancelled.
    """
    require_arguments(measure, locals())
    if solution.plan is None or solution.overhead is None:
        raise ExecutionError(f"there is nothing to run: {solution}")
    placed = place(model, args, kwargs, device)
    if snapshot is not None:
        require_cuda(placed.device)
    repeats, place_of_copies = max(1, repeats), Tier(tier, folder)
    total, done = 6 + 3 * repeats, 0

    def advance(steps: int = 1) -> None:
        nonlocal done
        done += steps
        on_progress(done, total)
        if cancelled():
            raise ExecutionError("the measurement was cancelled between two runs")

    with exact_kernels(), torch.random.fork_rng([placed.device] if placed.device.type == "cuda" else []):
        bench = PlanRunner(solution, placed, loss, cancelled, program, place_of_copies)
        advance()
        missing: list[str] = []
        names = ["plan", "checkpoint-all", "eager"]
        with contextlib.nullcontext() if snapshot is None else record_memory_snapshot(placed.device, snapshot):
            try:
                during, after, final, allocator = bench.metered_run(hard_cap)
            except RematError:
                raise
            except Exception:
                bench.start.rewind()
                bench.eager_run()  # explains what plain PyTorch cannot run either
                raise
        measured = _kind_of(bench.host_bytes, tier)(
            device=torch.cuda.get_device_name(placed.device) if placed.device.type == "cuda" else "cpu",
            plan=solution.plan,
            during=during,
            after=after,
            statement_seconds=np.zeros(len(during)),
            resident_bytes=solution.graph.resident_bytes,
            budget=solution.budget,
            seconds=math.nan,
            generated_peak=0,
            checkpoint_all_seconds=None,
            predicted_overhead=solution.overhead,
            eager=None,
            allocator=allocator,
            missing=NOT_YET,
        )
        on_measured(measured)
        advance()
        reference: tuple[int, FinalState] | None = None
        with _skipped_if_out_of_memory("eager", names, missing):
            reference = bench.eager_run()
        bench.start.rewind()
        comparison = bench.compared(final, reference[1]) if reference else None
        del final
        if reference and comparison:
            measured = dataclasses.replace(measured, eager=Reference(reference[0], math.nan, comparison), missing="")
            on_measured(measured)
        advance()
        statement_seconds = bench.statement_seconds()
        advance()
        generated_peak = bench.generated_peak()
        advance()
        with _skipped_if_out_of_memory("checkpoint-all", names, missing):
            bench.warm_up("checkpoint-all")
        advance()
        timed = _with_times(measured, bench.timed(names, repeats, advance))
        most = repeats * MOST_TURNS if solution.overhead > 1 else 0  # no number of turns tells nothing from noise
        ends = time.monotonic() + FURTHER_SECONDS
        while timed.is_noisy and len(timed.times["plan"]) < most and time.monotonic() < ends:
            timed = _with_times(timed, bench.timed(names, repeats, partial(advance, 0)))
        if allocator is not None:  # at the end, when every thread has called the libraries
            allocator = dataclasses.replace(allocator, libraries=released_library_workspaces(placed.device))
        if done < total:
            advance(total - done)
    if hard_cap:
        _require_cap(solution, during)
    return dataclasses.replace(
        timed,
        statement_seconds=statement_seconds,
        generated_peak=generated_peak,
        allocator=allocator,
        missing="; ".join(missing),
        resident_tensors=bench.resident_tensors(),
    )


def _with_times(measured: Measurement, taken: Mapping[str, tuple[float, ...]]) -> Measurement:
    """The measurement with further turns of its contenders."""
    times = {name: measured.times.get(name, ()) + turns for name, turns in taken.items()}
    median = {name: statistics.median(turns) for name, turns in times.items()}
    return dataclasses.replace(
        measured,
        seconds=median["plan"],
        checkpoint_all_seconds=median.get("checkpoint-all"),
        eager=dataclasses.replace(measured.eager, seconds=median["eager"]) if measured.eager else None,
        times=times,
    )


def _kind_of(host_bytes: np.ndarray | None, tier: str) -> Callable[..., Measurement]:
    """What makes a measurement from all that it has in common with others."""
    return Measurement if host_bytes is None else partial(TransferMeasurement, host=host_bytes, tier=tier)


@contextlib.contextmanager
def _skipped_if_out_of_memory(name: str, names: list[str], missing: list[str]):
    """Strike a contender off that memory does not hold."""
    try:
        yield
        return
    except OutOfMemoryError as error:
        names.remove(name)
        missing.append(str(error).partition("; ")[0])
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _require_cap(solution: Solution | TransferSolution, during: np.ndarray) -> None:
    assert solution.plan is not None
    over = during > solution.budget
    if over.any():
        at = int(over.argmax())
        raise ExecutionError(
            f"{statement_text(solution.plan, at)!r} needed {format_bytes(int(during[at]))}, above the "
            f"cap of {format_bytes(solution.budget)}"
        )


ENTRIES = 200_000  # allocations and frees that are kept


def require_cuda(device: torch.device) -> None:
    """Refuse other devices, of which PyTorch keeps no such record."""
    if device.type != "cuda":
        raise ExecutionError(f"PyTorch records memory snapshots on CUDA only, not on {device}; leave the snapshot out")


@contextlib.contextmanager
def record_memory_snapshot(device: torch.device, path: str | Path) -> Iterator[None]:
    """Record the allocations of the body and write them to ``path``, which pytorch.org/memory_viz opens.

    The file is complete or not there: it is written under another name first. A recording of the person's goes on, and
    is what is written.
    """
    require_cuda(device)
    ours = not torch._C._cuda_isHistoryEnabled()  # type: ignore[attr-defined]
    with replacing(path) as temporary:
        if ours:
            torch.cuda.memory._record_memory_history(max_entries=ENTRIES)
        try:
            yield
            torch.cuda.memory._dump_snapshot(str(temporary))
        finally:
            if ours:
                torch.cuda.memory._record_memory_history(enabled=None)

"""Executes a solution and measures what was predicted: memory, time, and that nothing in the results changed."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from remat_explorer.capture.losses import Loss
from remat_explorer.capture.memory_meter import CudaMeter, MemoryMeter, memory_meter
from remat_explorer.capture.placement import Placed, exact_kernels, place, require_same_structure
from remat_explorer.capture.step import TrainingStep
from remat_explorer.capture.tracing import trace
from remat_explorer.errors import ExecutionError
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.runtime.comparison import compare
from remat_explorer.runtime.eager import Eager
from remat_explorer.runtime.interpreter import Interpreter
from remat_explorer.runtime.measurement import Measurement
from remat_explorer.runtime.outcome import Outcome
from remat_explorer.runtime.random_state import RandomStates
from remat_explorer.solution import Solution


def measure(
    solution: Solution,
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    loss: Loss | None = None,
    device: str = "auto",
    repeats: int = 3,
    hard_cap: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Measurement:
    """Run the plan of ``solution`` beside plain PyTorch, from the same random state, and compare.

    Model, inputs and random state are left as they are.

    Args:
        solution: with a schedule, of the graph that `capture` (and `profile`) gave for these inputs.
        model, args, kwargs, loss: as for `capture`.
        device: "auto" (CUDA where there is one), "cpu" or "cuda".
        repeats: timed runs of each of the plan, the plan that keeps everything, and plain PyTorch, taken in turn.
        hard_cap: refuse to use more memory than the budget. On CUDA the allocator enforces it while the plan runs; on
            the CPU the measured run is judged when it is over.
        on_progress: called with runs done and in total.
        cancelled: asked before each statement and each run.

    Raises:
        ExecutionError: if there is no schedule, it belongs to another model, memory runs out, the cap is passed, or
            it was cancelled; a statement is named where one was running.
    """
    if solution.schedule is None or solution.plan is None:
        raise ExecutionError(f"there is nothing to run: {solution}")
    placed = place(model, args, kwargs, device)
    repeats = max(1, repeats)
    total, done = 5 + 3 * repeats, 0

    def advance() -> None:
        nonlocal done
        done += 1
        on_progress(done, total)
        if cancelled():
            raise ExecutionError("the measurement was cancelled between two runs")

    with exact_kernels(), torch.random.fork_rng([placed.device] if placed.device.type == "cuda" else []):
        bench = _Bench(solution, placed, loss, cancelled)
        advance()
        eager_peak, reference, state = bench.eager_reference(advance)
        readings, found, found_state, allocator = bench.metered_plan(hard_cap)
        advance()
        comparison = compare(found, reference, bench.initial_buffers())
        del found
        seconds = bench.timed(repeats, advance)
    during, after = readings
    if hard_cap and (during > solution.budget).any():
        at = int((during > solution.budget).argmax())
        raise ExecutionError(
            f"{solution.plan.text(solution.plan.statements[at])!r} needed {format_bytes(int(during[at]))}, above the "
            f"cap of {format_bytes(solution.budget)}"
        )
    return Measurement(
        device=_device_name(placed.device),
        predicted=solution.plan.timeline,
        during=during,
        after=after,
        resident_bytes=solution.graph.resident_bytes,
        budget=solution.budget,
        seconds=seconds["plan"],
        checkpoint_all_seconds=seconds["checkpoint-all"],
        predicted_overhead=solution.schedule.overhead,
        eager_seconds=seconds["eager"],
        eager_peak=eager_peak,
        loss_difference=comparison.loss_difference,
        gradient_difference=comparison.gradient_difference,
        gradients_equal=comparison.gradients_equal,
        buffers_equal=comparison.buffers_equal,
        rng_equal=all(np.array_equal(mine, theirs) for mine, theirs in zip(found_state, state, strict=True)),
        **allocator,
    )


class _Bench:
    """The two plans and plain PyTorch on one device, each started from the same random state."""

    def __init__(self, solution: Solution, placed: Placed, loss: Loss | None, cancelled: Callable[[], bool]) -> None:
        self.graph, self.placed, self.cancelled = solution.graph, placed, cancelled
        self.budget = solution.budget
        self.program = trace(placed.model, placed.args, placed.kwargs, loss, options=solution.graph.options)
        require_same_structure(solution.graph, self.program.graph)
        self.tensors = TrainingStep(placed.model, placed.args, placed.kwargs, loss).tensors(placed.args, placed.kwargs)
        assert solution.plan is not None
        everything = Plan.from_sequence(solution.graph, [(k, k, 1) for k in range(solution.graph.n)])
        self.plan = Interpreter(solution.plan, self.program, placed.device)
        self.everything = Interpreter(everything, self.program, placed.device)
        self.eager = Eager(placed, loss)
        devices = [torch.device("cpu"), placed.device] if placed.device.type == "cuda" else [placed.device]
        self.generators = [RandomStates(device) for device in devices]
        self.start = self.state()

    def state(self) -> list[np.ndarray]:
        """Random states of every device in use."""
        return [generator.get() for generator in self.generators]

    def rewind(self) -> None:
        """Go back to the random state at the start, and forget what plain PyTorch left behind."""
        self.eager.reset()
        for generator, state in zip(self.generators, self.start, strict=True):
            generator.set(state)

    def initial_buffers(self) -> dict[str, torch.Tensor]:
        """Contents of the model's buffers before a step; the person's model is never written to."""
        return dict(self.placed.model.named_buffers())

    def eager_reference(self, advance: Callable[[], None]) -> tuple[int, Outcome, list[np.ndarray]]:
        """Peak bytes, outcome and final random state of plain PyTorch, after one run that warms up."""
        self.eager.run()
        advance()
        self.rewind()
        with memory_meter(self.placed.device) as meter, meter.section():
            outputs = self.eager.run()
        state = self.state()
        reference = self.eager.outcome(outputs, lambda tensor: tensor.detach().to("cpu", copy=True))
        self.rewind()
        advance()
        return self.graph.resident_bytes + meter.readings[0].highest, reference, state

    def metered_plan(
        self, hard_cap: bool
    ) -> tuple[tuple[np.ndarray, np.ndarray], Outcome, list[np.ndarray], dict[str, int]]:
        """Bytes during and after each statement, outcome, final random state, and the CUDA allocator's peaks."""
        self.plan.run(self._registers(), cancelled=self.cancelled)  # warms up: kernels are chosen on their first call
        self.rewind()
        registers = self._registers()
        meter: MemoryMeter = memory_meter(self.placed.device)
        with self._cap() if hard_cap else contextlib.nullcontext(), meter:
            outcome = self.plan.run(registers, meter.section, self.cancelled)
        during = np.array([reading.highest for reading in meter.readings], dtype=np.int64) + self.graph.resident_bytes
        after = np.array([reading.after for reading in meter.readings], dtype=np.int64) + self.graph.resident_bytes
        peaks = {}
        if isinstance(meter, CudaMeter):
            peaks = {"allocated": meter.allocated, "requested": meter.requested, "reserved": meter.reserved}
        return (during, after), outcome, self.state(), peaks

    @contextlib.contextmanager
    def _cap(self) -> Iterator[None]:
        """Let CUDA's allocator refuse what exceeds the budget, beside what the process holds already."""
        device = self.placed.device
        if device.type != "cuda":
            yield
            return
        torch.cuda.empty_cache()
        room = torch.cuda.memory_reserved(device) + self.budget - self.graph.resident_bytes
        share = room / torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, max(0.0, share)), device)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, device)

    def timed(self, repeats: int, advance: Callable[[], None]) -> dict[str, float]:
        """Median seconds of each contender; they take turns, so that a drift of the machine meets all of them."""

        def run_eager() -> None:
            self.eager.run()

        contenders: dict[str, Callable[[], Any]] = {
            "plan": lambda: self.plan.run(self._registers(), cancelled=self.cancelled),
            "checkpoint-all": lambda: self.everything.run(self._registers(), cancelled=self.cancelled),
            "eager": run_eager,
        }
        self.rewind()
        contenders["checkpoint-all"]()
        advance()
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(repeats):
            for name, run in contenders.items():
                self.rewind()
                self._synchronize()
                begin = time.perf_counter()
                run()
                self._synchronize()
                seconds[name].append(time.perf_counter() - begin)
                advance()
        return {name: statistics.median(times) for name, times in seconds.items()}

    def _registers(self) -> Any:
        return self.program.bind(self.placed.model, self.tensors)

    def _synchronize(self) -> None:
        if self.placed.device.type == "cuda":
            torch.cuda.synchronize(self.placed.device)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"

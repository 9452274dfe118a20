"""A plan, the plan that keeps everything, and plain PyTorch on one device, each started from the same state.

`hard_cap` lets CUDA's allocator enforce a budget; `InterruptibleRuns` stops runs between two operations.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from remat_explorer.capture import (
    CudaMeter,
    Loss,
    Placement,
    Program,
    Registers,
    TrainingStep,
    everything,
    first_line,
    is_out_of_memory,
    laps_on,
    require_same_structure,
    storage_key,
    trace,
)
from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.errors import ExecutionError, OutOfMemoryError
from remat_explorer.offload import TransferSolution
from remat_explorer.runtime.comparison import Comparison, Difference, FinalState, FirstDifference, compare
from remat_explorer.runtime.copies import Tier, open_copies
from remat_explorer.runtime.eager import Eager, InitialState, interleaved_seconds
from remat_explorer.runtime.first_difference import FingerprintRecorder, ObservedPlan, find_first_difference
from remat_explorer.runtime.generated_step import generate
from remat_explorer.runtime.interpreter import Interpreter, StepOutcome
from remat_explorer.runtime.measurement import Allocator
from remat_explorer.solvers import Solution


class PlanRunner:
    """What `remat_explorer.measure` measures with.

    Cancelling is asked for before each statement of an interpreted plan, and between operations of everything else. An
    ExecutionError if the solution belongs to another model.
    """

    def __init__(
        self,
        solution: Solution | TransferSolution,
        placed: Placement,
        loss: Loss | None,
        cancelled: Callable[[], bool],
        program: Program | None = None,
        tier: Tier | None = None,
    ) -> None:
        assert solution.plan is not None
        self.solution, self.placed, self.cancelled = solution, placed, cancelled
        graph = solution.graph
        self.program = program or trace(placed.model, placed.args, placed.kwargs, loss, options=graph.options)
        require_same_structure(graph, self.program.graph, placed.device, self.program.assumptions)
        self.tensors = TrainingStep(placed.model, placed.args, placed.kwargs, loss).tensors(placed.args, placed.kwargs)
        self.host_bytes: np.ndarray | None = None  # of copies, after each statement of `metered_run`
        self.interpreter = Interpreter(solution.plan, self.program, placed.device, tier or Tier())
        self.generated = generate(solution.plan, self.program, placed.device, tier)
        self.everything = generate(everything(graph), self.program, placed.device)
        self.eager = Eager(placed, loss)
        self._interruption = InterruptibleRuns(cancelled)
        self.start = InitialState(self.eager, placed.device)

    def registers(self) -> Registers:
        """What a plan starts from."""
        return self.program.bind(self.placed.model, self.tensors)

    def resident_tensors(self) -> tuple[int, ...] | None:
        """Bytes of each storage that a plan starts from, then what else is counted; None where these are more."""
        tensors = [entry for entry in self.registers().values() if isinstance(entry, torch.Tensor)]
        sizes = {storage_key(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}
        rest = self.solution.graph.resident_bytes - sum(sizes.values())  # such as the state of an optimizer
        return None if rest < 0 else tuple(size for size in (*sizes.values(), rest) if size)

    def eager_run(self) -> tuple[int, FinalState]:
        """Peak bytes of plain PyTorch, and what it leaves behind, after one run that warms up."""
        self._interruption.run("eager", self.eager.explained_run)
        self.start.rewind()
        with memory_meter(self.placed.device) as meter, meter.section():
            outcome: StepOutcome = self._interruption.run("eager", self.eager.explained_run, timed=True)
        final = FinalState(outcome.copied(), self.start.states())
        del outcome
        self.start.rewind()
        return self.solution.graph.resident_bytes + meter.readings[0].highest, final

    def metered_run(self, capped: bool) -> tuple[np.ndarray, np.ndarray, FinalState, Allocator | None]:
        """Bytes during and after each statement, what the plan leaves behind, and the CUDA allocator's peaks."""
        self.interpreter.run(self.registers(), cancelled=self.cancelled)  # kernels are chosen on their first call
        self.start.rewind()
        meter = memory_meter(self.placed.device)
        cap = hard_cap(self.placed.device, self.solution.budget - self.solution.graph.resident_bytes, capped)
        registers, run = self.registers(), self.interpreter
        with cap, meter, open_copies(run.tier, run.plan, run.device, self.cancelled) as copies:
            outcome = run.run(registers, meter.section, self.cancelled, copies)
        self.host_bytes = None if copies is None else copies.host_bytes
        resident = self.solution.graph.resident_bytes
        during = np.array([reading.highest for reading in meter.readings], dtype=np.int64) + resident
        after = np.array([reading.after for reading in meter.readings], dtype=np.int64) + resident
        final = FinalState(outcome, self.start.states())
        self.start.rewind()
        if isinstance(meter, CudaMeter):
            return during, after, final, Allocator(meter.peak, meter.peak.since(meter.start, resident))
        return during, after, final, None

    def compared(self, final: FinalState, reference: FinalState) -> Comparison:
        """How far what the plan leaves behind is from what plain PyTorch does, and where a difference begins.

        For the second answer both run once more, with each of their tensors read; where that fails, because memory is
        short or for another reason, the comparison says so.
        """
        found = self._compare(final, reference)
        if found.equal:
            return found
        reason = ""
        try:
            begins, varying = self._first_difference(reference)
            return dataclasses.replace(found, begins=begins, varying=varying)
        except OutOfMemoryError:
            reason = "memory ran out"
        except ExecutionError:  # it was cancelled
            raise
        except Exception as error:  # whatever a person's model meets when it is read
            reason = "memory ran out" if is_out_of_memory(error) else f"{type(error).__name__}: {first_line(error)}"
            traceback.clear_frames(error.__traceback__)  # locals there hold tensors
        self.start.rewind()
        return dataclasses.replace(
            found, begins=FirstDifference(reason=f"where the difference begins could not be found out: {reason}")
        )

    def _first_difference(self, reference: FinalState) -> tuple[FirstDifference, tuple[Difference, ...]]:
        """Where it begins, and how far plain PyTorch is from itself."""
        self.start.rewind()
        observed = ObservedPlan(self.interpreter, self.registers(), self.cancelled)
        final = FinalState(observed.outcome, self.start.states())
        self.start.rewind()
        with FingerprintRecorder(observed.forms) as seen:
            outcome: StepOutcome = self._interruption.run("eager", self.eager.run)
        again = FinalState(outcome.copied(), self.start.states())
        del outcome
        self.start.rewind()
        itself = self._compare(again, reference)
        found = self._compare(final, again)
        if found.equal:
            reason = "a second pair of runs was equal: results vary from run to run"
            return FirstDifference(repeats=itself.equal, reason=reason), itself.differences
        begins = find_first_difference(observed, seen.fingerprints, {(one.kind, one.name) for one in found.differences})
        return dataclasses.replace(begins, repeats=itself.equal), itself.differences

    def _compare(self, final: FinalState, reference: FinalState) -> Comparison:
        return compare(final, reference, dict(self.placed.model.named_buffers()))

    def generated_peak(self) -> int:
        """Measured peak of the generated code, bytes."""
        self.start.rewind()
        registers = self.registers()
        with memory_meter(self.placed.device) as meter, meter.section():
            self._interruption.run("plan", lambda: self.generated.run(registers, self.cancelled), timed=True)
        return self.solution.graph.resident_bytes + meter.readings[0].highest

    def statement_seconds(self) -> np.ndarray:
        """Time of each statement, on CUDA that of its kernels."""
        self.start.rewind()
        laps = laps_on(self.placed.device)
        self.interpreter.run(self.registers(), laps.lap, self.cancelled)
        seconds = laps.seconds()
        self._interruption.expect("plan", sum(seconds))
        return np.array(seconds)

    def contenders(self) -> dict[str, Callable[[], Any]]:
        """One run of each: "plan" and "checkpoint-all" by generated code, and "eager"."""
        return {
            "plan": lambda: self.generated.run(self.registers(), self.cancelled),
            "checkpoint-all": lambda: self.everything.run(self.registers()),
            "eager": self.eager.explained_run,
        }

    def timed(self, names: list[str], repeats: int, advance: Callable[[], None]) -> dict[str, tuple[float, ...]]:
        """Seconds of contenders that take turns; binding what a plan starts from is part of its run."""
        contenders = self.contenders()

        @contextlib.contextmanager
        def prepare(name: str) -> Iterator[Callable[[], Any]]:
            with contextlib.ExitStack() as stack:
                run = contenders[name]
                if name == "eager":
                    stack.enter_context(self.eager.explained())
                    run = stack.enter_context(self.eager.prepared())
                yield partial(self._interruption.run, name, run, timed=True)

        return interleaved_seconds({name: partial(prepare, name) for name in names}, self.start, repeats, advance)

    def warm_up(self, name: str) -> None:
        """Run a contender once."""
        self.start.rewind()
        self._interruption.run(name, self.contenders()[name])


LARGE, SMALL = 20 * 2**20, 2 * 2**20  # bytes that the caching allocator takes at a time, from 1 to 10 MiB and up to 1
MARGIN = LARGE + SMALL


@contextlib.contextmanager
def hard_cap(device: torch.device, room: int, wanted: bool = True) -> Iterator[None]:
    """Let the allocator refuse more than ``room`` bytes beside what the process holds when the context is entered.

    The allocator counts reserved bytes, which are those that it took from the driver. For requests of 1 to 10 MiB it
    takes 20 MiB, and for those of up to 1 MiB 2 MiB, so that one block of each may be all but empty when the last byte
    is asked for: as much is left as a margin. What fits to the byte may be refused all the same, where blocks are
    fragmented. On the CPU nothing is enforced.

    A fraction of memory that the person has set (`torch.cuda.set_per_process_memory_fraction`) holds if it allows less,
    and is set again afterwards.

    Source: the sizes are the defaults of PyTorch's caching allocator (kLargeBuffer and kSmallBuffer of
    c10/core/AllocatorConfig.h); ``large_segment_size_mb`` in PYTORCH_ALLOC_CONF makes the first one larger.
    """
    if device.type != "cuda" or not wanted:
        yield
        return
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    before = torch.cuda.get_per_process_memory_fraction(device)
    total = torch.cuda.get_device_properties(device).total_memory  # what a fraction is of
    share = (torch.cuda.memory_reserved(device) + room + MARGIN) / total
    torch.cuda.set_per_process_memory_fraction(min(before, max(0.0, share)), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(before, device)


SHORT_SECONDS = 0.25  # seconds that a run may take without being asked whether to stop


class _CancellationMode(TorchDispatchMode):
    """Asks before every operation, of the backward pass, too."""

    def __init__(self, cancelled: Callable[[], bool]) -> None:
        super().__init__()
        self._cancelled = cancelled

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._cancelled():
            raise ExecutionError(f"execution was cancelled before {func}")
        return func(*args, **(kwargs or {}))


class InterruptibleRuns:
    """Runs contenders so that cancelling takes effect soon, without slowing down those that are short anyway.

    Asking costs microseconds an operation, which would show in the time of a run of short operations, and holds what an
    operation takes for itself a moment longer, which would show in its memory. A run that is timed or metered and took
    less than `SHORT_SECONDS` the last time, or is expected to, is therefore left alone.
    """

    def __init__(self, cancelled: Callable[[], bool]) -> None:
        self._cancelled = cancelled
        self._seconds: dict[str, float] = {}

    def expect(self, name: str, seconds: float) -> None:
        """Say how long the next run of a contender takes."""
        self._seconds[name] = seconds

    def run(self, name: str, contender: Callable[[], Any], timed: bool = False) -> Any:
        """What ``contender`` gives; ``timed`` if it is timed or metered. An ExecutionError if it was cancelled."""
        short = timed and self._seconds.get(name, SHORT_SECONDS) < SHORT_SECONDS
        begin = time.perf_counter()
        with contextlib.nullcontext() if short else _CancellationMode(self._cancelled):
            result = contender()
        self._seconds[name] = time.perf_counter() - begin
        return result

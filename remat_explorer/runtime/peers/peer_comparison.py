"""Every peer on one model: whatever else trains it in less memory, measured as our plans are.

A `Contender` is one way to run a training step: plain autograd, changed or not, or a plan. `PeerBench` runs them from
the same state, one after another, and reads memory, time and results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import statistics
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import nn

from remat_explorer.capture import (
    Loss,
    Placement,
    Program,
    exact_kernels,
    first_line,
    is_out_of_memory,
    place,
    profile,
    trace,
    unwrap,
)
from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.checker import replay
from remat_explorer.entry_checks import Repeats, require_arguments
from remat_explorer.errors import ExecutionError, OutOfMemoryError
from remat_explorer.plan import Plan
from remat_explorer.runtime.comparison import Comparison, Difference, FinalState, compare
from remat_explorer.runtime.eager import Eager, InitialState, ModelChange, interleaved_seconds
from remat_explorer.runtime.generated_step import GeneratedStep, generate
from remat_explorer.runtime.interpreter import Interpreter, Section, StepOutcome
from remat_explorer.runtime.min_cut_partitioner import require_share
from remat_explorer.runtime.peers.activation_budget_plan import pytorch_budget_plan
from remat_explorer.runtime.peers.peer_measurement import PeerMeasurement
from remat_explorer.runtime.peers.torch_checkpoints import (
    blocks_of,
    checkpoint_blocks,
    checkpoint_segments,
    largest_sequential,
    segment_counts,
)

UNCONTRACTED = CaptureOptions(contract=False, split_convolution_backward=False)


def compare_peers(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    loss: Loss | None = None,
    device: str | torch.device | None = None,
    repeats: Repeats = 3,
    budgets: Sequence[float] = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0),
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[PeerMeasurement, ...]:
    """Train one step in each way that PyTorch itself offers, and measure memory, time and results.

    The ways, each from the same buffers and random state, with the same meter and kernels:

    - eager: plain PyTorch, which keeps everything.
    - checkpoint-sequential: `torch.utils.checkpoint.checkpoint_sequential` on the model's largest `nn.Sequential`, in
      2, about √n and n segments.
    - checkpoint-blocks: `torch.utils.checkpoint.checkpoint` around each of the model's repeated blocks.
    - pytorch-budget: what the partitioner of `torch.compile` chooses under `activation_memory_budget`, as a plan on
      the graph that it sees, executed as our plans are. This budget is no bound of the peak.

    Checkpoints run batch normalization twice, and so update its buffers twice: ``buffers_equal`` tells. Model, inputs
    and random state are left as they are.

    Args:
        model, args, kwargs, loss: as for `capture`.
        device: "cpu", "cuda", or "auto" for CUDA where there is one; None for where the model lies.
        repeats: timed runs of each way, taken in turn.
        budgets: activation memory budgets of PyTorch, each a share from 0 to 1.
        on_progress: called with steps done and in total.
        cancelled: asked between runs, and before each statement of a plan.

    Returns:
        One measurement for each way and setting; one that does not apply, or failed, has its ``problem``.

    Raises:
        CaptureError: if the model cannot be captured as a static graph.
        ExecutionError: if there is no such device, a budget is out of range, or it was cancelled.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> found = compare_peers(model, (torch.ones(16, 4),), device="cpu", repeats=1, budgets=[0.5])
    >>> [(peer.title, peer.gradients_equal) for peer in found]  # doctest: +NORMALIZE_WHITESPACE
    [('eager', True), ('checkpoint-sequential (2 segments)', True), ('checkpoint-sequential (3 segments)', True),
     ('checkpoint-blocks', None), ('pytorch-budget (budget 0.5, dp)', True)]
    """
    require_arguments(compare_peers, locals())
    for budget in budgets:
        require_share(budget)
    placed = place(model, args, kwargs, device)
    repeats = max(1, repeats)
    devices = [placed.device] if placed.device.type == "cuda" else []
    with torch.inference_mode(False), exact_kernels(), torch.random.fork_rng(devices):
        training = Eager(placed, loss)
        entries = checkpoint_entries(training, placed.model)
        ways = 1 + len(entries) + len(budgets)
        progress = _Progress(2 + len(budgets) + ways * (1 + repeats), on_progress, cancelled)
        program, profiled = _capture(placed, loss, progress)
        progress.advance()
        for budget in budgets:
            entries.append(budget_entry(program, placed, training.tensors, budget, cancelled))
            progress.advance()
        bench = PeerBench(placed, training, program.graph.resident_bytes)
        measurements = _measure_in_turn(bench, Autograd(training), entries, repeats, progress)
    if profiled:
        return tuple(measurements)
    return tuple(dataclasses.replace(peer, predicted_peak=None, predicted_overhead=None) for peer in measurements)


def _capture(placed: Placement, loss: Loss | None, progress: _Progress) -> tuple[Program, bool]:
    """The program with every call an operation, and whether it could be profiled, which keeps everything in memory."""
    program = trace(placed.model, placed.args, placed.kwargs, loss, options=UNCONTRACTED)
    progress.advance()
    try:
        graph = profile(
            program.graph,
            placed.model,
            placed.args,
            placed.kwargs,
            loss,
            str(placed.device),
            repeats=1,
            on_progress=lambda done, total: None,
            cancelled=progress.cancelled,
        )
    except ExecutionError:
        progress.stop()
        return program, False
    return dataclasses.replace(program, graph=graph), True


_Run = Callable[[], StepOutcome]


class Contender(Protocol):
    """One training step in one way."""

    @property
    def name(self) -> str: ...
    @property
    def knob(self) -> str | None: ...
    @property
    def plan(self) -> Plan | None: ...

    def prepare(self, section: Section = contextlib.nullcontext) -> AbstractContextManager[_Run]:
        """A context that gives what runs the step; whatever is there before it starts is there once it is entered."""
        ...


@dataclass(frozen=True, eq=False)
class Autograd:
    """Plain autograd on a model that ``change`` makes run in another way; by itself it is eager PyTorch."""

    training: Eager
    name: str = "eager"
    knob: str | None = None
    change: ModelChange = contextlib.nullcontext
    plan: None = None

    @contextlib.contextmanager
    def prepare(self, section: Section = contextlib.nullcontext) -> Iterator[_Run]:
        """Metered as one section, from before the forward pass until gradients are there."""
        with self.training.prepared(self.change) as once:

            def run() -> StepOutcome:
                with section():
                    return once()

            yield run


@dataclass(frozen=True, eq=False)
class PlannedPeer:
    """A plan on the graph of ``program``: metered by the interpreter, and timed as generated code."""

    name: str
    knob: str | None
    plan: Plan
    program: Program
    placed: Placement
    tensors: tuple[torch.Tensor, ...]
    cancelled: Callable[[], bool]

    def prepare(self, section: Section = contextlib.nullcontext) -> AbstractContextManager[_Run]:
        """Metered statement by statement, as `remat_explorer.measure` does; resident tensors are bound before."""
        registers = self.program.bind(self.placed.model, self.tensors)
        if section is contextlib.nullcontext:
            return contextlib.nullcontext(lambda: self._generated.run(registers))
        interpreter = Interpreter(self.plan, self.program, self.placed.device)
        return contextlib.nullcontext(lambda: interpreter.run(registers, section, self.cancelled))

    @cached_property
    def _generated(self) -> GeneratedStep:
        return generate(self.plan, self.program, self.placed.device)


@dataclass(frozen=True, eq=False)
class MeteredRun:
    """One metered run: peak bytes with resident bytes, and what it leaves behind."""

    peak: int
    final: FinalState

    def copied(self) -> MeteredRun:
        """The same with results of its own, which no later run changes."""
        return MeteredRun(self.peak, FinalState(self.final.outcome.copied(), self.final.states))


class PeerBench:
    """One device, with the buffers and the random state from which every contender starts.

    No contender writes to the buffers of ``placed``; those of ``training``, and its gradients, are set back before each
    run. Resident bytes count in every peak.
    """

    def __init__(self, placed: Placement, training: Eager, resident_bytes: int) -> None:
        self._placed, self._resident = placed, resident_bytes
        self._start = InitialState(training, placed.device)
        self._varying: tuple[Difference, ...] | None = None

    def run(self, contender: Contender) -> MeteredRun:
        """One metered run after one that warms up. Results are valid until the next run."""
        self._start.rewind()
        with contender.prepare() as run:
            run()  # warms up: kernels are chosen on their first call
        self._start.rewind()
        meter = memory_meter(self._placed.device)
        with contender.prepare(meter.section) as run, meter:
            outcome = run()
        peak = self._resident + max(reading.highest for reading in meter.readings)
        return MeteredRun(peak, FinalState(outcome, self._start.states()))

    def compare(self, ran: MeteredRun, reference: MeteredRun) -> Comparison:
        """How far results are from those of another run; a plan tells only the buffers that it writes."""
        return compare(ran.final, reference.final, dict(self._placed.model.named_buffers()))

    def varying(self, eager: Contender, reference: MeteredRun) -> tuple[Difference, ...]:
        """How far eager PyTorch is from itself when it runs again; it runs when this is asked for the first time."""
        if self._varying is None:
            self._varying = self.compare(self.run(eager), reference).differences
        return self._varying

    def seconds(
        self, contenders: Sequence[Contender], repeats: int, advance: Callable[[], None]
    ) -> dict[Contender, float]:
        """Median seconds of contenders that take turns."""
        taken = interleaved_seconds({one: one.prepare for one in contenders}, self._start, repeats, advance)
        return {one: statistics.median(seconds) for one, seconds in taken.items()}


class _Progress:
    """Counts steps, and stops between two of them."""

    def __init__(self, total: int, on_progress: Callable[[int, int], None], cancelled: Callable[[], bool]) -> None:
        self._done, self._total = 0, total
        self._on_progress, self.cancelled = on_progress, cancelled

    def advance(self, steps: int = 1) -> None:
        """Some steps are done."""
        self._done += steps
        self._on_progress(self._done, self._total)
        self.stop()

    def stop(self) -> None:
        """Raise if the comparison was cancelled."""
        if self.cancelled():
            raise ExecutionError("the comparison of peers was cancelled")


_Entry = Contender | PeerMeasurement
SOLVER = "dp"


def checkpoint_entries(training: Eager, model: nn.Module) -> list[_Entry]:
    """`checkpoint_sequential` with several numbers of segments, and a checkpoint around each block."""
    model, entries = unwrap(model), []
    name, trunk = "checkpoint-sequential", largest_sequential(model)
    if trunk is None:
        entries.append(PeerMeasurement(name, problem="the model has no nn.Sequential of several members"))
    else:
        for segments in segment_counts(len(trunk)):
            change = functools.partial(checkpoint_segments, trunk, segments)
            entries.append(Autograd(training, name, f"{segments} segments", change))
    name, blocks = "checkpoint-blocks", blocks_of(model)
    if not blocks:
        entries.append(
            PeerMeasurement(
                name,
                problem="the model has no repeated blocks: no nn.ModuleList or nn.Sequential with members of one class "
                "that have parameters and parts of their own",
            )
        )
    else:
        knob = f"{len(blocks)} × {type(blocks[0]).__name__}"
        entries.append(Autograd(training, name, knob, functools.partial(checkpoint_blocks, blocks)))
    return entries


def budget_entry(
    program: Program, placed: Placement, tensors: tuple[torch.Tensor, ...], budget: float, cancelled: Callable[[], bool]
) -> _Entry:
    """PyTorch's activation memory budget, planned on the graph of ``program``."""
    name, knob = "pytorch-budget", f"budget {budget:g}, {SOLVER}"
    try:
        plan = pytorch_budget_plan(program, budget, SOLVER)
    except Exception as error:  # the partitioner is torch's own, and torch calls it experimental
        return PeerMeasurement(name, knob, problem=f"PyTorch's partitioner failed: {first_line(error).rstrip('.')}")
    return PlannedPeer(name, knob, plan, program, placed, tensors, cancelled)


def _measure_in_turn(
    bench: PeerBench, eager: Contender, others: Sequence[_Entry], repeats: int, progress: _Progress
) -> list[PeerMeasurement]:
    """One measurement for each entry, ``eager`` first, whose results are the reference of all."""
    measurements: dict[_Entry, PeerMeasurement] = {}
    reference: MeteredRun | None = None
    for entry in (eager, *others):
        if isinstance(entry, PeerMeasurement):
            measurements[entry] = entry
            progress.advance(1 + repeats)
            continue
        try:
            ran = bench.run(entry)
        except Exception as error:  # whatever a person's model does when it is run in another way
            progress.stop()
            traceback.clear_frames(error.__traceback__)  # a checkpoint there may hold hooks that autograd still calls
            measurements[entry] = PeerMeasurement(entry.name, entry.knob, problem=_problem_of(error), plan=entry.plan)
            progress.advance(1 + repeats)
            continue
        if entry is eager:
            reference = ran.copied()
        peak, result = ran.peak, None if reference is None else bench.compare(ran, reference)
        del ran  # its gradients would take room from the next one
        if result is not None and reference is not None and any(one.kind != "buffer" for one in result.differences):
            result = dataclasses.replace(result, varying=bench.varying(eager, reference))
        measurements[entry] = _measurement_of(entry, peak, result)
        progress.advance()
    contenders = [e for e in (eager, *others) if not isinstance(e, PeerMeasurement) and measurements[e].problem is None]
    seconds = bench.seconds(contenders, repeats, progress.advance)
    for contender, median in seconds.items():
        overhead = median / seconds[eager] if eager in seconds else None
        measurements[contender] = dataclasses.replace(measurements[contender], seconds=median, overhead=overhead)
    return list(measurements.values())


def _measurement_of(contender: Contender, peak: int, result: Comparison | None) -> PeerMeasurement:
    measurement = PeerMeasurement(contender.name, contender.knob, peak, plan=contender.plan)
    if (plan := contender.plan) is not None:
        overhead = replay(plan)[0] / plan.graph.total_cost
        measurement = dataclasses.replace(measurement, predicted_peak=plan.peak, predicted_overhead=overhead)
    if result is None:  # eager did not run
        return measurement
    return dataclasses.replace(
        measurement,
        gradients_equal=result.gradients_equal,
        gradient_difference=result.gradient_difference,
        buffers_equal=result.buffers_equal,
        rng_equal=result.random_state_equal,
        as_plain_varies=result.as_plain_varies,
    )


def _problem_of(error: Exception) -> str:
    if is_out_of_memory(error) or isinstance(error, OutOfMemoryError):
        return "memory ran out"
    if "modified by an inplace operation" in str(error):
        return "a layer in place right after the end of a checkpoint overwrites a tensor that the backward pass needs"
    return f"it does not run: {first_line(error).rstrip('.')}"

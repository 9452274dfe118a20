"""Measured costs and workspace: the store-everything order, executed with real tensors (Checkmate, section 4.10).

`profile` is the public function. A `ProfilingRun` times and meters each computation of a plan; a `ChoicesRun` does so
with every implementation of the operations that have several.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from remat_explorer.capture.autocast import no_autocast
from remat_explorer.capture.captured_program import Body, Program, Registers
from remat_explorer.capture.inputs_and_outputs import Loss
from remat_explorer.capture.last_capture import take
from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.capture.model_placement import (
    Placement,
    exact_kernels,
    is_out_of_memory,
    place,
    require_same_structure,
)
from remat_explorer.capture.profile_cache import Profile, load_profile, profile_key, store_profile, the_most_of
from remat_explorer.capture.sharding import MEASURED, PROFILE, ProcessGroup
from remat_explorer.capture.stopwatch import Laps, laps_on
from remat_explorer.capture.storage_census import Choice, StorageCensus, beside
from remat_explorer.capture.tracing import trace
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.entry_checks import Repeats, require_arguments
from remat_explorer.errors import ExecutionError, OutOfMemoryError
from remat_explorer.graph import Graph
from remat_explorer.plan import Compute, Plan

Measure = Callable[[int, int, Registers], None]
SHORTEST = 1e-9  # seconds; a cost of 0 would let a solver repeat the operation for nothing


def profile(
    graph: Graph,
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    loss: Loss | None = None,
    device: str | torch.device | None = None,
    repeats: Repeats = 3,
    on_progress: Callable[[int, int], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    refresh: bool = False,
    exact: bool = True,
    program: Program | None = None,
) -> Graph:
    """The same graph with measured seconds and workspace bytes of every implementation; the least of several times.

    Storages are those that operators really make. Where they are not as large as predicted, values get the measured
    bytes, and where an operation does not take over what it was to overwrite, it no longer says so. A schedule of the
    captured graph is one of the profiled graph all the same: both have the same `Graph.structure`.

    Everything is kept in memory, as plain training does; where memory does not hold that, a schedule runs that is meant
    to take the least. Model, inputs and random state stay as they are.

    Of a model that is sharded, all processes profile together, and each gets the most that one of them has measured.

    Measured once, the numbers are kept in `cache_folder` and taken from there for the same graph, kernels, device,
    torch and settings of torch (`profile_key`), so that two profiles give the same costs. Set the environment variable
    REMAT_EXPLORER_CACHE to keep them elsewhere.

    Args:
        graph: what `capture` gave for these inputs on this kind of device.
        model, args, kwargs, loss: as for `capture`.
        device: "cpu", "cuda", or "auto" for CUDA where there is one; None for where the model lies.
        repeats: timed runs, after one that warms up and one that meters memory.
        on_progress: called with computations done and in total, unless the numbers come from the cache; None shows a
            bar on a terminal or in a notebook.
        cancelled: asked after each operation.
        refresh: measure again, and replace what the cache has.
        exact: with cuDNN's kernels that `measure` compares with, deterministic and without autotuning; False takes
            what is set in `torch.backends.cudnn`, which training by a plan does.
        program: of ``graph``, where the step is traced already; tracing takes longer than to read a kept profile.

    Raises:
        OutOfMemoryError: if memory holds not even the schedule that takes the least.
        ExecutionError: if the graph is not this model's, an operator gives a tensor in the storage of another without
            its FakeTensors saying so or holds on to memory, or profiling was cancelled.
    """
    require_arguments(profile, locals())
    placed = place(model, args, kwargs, device)
    if program is None and placed.model is model:
        program = take(graph, model, args, kwargs, loss)
    if program is None:
        program = trace(placed.model, placed.args, placed.kwargs, loss, options=graph.options)
        require_same_structure(graph, program.graph, placed.device, program.assumptions)
    repeats = max(1, repeats)
    count = sum(len(node.implementations) for node in graph.operations)
    with exact_kernels() if exact else contextlib.nullcontext():
        key = profile_key(program, placed.device, repeats)
        measured = None if refresh else load_profile(key, count, len(graph.values))
        processes = ProcessGroup.of(placed.model)
        if processes is not None and not _is_kept_by_all(processes, graph, measured):
            measured = None
        if measured is None:
            tensors = TrainingStep(placed.model, placed.args, placed.kwargs, loss).tensors(placed.args, placed.kwargs)
            try:
                measured = _measured(program, placed, tensors, everything(graph), repeats, on_progress, cancelled)
            except OutOfMemoryError:  # the least memory that a schedule is known to take, then
                from remat_explorer.solvers import minimum_budget

                plan = Plan.of(minimum_budget(graph).schedule)
                measured = _measured(program, placed, tensors, plan, repeats, on_progress, cancelled)
            store_profile(key, measured)
        if processes is not None:
            told = processes.told(MEASURED, dataclasses.asdict(measured))
            measured = the_most_of([Profile(**one) for one in told])
    return measured.of(graph)


def _is_kept_by_all(processes: ProcessGroup, graph: Graph, measured: Profile | None) -> bool:
    """Whether no process has to measure; an ExecutionError on every process if they have different steps."""
    told = processes.told(PROFILE, [graph.structure, measured is not None])
    processes.require_same([structure for structure, _ in told], "a step of other operations or sizes")
    return all(kept for _, kept in told)


def everything(graph: Graph) -> Plan:
    """The plan that runs each mandatory operation once and keeps what is still to be read."""
    return Plan.from_sequence(graph, [(t, int(k), 1) for t, k in enumerate(graph.mandatory)])


def _measured(
    program: Program,
    placed: Placement,
    tensors: tuple[torch.Tensor, ...],
    plan: Plan,
    repeats: int,
    on_progress: Callable[[int, int], None] | None,
    cancelled: Callable[[], bool],
) -> Profile:
    """The least of ``repeats`` timed runs of ``plan``, after one that warms up, and workspace and storages of one more.

    Other programs, and the clock of the processor, only ever add to a time: the least of a few is nearest to what the
    operation takes, and repeats from profile to profile where a median of so few does not.

    Operations that offer a choice are timed in all implementations, in runs of their own.
    """
    computed = [statement.operation for statement in plan.statements if isinstance(statement, Compute)]
    total = len(computed) * (repeats + 2) + ChoicesRun(program, placed.device, lambda k: None).runs(repeats)
    devices = [placed.device] if placed.device.type == "cuda" else []
    seconds: list[list[float]] = [[] for _ in range(plan.graph.n)]
    census = StorageCensus(program, placed.device)
    bar = progress_bar("profiling", total) if on_progress is None else contextlib.nullcontext(on_progress)
    # a mode of the caller's, such as a counter of operations, may hold on to what it sees
    with bar as tell, _disable_current_modes(), torch.no_grad(), no_autocast(), torch.random.fork_rng(devices):
        step = _steps(plan.graph, total, tell, cancelled)
        run = ProfilingRun(plan, program, placed.device, step)
        for number in range(repeats + 1):
            times = run.timed(program.bind(placed.model, tensors))
            for k, elapsed in zip(computed, times, strict=True):
                if number > 0:
                    seconds[k].append(elapsed)
        registers = program.bind(placed.model, tensors)
        resident = program.graph.resident_bytes + census.resident_difference(registers)
        run.metered(registers, census)
        del registers
        least = {(k, 1): min(times) for k, times in enumerate(seconds) if times}
        if plan.graph.has_choices:
            others = ChoicesRun(program, placed.device, step)
            least |= others.measured(lambda: program.bind(placed.model, tensors), repeats, census)
    choices, sizes = sorted(least), census.bytes_of_values()
    return Profile(
        tuple(max(least[choice], SHORTEST) for choice in choices),
        tuple(census.workspace(choice, sizes) for choice in choices),
        tuple(census.takes_over(choice, sizes) for choice in choices),
        sizes,
        resident,
    )


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


@dataclass(frozen=True, eq=False)
class ProfilingRun:
    """Runs ``plan`` with the operations of ``program``; results and random numbers do not matter.

    Attributes:
        step: called with the number of each operation that has run.

    Raises:
        OutOfMemoryError: from `timed` and `metered`, with the statement; registers are emptied.
    """

    plan: Plan
    program: Program
    device: torch.device
    step: Callable[[int], None]

    def timed(self, registers: Registers) -> list[float]:
        """Seconds of each computation, on CUDA those of its kernels."""
        laps = laps_on(self.device)

        def compute(statement: Compute) -> None:
            body = self.program.body(statement)
            with laps.lap():
                body.run(registers, statement.drops)

        self._run(registers, compute)
        return laps.seconds()

    def metered(self, registers: Registers, census: StorageCensus) -> None:
        """Let ``census`` see every computation and what it makes, and read the meter.

        An operation that may overwrite an operand also runs in its other form, at its first computation.
        """
        with memory_meter(self.device) as meter:

            def compute(statement: Compute) -> None:
                choice, body = (statement.operation, 1), self.program.body(statement)
                for form in census.forms(choice) if statement.first else ():
                    if form is not body:
                        census.run(choice, form, beside(form, registers), meter.section)
                census.run(choice, body, registers, meter.section, statement.drops)

            self._run(registers, compute, lambda value: census.free(value, registers, meter.section))
            census.require_views(registers)
        census.read(meter.readings)

    def _run(
        self, registers: Registers, compute: Callable[[Compute], None], free: Callable[[int], None] | None = None
    ) -> None:
        for statement in self.plan.statements:
            if not isinstance(statement, Compute):
                if free is not None:
                    free(statement.value)
                else:
                    del registers[self.program.carriers[statement.value]]
                continue
            try:
                compute(statement)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                traceback.clear_frames(error.__traceback__)  # locals there hold tensors
                break
            self.step(statement.operation)
        else:
            return
        registers.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        raise OutOfMemoryError(
            f"memory ran out while profiling {self.plan.text(statement)!r}; use a smaller batch, or the predicted costs"
        )


@dataclass(frozen=True, eq=False)
class ChoicesRun:
    """Runs every operation once, in order, and of each that offers a choice all implementations, one after another.

    A value stays as long as any implementation of a later operation reads it; that takes more memory than any plan.
    """

    program: Program
    device: torch.device
    step: Callable[[int], None]  # called with the operation for each implementation that has run

    @property
    def choices(self) -> list[Choice]:
        """Operation and number of each implementation that is measured here."""
        operations = enumerate(self.program.graph.operations)
        several = [(k, node) for k, node in operations if len(node.implementations) > 1 or node.optional]
        return [(k, code) for k, node in several for code in range(1, len(node.implementations) + 1)]

    def runs(self, repeats: int) -> int:
        """How many implementations run in all."""
        return len(self.choices) * (repeats + 2)

    def measured(self, bind: Callable[[], Registers], repeats: int, census: StorageCensus) -> dict[Choice, float]:
        """Seconds, the least of some timed runs, by operation and number of the implementation.

        One run before the timed ones warms up, and one after them meters memory, with ``census`` looking on. Where
        memory is short, an OutOfMemoryError names the implementation, and registers are emptied.
        """
        seconds: dict[Choice, list[float]] = {choice: [] for choice in self.choices}

        def timed(laps: Laps, k: int, code: int, registers: Registers) -> None:
            body = census.forms((k, code))[0]
            scratch = dict(registers)
            with laps.lap():
                body.run(scratch)
            self._keep(body, scratch, registers)

        for _ in range(repeats + 1):
            laps = laps_on(self.device)
            self._walk(bind(), partial(timed, laps))
            for choice, elapsed in zip(self.choices, laps.seconds(), strict=True):
                seconds[choice].append(elapsed)
        with memory_meter(self.device) as meter:

            def metered(k: int, code: int, registers: Registers) -> None:
                for body in census.forms((k, code)):
                    scratch = beside(body, registers)
                    census.run((k, code), body, scratch, meter.section)
                    self._keep(body, scratch, registers)

            self._walk(bind(), metered)
        census.read(meter.readings)
        return {choice: min(times[1:]) for choice, times in seconds.items()}

    def _walk(self, registers: Registers, measure: Measure) -> None:
        graph, several = self.program.graph, set(self.choices)
        last_reader = [max(readers, default=-1) for readers in graph.readers]
        held: set[int] = set()
        for k, node in enumerate(graph.operations):
            if (k, 1) not in several:
                self.program.bodies[k].run(registers)
            for code in range(1, len(node.implementations) + 1) if (k, 1) in several else ():
                try:
                    measure(k, code, registers)
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    traceback.clear_frames(error.__traceback__)  # locals there hold tensors
                    registers.clear()
                    way = node.implementations[code - 1].name
                    raise OutOfMemoryError(
                        f"memory ran out while profiling {node.name!r}, {way}: measuring every implementation takes "
                        "more memory than plain training; use a smaller batch, fewer kinds, or the predicted costs"
                    ) from None
                self.step(k)
            held |= {v for way in node.implementations for v in way.outputs}
            for v in [v for v in held if last_reader[v] <= k and not graph.persistent[v]]:
                registers.pop(self.program.carriers[v], None)
                held.discard(v)

    def _keep(self, body: Body, scratch: Registers, registers: Registers) -> None:
        """Keep the outputs that no implementation before this one has made."""
        for node in body.outputs.values():
            registers.setdefault(node, scratch[node])


@contextlib.contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar that is gone when the work is done; yields what to call with steps done and in total.

    tqdm's text bar serves both places. Its widget would need ipywidgets, and stays in a saved notebook as an empty box.
    """
    from tqdm.std import tqdm

    notebook = _in_notebook()
    bar = tqdm(
        desc=what,
        total=total,
        leave=False,
        disable=False if notebook else None,  # None: only on a terminal
        file=sys.stdout if notebook else sys.stderr,  # a notebook shows stderr on red
    )
    with bar:
        yield lambda done, _: bar.update(done - bar.n)  # type: ignore[func-returns-value]


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and "IPKernelApp" in shell.config

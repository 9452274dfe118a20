"""What was measured when a plan ran, beside what was predicted.

A run is also written as a trace file, statements as slices and memory as counters, in the Trace Event Format of Chrome,
which Perfetto (ui.perfetto.dev) and chrome://tracing open.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from remat_explorer.allocator import AllocatorPrediction, predict_allocator
from remat_explorer.capture import AllocatorBytes
from remat_explorer.documents import write_json
from remat_explorer.offload import TransferPlan, TransferTimeline
from remat_explorer.offsets import predict_pool
from remat_explorer.plan import Compute, Timeline
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds
from remat_explorer.runtime.comparison import Comparison
from remat_explorer.runtime.copies import AnyPlan

COMPARED = tuple(Comparison(0.0, 0.0, True, True, True).to_document())  # keys of a comparison in `run --json`


@dataclass(frozen=True, eq=False)
class Measurement:
    """One executed solution.

    Attributes:
        device: name of the device.
        plan: what ran, with its predicted timeline.
        during: measured highest bytes within each statement, resident bytes added, int64.
        after: measured bytes after each statement, resident bytes added, int64.
        statement_seconds: time of each statement in a run of its own, float64.
        resident_bytes: parameters, buffers, inputs and constants; known, not measured.
        budget: bytes that the solution was made for; requested bytes, which predictions count, are judged by it.
        seconds: median time of the plan's generated code; NaN while it is not timed.
        generated_peak: measured peak of the generated code in bytes, resident bytes included.
        checkpoint_all_seconds: median time of the plan that keeps everything, taken in turn with it; None where
            memory does not hold it.
        predicted_overhead: cost of the schedule, or makespan, over the cost of computing everything once.
        eager: plain PyTorch, taken in turn with both; None where memory does not hold it.
        allocator: None on the CPU.
        missing: why there is no `eager` or no `checkpoint_all_seconds`, or "".
        resident_tensors: bytes of each of the resident bytes' tensors; None where only their sum is known.
        times: seconds of all timed runs of "plan", "checkpoint-all" and "eager", which took turns.
    """

    device: str
    plan: AnyPlan
    during: np.ndarray
    after: np.ndarray
    statement_seconds: np.ndarray
    resident_bytes: int
    budget: int
    seconds: float
    generated_peak: int
    checkpoint_all_seconds: float | None
    predicted_overhead: float
    eager: Reference | None
    allocator: Allocator | None = None
    missing: str = ""
    resident_tensors: tuple[int, ...] | None = None
    times: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @cached_property
    def predicted_allocator(self) -> AllocatorPrediction:
        """What PyTorch's allocator on a GPU would take for the plan alone, on whatever device it was measured."""
        return predict_allocator(self.plan, resident=self.resident_tensors)

    @property
    def predicted(self) -> Timeline | TransferTimeline:
        """The plan's timeline."""
        return self.plan.timeline

    @property
    def is_timed(self) -> bool:
        """Whether its times are there; else memory, or memory and results, are all that is known."""
        return not math.isnan(self.seconds)

    @property
    def peak(self) -> int:
        """Measured peak in bytes, resident bytes included."""
        return int(self.during.max())

    @property
    def predicted_peak(self) -> int:
        """Predicted peak in bytes, resident bytes included."""
        return self.plan.peak

    @property
    def error(self) -> float:
        """(measured - predicted) / predicted of the whole peak; positive when more memory was needed."""
        return (self.peak - self.predicted_peak) / self.predicted_peak if self.predicted_peak else 0.0

    @property
    def dynamic_error(self) -> float:
        """The same error on the part that a schedule decides, without resident bytes."""
        predicted = self.predicted_peak - self.resident_bytes
        return (self.peak - self.predicted_peak) / predicted if predicted else 0.0

    @property
    def within_budget(self) -> bool:
        """Whether the measured peaks kept to the budget, in requested bytes; `Allocator.plan` has the others."""
        return max(self.peak, self.generated_peak) <= self.budget

    @property
    def overhead(self) -> float | None:
        """Measured time over that of the plan that keeps everything."""
        return None if self.checkpoint_all_seconds is None else self.seconds / self.checkpoint_all_seconds

    @property
    def overhead_range(self) -> tuple[float, float] | None:
        """Where the median ratio lies of a run of the plan to that of the same turn that keeps everything.

        Of up to eight turns the least and the largest ratio; of more, those between which the median of all possible
        turns lies with a probability of 95 %, whatever their distribution. None where there were fewer than two turns.
        """
        turns = zip(self.times.get("plan", ()), self.times.get("checkpoint-all", ()), strict=False)
        ratios = sorted(plan / everything for plan, everything in turns if everything > 0)
        if len(ratios) < 2:
            return None
        beyond = 0  # ratios left out at each end: the median lies outside with the probability of so few heads or tails
        while sum(math.comb(len(ratios), heads) for heads in range(beyond + 2)) <= 0.025 * 2 ** len(ratios):
            beyond += 1
        return ratios[beyond], ratios[-1 - beyond]

    @property
    def is_noisy(self) -> bool:
        """Whether the measured overhead says nothing: its range is wider than it is away from none."""
        if self.overhead is None or self.overhead_range is None:
            return False
        least, largest = self.overhead_range
        return largest - least > abs(self.overhead - 1)

    @property
    def overhead_text(self) -> str:
        """The measured overhead with the range of its turns, or that it is too noisy to compare."""
        if self.overhead is None:
            return "not measured"
        if self.overhead_range is None:
            return format_overhead(self.overhead)
        between = " to ".join(format_overhead(edge) for edge in self.overhead_range)
        return f"too noisy to compare ({between})" if self.is_noisy else f"{format_overhead(self.overhead)} ({between})"

    @property
    def equal(self) -> bool | None:
        """Whether loss, gradients, buffers and random state are plain PyTorch's, bit for bit.

        None without it, and where it does not repeat its own results (`Comparison.as_plain_varies`).
        """
        if self.eager is None or self.eager.comparison.as_plain_varies:
            return None
        return self.eager.comparison.equal

    @property
    def sound(self) -> bool:
        """Whether nothing that was measured contradicts what was promised."""
        return self.within_budget and self.equal is not False

    def save_trace(self, path: str | Path) -> Path:
        """Write the run as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open, atomically."""
        measured = self.statement_seconds, self.during, self.after
        document = _trace_document(self.plan, self.device, *measured, self.to_document())
        return write_json(path, document)

    def to_document(self) -> dict[str, Any]:
        """Everything but the timelines, as a JSON object; memory in bytes, time in seconds."""
        compared = self.eager.comparison if self.eager else None
        return {
            "device": self.device,
            "predicted_peak": self.predicted_peak,
            "measured_peak": self.peak,
            "generated_peak": self.generated_peak,
            "error": self.error,
            "dynamic_error": self.dynamic_error,
            "budget": self.budget,
            "within_budget": self.within_budget,
            "predicted_overhead": self.predicted_overhead,
            "measured_overhead": self.overhead,
            "measured_overhead_range": self.overhead_range,
            "measured_overhead_is_noisy": self.is_noisy,
            "seconds": self.seconds,
            "checkpoint_all_seconds": self.checkpoint_all_seconds,
            "eager_seconds": self.eager.seconds if self.eager else None,
            "eager_peak": self.eager.peak if self.eager else None,
            **(compared.to_document() if compared else dict.fromkeys(COMPARED)),
            **self._allocator_document(),
            **self._predicted_document(),
            "missing": self.missing,
        }

    def _predicted_document(self) -> dict[str, Any]:
        """What a GPU would take for the plan; a pool of one block is not for one that sends values."""
        found = self.predicted_allocator
        pool = (
            {}
            if isinstance(self.plan, TransferPlan)
            else {"predicted_pool_on_gpu": predict_pool(self.plan).to_document()}
        )
        return {
            "predicted_allocated_on_gpu": found.peak_allocated,
            "predicted_reserved_on_gpu": found.peak_reserved,
            "predicted_fragmentation_on_gpu": found.fragmentation,
            **pool,
        }

    def _allocator_document(self) -> dict[str, int | None]:
        """Peaks of the process, and with ``_peak`` those of the plan; None on the CPU."""
        names = [entry.name for entry in dataclasses.fields(AllocatorBytes)]
        if self.allocator is None:
            return dict.fromkeys([*names, *(f"{name}_peak" for name in names), "library_workspaces"])
        plan = {f"{name}_peak": size for name, size in dataclasses.asdict(self.allocator.plan).items()}
        return dataclasses.asdict(self.allocator.process) | plan | {"library_workspaces": self.allocator.libraries}

    def __str__(self) -> str:
        verdict = "within" if self.within_budget else "ABOVE"
        of_code = self.peak <= self.budget < self.generated_peak
        peak = f"peak of the generated code is {format_bytes(self.generated_peak)}" if of_code else "measured peak is"
        against = (
            "" if self.checkpoint_all_seconds is None else f" against {format_seconds(self.checkpoint_all_seconds)}"
        )
        kept = " for keeping everything" if against else ""
        taken = f" ({format_seconds(self.seconds)}{against}{kept})" if self.is_timed else ""
        lines = [
            f"on {self.device}",
            f"peak: predicted {format_bytes(self.predicted_peak)}, measured {format_bytes(self.peak)} "
            f"(error {self.error:+.3%}, without resident bytes {self.dynamic_error:+.3%})",
            f"budget: {format_bytes(self.budget)}, {peak}{',' if of_code else ''} {verdict} it",
            f"overhead: predicted {format_overhead(self.predicted_overhead)}, measured {self.overhead_text}{taken}",
        ]
        if self.eager:
            lines += [
                f"plain PyTorch: {format_bytes(self.eager.peak)}"
                + (f", {format_seconds(self.eager.seconds)}" if self.is_timed else ""),
                *str(self.eager.comparison).splitlines(),
            ]
        if self.missing:
            lines.append(f"not compared: {self.missing}")
        lines.append(f"{self.predicted_allocator} (predicted)")
        if not isinstance(self.plan, TransferPlan):
            lines.append(f"{predict_pool(self.plan)} (predicted)")
        if self.allocator:
            lines += [
                f"CUDA, beside the budget: {self.allocator.plan}",
                f"the whole process: {self.allocator.process}; cuBLAS keeps {format_bytes(self.allocator.libraries)}",
            ]
        return "\n".join(lines)


_NO_COPIES = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class TransferMeasurement(Measurement):
    """One executed plan that sends values. Bytes of copies are counted apart from those of the device.

    Attributes:
        host: bytes of copies after each statement, by the sizes that buffers and files have had, int64.
        tier: "host" for copies in memory, "disk" for files.
    """

    host: np.ndarray = field(default_factory=_NO_COPIES.copy)
    tier: str = ""

    @property
    def host_peak(self) -> int:
        """Most bytes of copies at a time."""
        return int(self.host.max(initial=0))

    @property
    def sound(self) -> bool:
        """Whether nothing that was measured contradicts what was promised."""
        return super().sound and self.host_peak == self._transfer_plan.host_peak

    @property
    def _transfer_plan(self) -> TransferPlan:
        assert isinstance(self.plan, TransferPlan)
        return self.plan

    def to_document(self) -> dict[str, Any]:
        """As of any measurement, and the bytes of copies."""
        plan = self._transfer_plan
        copies = {"tier": self.tier, "sent": plan.sent_bytes, "predicted_host_peak": plan.host_peak}
        return super().to_document() | copies | {"measured_host_peak": self.host_peak}

    def __str__(self) -> str:
        plan, where = self._transfer_plan, "files" if self.tier == "disk" else "host"
        copies = (
            f"copies: {format_bytes(plan.sent_bytes)} sent; most at a time in {where}: predicted "
            f"{format_bytes(plan.host_peak)}, measured {format_bytes(self.host_peak)}; the predicted overhead is with "
            f"{plan.transfers.describe()}"
        )
        return f"{super().__str__()}\n{copies}"


@dataclass(frozen=True)
class Allocator:
    """Peaks of the CUDA allocator while the plan ran: requested, allocated and reserved bytes.

    Attributes:
        process: of the whole process, with everything else that lies on the device.
        plan: what the plan added to each, and the resident bytes: what stands beside a budget.
        libraries: requested bytes that cuBLAS keeps from its first call on, for each thread: part of the process, and
            of no plan.
    """

    process: AllocatorBytes
    plan: AllocatorBytes
    libraries: int = 0


@dataclass(frozen=True)
class Reference:
    """Plain PyTorch: its peak in bytes (resident bytes included) and median seconds, and how the plan compares."""

    peak: int
    seconds: float
    comparison: Comparison


_TRACE_PROCESS = 1
_TRACE_LANES = {"forward": 1, "backward": 2, "recomputed": 3}


def _trace_document(
    plan: AnyPlan,
    device: str,
    statement_seconds: np.ndarray,
    during: np.ndarray,
    after: np.ndarray,
    other: dict[str, Any],
) -> dict[str, Any]:
    """The trace as a JSON object: one slice for each computation, and predicted and measured memory over time.

    Times are microseconds of the run in which each statement was waited for. For each statement, ``statement_seconds``
    is float64, ``during`` (the highest within it) and ``after`` are measured bytes, int64.
    """
    ends = np.cumsum(statement_seconds) * 1e6
    begins = ends - statement_seconds * 1e6
    title = f"{plan.graph.name} on {device}"
    events: list[dict[str, Any]] = [_trace_name("process_name", 0, title)]
    events += [_trace_name("thread_name", lane, name) for name, lane in _TRACE_LANES.items()]
    for i, statement in enumerate(plan.statements):
        if not isinstance(statement, Compute):
            continue
        node = plan.graph.operations[statement.operation]
        events.append(
            {
                "name": node.name,
                "cat": node.phase if statement.first else "recomputed",
                "ph": "X",
                "pid": _TRACE_PROCESS,
                "tid": _TRACE_LANES[node.phase if statement.first else "recomputed"],
                "ts": float(begins[i]),
                "dur": float(ends[i] - begins[i]),
                "args": {
                    "statement": plan.text(statement),
                    "stage": statement.stage,
                    "measured bytes": int(during[i]),
                    "predicted bytes": int(plan.timeline.during[i]),
                },
            }
        )
    events += _trace_counter("memory measured", begins, ends, during, after)
    events += _trace_counter("memory predicted", begins, ends, plan.timeline.during, plan.timeline.after)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}


def _trace_counter(
    name: str, begins: np.ndarray, ends: np.ndarray, during: np.ndarray, after: np.ndarray
) -> list[dict[str, Any]]:
    """A counter that shows the highest memory within each statement, and what remains after it."""
    points = [(float(time), int(size)) for i in range(len(during)) for time, size in
              ((begins[i], during[i]), (ends[i], after[i]))]  # fmt: skip
    kept = points[:1] + [now for before, now in pairwise(points) if before[1] != now[1]]
    return [{"name": name, "ph": "C", "pid": _TRACE_PROCESS, "ts": t, "args": {"bytes": size}} for t, size in kept]


def _trace_name(kind: str, lane: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": _TRACE_PROCESS, "tid": lane, "args": {"name": name}}

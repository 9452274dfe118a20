"""Every contender in its turn: memory and results first, then the times."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Sequence

from remat_explorer.capture.model_placement import is_out_of_memory
from remat_explorer.capture.trace_errors import first_line
from remat_explorer.checker import replay
from remat_explorer.errors import OutOfMemoryError
from remat_explorer.runtime.comparison import Comparison
from remat_explorer.runtime.peers.contenders import Contender
from remat_explorer.runtime.peers.entries import Entry
from remat_explorer.runtime.peers.peer_bench import PeerBench, Ran
from remat_explorer.runtime.peers.peer_measurement import PeerMeasurement
from remat_explorer.runtime.peers.progress import PeerProgress


def measured_in_turn(
    bench: PeerBench, eager: Contender, others: Sequence[Entry], repeats: int, progress: PeerProgress
) -> list[PeerMeasurement]:
    """One measurement for each entry, ``eager`` first, whose results are the reference of all."""
    measurements: dict[Entry, PeerMeasurement] = {}
    reference: Ran | None = None
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
            measurements[entry] = PeerMeasurement(entry.name, entry.knob, problem=_problem(error), plan=entry.plan)
            progress.advance(1 + repeats)
            continue
        if entry is eager:
            reference = ran.copied()
        peak, result = ran.peak, None if reference is None else bench.compare(ran, reference)
        del ran  # its gradients would take room from the next one
        if result is not None and reference is not None and any(one.kind != "buffer" for one in result.differences):
            result = dataclasses.replace(result, varying=bench.varying(eager, reference))
        measurements[entry] = _measurement(entry, peak, result)
        progress.advance()
    contenders = [e for e in (eager, *others) if not isinstance(e, PeerMeasurement) and measurements[e].problem is None]
    seconds = bench.seconds(contenders, repeats, progress.advance)
    for contender, median in seconds.items():
        overhead = median / seconds[eager] if eager in seconds else None
        measurements[contender] = dataclasses.replace(measurements[contender], seconds=median, overhead=overhead)
    return list(measurements.values())


def _measurement(contender: Contender, peak: int, result: Comparison | None) -> PeerMeasurement:
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


def _problem(error: Exception) -> str:
    if is_out_of_memory(error) or isinstance(error, OutOfMemoryError):
        return "memory ran out"
    if "modified by an inplace operation" in str(error):
        return "a layer in place right after the end of a checkpoint overwrites a tensor that the backward pass needs"
    return f"it does not run: {first_line(error).rstrip('.')}"

"""Every contender in its turn: memory and results first, then the times."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from remat_explorer.capture.joint.explain import first_line
from remat_explorer.capture.out_of_memory import is_out_of_memory
from remat_explorer.checker import replay
from remat_explorer.errors import OutOfMemoryError
from remat_explorer.runtime.peers.contenders import Contender
from remat_explorer.runtime.peers.entries import Entry
from remat_explorer.runtime.peers.measurement import PeerMeasurement
from remat_explorer.runtime.peers.peer_bench import PeerBench, Ran
from remat_explorer.runtime.peers.progress import Progress


def measured_in_turn(
    bench: PeerBench, eager: Contender, others: Sequence[Entry], repeats: int, progress: Progress
) -> list[PeerMeasurement]:
    """One measurement for each entry, ``eager`` first, whose results are the reference of all."""
    found: dict[Entry, PeerMeasurement] = {}
    reference: Ran | None = None
    for entry in (eager, *others):
        if isinstance(entry, PeerMeasurement):
            found[entry] = entry
            progress.advance(1 + repeats)
            continue
        try:
            ran = bench.run(entry)
        except Exception as error:  # whatever a person's model does when it is run in another way
            progress.stop()
            found[entry] = PeerMeasurement(entry.name, entry.knob, problem=_problem(error), plan=entry.plan)
            progress.advance(1 + repeats)
            continue
        if entry is eager:
            reference = ran.copied()
        found[entry] = _measurement(entry, ran, bench, reference)
        del ran  # its gradients would take room from the next one
        progress.advance()
    contenders = [e for e in (eager, *others) if not isinstance(e, PeerMeasurement) and found[e].problem is None]
    seconds = bench.seconds(contenders, repeats, progress.advance)
    for contender, median in seconds.items():
        overhead = median / seconds[eager] if eager in seconds else None
        found[contender] = dataclasses.replace(found[contender], seconds=median, overhead=overhead)
    return list(found.values())


def _measurement(contender: Contender, ran: Ran, bench: PeerBench, reference: Ran | None) -> PeerMeasurement:
    found = PeerMeasurement(contender.name, contender.knob, ran.peak, plan=contender.plan)
    if (plan := contender.plan) is not None:
        overhead = replay(plan)[0] / plan.graph.total_cost
        found = dataclasses.replace(found, predicted_peak=plan.peak, predicted_overhead=overhead)
    if reference is None:  # eager did not run
        return found
    result = bench.compare(ran, reference)
    return dataclasses.replace(
        found,
        gradients_equal=result.gradients_equal,
        gradient_difference=result.gradient_difference,
        buffers_equal=result.buffers_equal,
        rng_equal=result.random_state_equal,
    )


def _problem(error: Exception) -> str:
    if is_out_of_memory(error) or isinstance(error, OutOfMemoryError):
        return "memory ran out"
    if "modified by an inplace operation" in str(error):
        return "a layer in place right after the end of a checkpoint overwrites a tensor that the backward pass needs"
    return f"it does not run: {first_line(error).rstrip('.')}"

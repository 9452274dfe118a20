"""Runs contenders from the same state, one after another, and reads memory, time and results."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.capture.model_placement import Placement
from remat_explorer.runtime.comparison import Comparison, Final, compare
from remat_explorer.runtime.differences.sizes import Difference
from remat_explorer.runtime.eager import Eager
from remat_explorer.runtime.peers.contenders import Contender
from remat_explorer.runtime.starting_point import StartingPoint
from remat_explorer.runtime.timing import seconds_in_turn


@dataclass(frozen=True, eq=False)
class Ran:
    """One metered run: peak bytes with resident bytes, and what it leaves behind."""

    peak: int
    final: Final

    def copied(self) -> Ran:
        """The same with results of its own, which no later run changes."""
        return Ran(self.peak, Final(self.final.outcome.copied(), self.final.states))


class PeerBench:
    """One device, with the buffers and the random state from which every contender starts.

    Args:
        placed: the model on its device; its buffers are the ones to start from, and no contender writes to them.
        training: whose buffers and gradients are set back before each run.
        resident_bytes: bytes that are there before a step and count in every peak.
    """

    def __init__(self, placed: Placement, training: Eager, resident_bytes: int) -> None:
        self._placed, self._resident = placed, resident_bytes
        self._start = StartingPoint(training, placed.device)
        self._varying: tuple[Difference, ...] | None = None

    def run(self, contender: Contender) -> Ran:
        """One metered run after one that warms up. Results are valid until the next run."""
        self._start.rewind()
        with contender.prepare() as run:
            run()  # warms up: kernels are chosen on their first call
        self._start.rewind()
        meter = memory_meter(self._placed.device)
        with contender.prepare(meter.section) as run, meter:
            outcome = run()
        peak = self._resident + max(reading.highest for reading in meter.readings)
        return Ran(peak, Final(outcome, self._start.states()))

    def compare(self, ran: Ran, reference: Ran) -> Comparison:
        """How far results are from those of another run; a plan tells only the buffers that it writes."""
        return compare(ran.final, reference.final, dict(self._placed.model.named_buffers()))

    def varying(self, eager: Contender, reference: Ran) -> tuple[Difference, ...]:
        """How far eager PyTorch is from itself when it runs again; it runs when this is asked for the first time."""
        if self._varying is None:
            self._varying = self.compare(self.run(eager), reference).differences
        return self._varying

    def seconds(
        self, contenders: Sequence[Contender], repeats: int, advance: Callable[[], None]
    ) -> dict[Contender, float]:
        """Median seconds of contenders that take turns."""
        taken = seconds_in_turn({one: one.prepare for one in contenders}, self._start, repeats, advance)
        return {one: statistics.median(seconds) for one, seconds in taken.items()}

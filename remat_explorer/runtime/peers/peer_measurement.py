"""What was measured when a peer ran: another way to train the same model in less memory, or plain PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds


@dataclass(frozen=True, eq=False)
class PeerMeasurement:
    """One peer with one setting of its knob; what could not be measured is None.

    Attributes:
        name: "eager", "checkpoint-sequential", "checkpoint-blocks" or "pytorch-budget".
        knob: the setting, such as "4 segments", "12 × Block" or "budget 0.5, dp"; None where there is none.
        problem: why it does not apply or did not run, in one sentence; None if it ran.
        peak: measured peak bytes, resident bytes included.
        predicted_peak: the same as predicted, for a peer that is a plan on a profiled graph.
        predicted_overhead: the plan's cost over that of computing everything once, likewise.
        seconds: median time of a training step, peers taken in turn.
        overhead: that time over eager's.
        gradients_equal, buffers_equal, rng_equal: equal bit for bit to eager's: gradients, buffers, random state after.
        gradient_difference: largest absolute difference from eager's gradients.
        as_plain_varies: whether results differ, but only those that eager does not repeat either, and by about as much.
        plan: the plan on the uncontracted graph, for a peer that is one.

    >>> print(PeerMeasurement("checkpoint-blocks", problem="no blocks"))
    checkpoint-blocks: no blocks
    >>> print(PeerMeasurement("eager", None, 2048, None, None, 0.5, 1.0, True, True, True, 0.0))
    eager: peak 2.00 KiB, 500 ms (+0.0 %), gradients equal, buffers equal, random state equal
    """

    name: str
    knob: str | None = None
    peak: int | None = None
    predicted_peak: int | None = None
    predicted_overhead: float | None = None
    seconds: float | None = None
    overhead: float | None = None
    gradients_equal: bool | None = None
    buffers_equal: bool | None = None
    rng_equal: bool | None = None
    gradient_difference: float | None = None
    problem: str | None = None
    plan: Plan | None = None
    as_plain_varies: bool = False

    @property
    def title(self) -> str:
        """Name and knob."""
        return f"{self.name} ({self.knob})" if self.knob else self.name

    def to_document(self) -> dict[str, Any]:
        """Everything but the plan, as a JSON object; memory in bytes, time in seconds."""
        return {
            "name": self.name,
            "knob": self.knob,
            "measured_peak": self.peak,
            "predicted_peak": self.predicted_peak,
            "predicted_overhead": self.predicted_overhead,
            "seconds": self.seconds,
            "overhead": self.overhead,
            "gradients_equal": self.gradients_equal,
            "buffers_equal": self.buffers_equal,
            "random_state_equal": self.rng_equal,
            "gradient_difference": self.gradient_difference,
            "as_plain_varies": self.as_plain_varies,
            "problem": self.problem,
        }

    def __str__(self) -> str:
        if self.problem is not None or self.peak is None:
            return f"{self.title}: {self.problem}"
        peak = f"peak {format_bytes(self.peak)}"
        if self.predicted_peak is not None:
            peak += f" (predicted {format_bytes(self.predicted_peak)})"
        parts = [peak]
        if self.seconds is not None:
            relative = f" ({format_overhead(self.overhead)})" if self.overhead is not None else ""
            parts.append(format_seconds(self.seconds) + relative)
        if self.gradients_equal is False and self.as_plain_varies:
            parts.append(f"gradients vary as eager's do, by up to {self.gradient_difference:g}")
        elif self.gradients_equal is False:
            parts.append(f"gradients DIFFER by up to {self.gradient_difference:g}")
        elif self.gradients_equal:
            parts.append("gradients equal")
        for what, equal in (("buffers", self.buffers_equal), ("random state", self.rng_equal)):
            if equal is not None:
                parts.append(f"{what} equal" if equal else f"{what} {'vary' if self.as_plain_varies else 'DIFFER'}")
        return f"{self.title}: {', '.join(parts)}"

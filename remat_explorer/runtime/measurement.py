"""What was measured when a plan ran, beside what was predicted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.plan import Timeline
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds


@dataclass(frozen=True, eq=False)
class Measurement:
    """One executed solution.

    Attributes:
        device: name of the device.
        predicted: the plan's timeline.
        during: measured highest bytes within each statement, resident bytes added, int64.
        after: measured bytes after each statement, resident bytes added, int64.
        resident_bytes: parameters, buffers, inputs and constants; known, not measured.
        budget: bytes that the solution was made for.
        seconds: median time of the plan.
        checkpoint_all_seconds: median time of the plan that keeps everything, taken in turn with it.
        predicted_overhead: cost of the schedule over the cost of computing everything once.
        eager_seconds: median time of plain PyTorch.
        eager_peak: peak bytes of plain PyTorch, resident bytes included.
        loss_difference, gradient_difference: largest absolute difference from plain PyTorch.
        gradients_equal, buffers_equal, rng_equal: equal bit for bit: gradients, buffers, random state afterwards.
        allocated, requested, reserved: peaks of the CUDA allocator, all of the process; None on the CPU.
    """

    device: str
    predicted: Timeline
    during: np.ndarray
    after: np.ndarray
    resident_bytes: int
    budget: int
    seconds: float
    checkpoint_all_seconds: float
    predicted_overhead: float
    eager_seconds: float
    eager_peak: int
    loss_difference: float
    gradient_difference: float
    gradients_equal: bool
    buffers_equal: bool
    rng_equal: bool
    allocated: int | None = None
    requested: int | None = None
    reserved: int | None = None

    @property
    def peak(self) -> int:
        """Measured peak in bytes, resident bytes included."""
        return int(self.during.max())

    @property
    def predicted_peak(self) -> int:
        """Predicted peak in bytes, resident bytes included."""
        return self.predicted.peak

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
        """Whether the measured peak kept to the budget."""
        return self.peak <= self.budget

    @property
    def overhead(self) -> float:
        """Measured time over that of the plan that keeps everything."""
        return self.seconds / self.checkpoint_all_seconds

    def __str__(self) -> str:
        verdict = "within" if self.within_budget else "ABOVE"
        equal = "gradients equal" if self.gradients_equal else "gradients DIFFER"
        lines = [
            f"on {self.device}",
            f"peak: predicted {format_bytes(self.predicted_peak)}, measured {format_bytes(self.peak)} "
            f"(error {self.error:+.3%}, without resident bytes {self.dynamic_error:+.3%})",
            f"budget: {format_bytes(self.budget)}, measured peak is {verdict} it",
            f"overhead: predicted {format_overhead(self.predicted_overhead)}, measured "
            f"{format_overhead(self.overhead)} ({format_seconds(self.seconds)} against "
            f"{format_seconds(self.checkpoint_all_seconds)} for keeping everything)",
            f"plain PyTorch: {format_bytes(self.eager_peak)}, {format_seconds(self.eager_seconds)}",
            f"{equal}: max difference {self.gradient_difference:g}",
            f"loss: difference {self.loss_difference:g}; buffers {'equal' if self.buffers_equal else 'DIFFER'}; "
            f"random state {'equal' if self.rng_equal else 'DIFFERS'}",
        ]
        if self.allocated is not None and self.requested is not None and self.reserved is not None:
            lines.append(
                f"CUDA, the whole process: requested {format_bytes(self.requested)}, allocated "
                f"{format_bytes(self.allocated)}, reserved {format_bytes(self.reserved)}"
            )
        return "\n".join(lines)

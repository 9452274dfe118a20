"""Whether a plan does what was predicted: each model keeping everything, and in the smallest budget that is known.

Predicted beside measured peak (requested, allocated, reserved), and loss, gradients and buffers beside plain PyTorch's.
"""

from __future__ import annotations

from gpu_parts.memory import measure_models
from gpu_parts.models import VALIDATED
from gpu_parts.work import Work

SHARES = ("100%", "smallest")


def run(work: Work) -> None:
    """Model after model."""
    measure_models(VALIDATED, SHARES, work)

"""What an execution has proven, in one line."""

from __future__ import annotations

from typing import Any

from remat_explorer.quantities import format_bytes


def proof(measurement: Any) -> str:
    """Memory as it was predicted and measured, gradients, and memory beside plain PyTorch's.

    Args:
        measurement: a `remat_explorer.runtime.Measurement`.

    Returns:
        One line such as "14.0 MiB predicted, 14.0 MiB measured; gradients equal bit for bit; 41 % less memory than
        plain PyTorch". A budget that was passed and results that differ are said in capitals.
    """
    parts = [f"{format_bytes(measurement.predicted_peak)} predicted, {format_bytes(measurement.peak)} measured"]
    highest = max(measurement.peak, measurement.generated_peak)
    if not measurement.within_budget:
        which = "" if measurement.peak > measurement.budget else f"{format_bytes(highest)} in the timed runs, "
        parts[0] += f", {which}ABOVE the budget of {format_bytes(measurement.budget)}"
    if measurement.eager is None:
        parts.append(f"not compared with plain PyTorch: {measurement.missing or 'it did not run'}")
        return "; ".join(parts)
    parts += [_results(measurement.eager.comparison), _beside(highest, measurement.eager.peak)]
    return "; ".join(parts)


def _results(compared: Any) -> str:
    """The gradients in words, and what else is not plain PyTorch's."""
    if compared.equal:
        return "gradients equal bit for bit"
    others = {
        "the loss": compared.loss_difference == 0,
        "buffers": compared.buffers_equal,
        "the random state": compared.random_state_equal,
    }
    differ = [name for name, equal in others.items() if not equal]
    if not compared.gradients_equal or not differ:
        return f"gradients {compared.gradients_text}"
    last = f"{', '.join(differ[:-1])} and {differ[-1]}" if len(differ) > 1 else differ[0]
    return f"gradients equal bit for bit, but {last} DIFFER{'' if len(differ) > 1 or last == 'buffers' else 'S'}"


def _beside(peak: int, plain: int) -> str:
    """How much less or more a peak is than plain PyTorch's.

    >>> _beside(59, 100), _beside(103, 100), _beside(100, 100)
    ('41 % less memory than plain PyTorch', '3 % more memory than plain PyTorch', 'as much memory as plain PyTorch')
    """
    share = 100 * (1 - peak / plain) if plain else 0.0
    if abs(share) < 0.5:
        return "as much memory as plain PyTorch"
    return f"{abs(share):.0f} % {'less' if share > 0 else 'more'} memory than plain PyTorch"

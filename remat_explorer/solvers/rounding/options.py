"""The values that options of the rounding strategies may have."""

from __future__ import annotations

import math
import numbers

from remat_explorer.errors import SolverError, shown


def require_epsilon(epsilon: object) -> float:
    """The allowance, if it is a share of the budget.

    Raises:
        SolverError: quoting it.

    >>> require_epsilon(1.5)
    Traceback (most recent call last):
        ...
    remat_explorer.errors.SolverError: epsilon is 1.5; expected a share of the budget from 0 to less than 1, such as 0.1
    """
    number = _number(epsilon)
    if number is None or not 0 <= number < 1:
        raise SolverError(
            f"epsilon is {shown(epsilon)}; expected a share of the budget from 0 to less than 1, such as 0.1"
        )
    return number


def require_threshold(threshold: object) -> float:
    """The threshold above which a value is retained, if it lies from 0 to less than 1.

    Raises:
        SolverError: quoting it.
    """
    number = _number(threshold)
    if number is None or not 0 <= number < 1:
        raise SolverError(f"threshold is {shown(threshold)}; expected a number from 0 to less than 1, such as 0.5")
    return number


def require_samples(samples: object) -> int:
    """The number of samples, if there is at least one.

    Raises:
        SolverError: quoting it.
    """
    if isinstance(samples, bool) or not isinstance(samples, numbers.Integral) or samples < 1:
        raise SolverError(f"samples is {shown(samples)}; expected a whole number of at least 1, such as 100")
    return int(samples)


def require_seed(seed: object) -> int:
    """The seed of the random numbers, if it is a whole number of at least 0.

    Raises:
        SolverError: quoting it.
    """
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or seed < 0:
        raise SolverError(f"seed is {shown(seed)}; expected a whole number of at least 0")
    return int(seed)


def _number(given: object) -> float | None:
    """``given`` as a finite float, or None."""
    try:
        number = math.nan if isinstance(given, bool) or not isinstance(given, numbers.Real) else float(given)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None

"""The shares of a device's rates that fit measured times best."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable

from p100_measurements import Measured

from remat_explorer.capture import find_device
from remat_explorer.capture.predicted_costs import SHARES, Shares, kernel_time

DEVICE = find_device("P100")
STEPS = (2.0, 1.3, 1.1, 1.03)  # factors by which a share is changed, one round after the other
MOST = 0.9  # of a rate; more would say that the formula counts too much
START = Shares(**(dict.fromkeys(dataclasses.asdict(SHARES), 0.5)))  # knows nothing of measurements
START = dataclasses.replace(START, depthwise=0.05, depthwise_gradients=0.05)  # so that arithmetic decides, not memory


def of_measured(one: Measured, shares: Shares) -> float:
    """Milliseconds that the kernels of an operation are predicted to take."""
    return sum(1e3 * kernel_time(work, DEVICE, shares) for work in one.works)


def fitted(every: Iterable[Measured]) -> tuple[Shares, list[str]]:
    """The shares with the least sum of |log(predicted / measured)|, weighted by time, and those that nothing tells.

    They are searched for one at a time, from a start that knows nothing. Shares that no operation depends on are those
    of `SHARES`, and their names the second result.
    """
    weights: Counter[tuple[tuple, float]] = Counter()
    for one in every:
        weights[one.works, one.ms] += 1

    def error(shares: Shares) -> float:
        return sum(
            number * ms * abs(math.log(sum(1e3 * kernel_time(work, DEVICE, shares) for work in works) / ms))
            for (works, ms), number in weights.items()
            if ms > 0
        )

    shares, least = START, error(START)
    for step in STEPS:
        improved = True
        while improved:
            improved = False
            for name, value in dataclasses.asdict(shares).items():
                for other in (value * step, value / step):
                    if other > MOST:
                        continue
                    changed = dataclasses.replace(shares, **{name: other})
                    if (now := error(changed)) < least * (1 - 1e-6):
                        shares, least, improved = changed, now, True
    untold = [
        name
        for name, value in dataclasses.asdict(shares).items()
        if all(error(dataclasses.replace(shares, **{name: value * factor})) == least for factor in (0.1, 1.5))
    ]
    return dataclasses.replace(shares, **{name: getattr(SHARES, name) for name in untold}), untold

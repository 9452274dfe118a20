"""Bytes on an axis: one unit for a whole figure, chosen by its largest number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ByteAxis:
    """A unit and how many bytes it has.

    >>> axis = ByteAxis.up_to(3 * 2**30)
    >>> axis.unit, axis.scaled(2**29)
    ('GiB', 0.5)
    """

    unit: str
    bytes: int

    @staticmethod
    def up_to(largest: float) -> ByteAxis:
        """The unit in which ``largest`` bytes is a number from 1 to 1023, where there is one."""
        power = 0
        while power < 4 and largest >= 1024 ** (power + 1):
            power += 1
        return ByteAxis(("bytes", "KiB", "MiB", "GiB", "TiB")[power], 1024**power)

    def scaled(self, count: np.ndarray | float) -> np.ndarray | float:
        """Bytes as multiples of the unit."""
        return count / self.bytes

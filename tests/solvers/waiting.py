"""What tests of other processes wait for."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether ``condition`` came true in time; it is not asked again once it has."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False

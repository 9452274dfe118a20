"""How far a comparison is, and whether it shall go on."""

from __future__ import annotations

from collections.abc import Callable

from remat_explorer.errors import ExecutionError


class PeerProgress:
    """Counts steps, and stops between two of them."""

    def __init__(self, total: int, on_progress: Callable[[int, int], None], cancelled: Callable[[], bool]) -> None:
        self._done, self._total = 0, total
        self._on_progress, self.cancelled = on_progress, cancelled

    def advance(self, steps: int = 1) -> None:
        """Some steps are done."""
        self._done += steps
        self._on_progress(self._done, self._total)
        self.stop()

    def stop(self) -> None:
        """Raise if the comparison was cancelled."""
        if self.cancelled():
            raise ExecutionError("the comparison of peers was cancelled")

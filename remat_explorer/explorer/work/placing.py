"""Where the values of the plan on the screen lie in memory: at once by first fit, then better, in the background."""

from __future__ import annotations

import threading
from typing import Any

from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.background import has_ended
from remat_explorer.graph import Graph
from remat_explorer.offsets import Arena, Rectangles, place, place_at_once
from remat_explorer.offsets.placement import ALIGNMENT
from remat_explorer.plan import Plan

LIMIT = 2.0  # seconds for a better placement


class Placer:
    """Fills ``state.arena`` while the memory map is looked at.

    The first placement is there before the statement that changes the schedule ends. A search for a better one begins
    where it is not proven to be the smallest; another schedule, or another picture, ends it.

    Args:
        state: whose picture and schedule are followed.

    >>> import remat_explorer as rx
    >>> solution = rx.solve(rx.linear(8), 4)
    >>> state = State(graph=solution.graph, picture="memory")
    >>> placer = Placer(state)
    >>> state.schedule = solution.schedule
    >>> state.arena.size
    4
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._placed: Plan | None = None
        state.observe(self._follow, ["schedule", "picture"])
        self._follow()

    def cancel(self) -> None:
        """End the search for a better placement; the one that is known stays."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until no search is under way; returns whether that came true in ``timeout`` seconds."""
        return has_ended(self._thread, timeout)

    def _follow(self, change: Any = None) -> None:
        state = self._state
        with state.lock:
            plan = state.plan if state.picture == "memory" else None
            if plan is None or plan is self._placed:
                if plan is None:
                    self.cancel()
                    self._placed = state.arena = None
                return
            self.cancel()
            self._placed = plan
            state.arena = arena = place_at_once(Rectangles.of(plan), alignment_of(plan.graph))
        if not arena.optimal:
            stop = self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._improve, args=(plan, stop, self._thread), name="remat-placing", daemon=True
            )
            self._thread.start()

    def _improve(self, plan: Plan, stop: threading.Event, previous: threading.Thread | None) -> None:
        if previous is not None:
            previous.join()
        state = self._state
        better = place(plan, alignment_of(plan.graph), LIMIT, stop.is_set)
        with state.lock:
            shown = state.arena
            if self._placed is plan and shown is not None and not stop.is_set() and is_better(better, shown):
                state.arena = better


def is_better(arena: Arena, than: Arena) -> bool:
    """Whether an arena is smaller than another, or more is proven of it."""
    return (arena.size, -arena.bound) < (than.size, -than.bound)


def alignment_of(graph: Graph) -> int:
    """Bytes that offsets are a multiple of: as on a GPU for captured graphs, 1 for graphs whose bytes are units.

    >>> from remat_explorer.instances import linear
    >>> alignment_of(linear(2))
    1
    """
    return 1 if graph.options is None else ALIGNMENT

"""Work that must not stop the kernel from answering: one thread at a time, cancelled by an event."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from remat_explorer.errors import RematError
from remat_explorer.explorer.state.state import State

TICK = 0.25  # seconds between two updates of the clock in the status line
Work = Callable[[threading.Event], None]


def has_ended(thread: threading.Thread | None, timeout: float | None = None) -> bool:
    """Block until a thread has ended, if there is one; returns whether that came true in ``timeout`` seconds."""
    if thread is not None and thread is not threading.current_thread():
        thread.join(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))
    return thread is None or not thread.is_alive()


class Background:
    """Runs one piece of work after another, and keeps the state's `busy` and `elapsed` true.

    >>> state = State()
    >>> background = Background(state)
    >>> background.start("loading", lambda cancelled: state.say("Loaded."))
    >>> background.wait(5), state.status, state.busy
    (True, 'Loaded.', '')
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._thread: threading.Thread | None = None
        self._events: list[threading.Event] = []  # of what is under way and of what waits behind it

    def start(self, busy: str, work: Work) -> None:
        """Run ``work`` once what is under way has ended; it is given the event that `cancel` sets."""
        cancelled = threading.Event()
        self._events.append(cancelled)
        arguments = (busy, work, cancelled, self._thread)
        self._thread = threading.Thread(target=self._run, args=arguments, name=f"remat-{busy}", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Ask the work under way to stop with what it has; what waits behind it is not begun."""
        for cancelled in list(self._events):
            cancelled.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is under way; returns whether that came true in ``timeout`` seconds."""
        return has_ended(self._thread, timeout)

    def _run(self, busy: str, work: Work, cancelled: threading.Event, previous: threading.Thread | None) -> None:
        if previous is not None:
            previous.join()
        if not cancelled.is_set():
            self._work(busy, work, cancelled)
        self._events.remove(cancelled)

    def _work(self, busy: str, work: Work, cancelled: threading.Event) -> None:
        state, finished = self._state, threading.Event()
        state.elapsed, state.progress, state.busy = 0.0, None, busy
        clock = threading.Thread(target=self._tick, args=(finished,), daemon=True)
        clock.start()
        try:
            work(cancelled)
        except RematError as error:
            state.say(str(error), "error")
        except Exception as error:  # whatever a person's own model raises belongs in the status line
            state.say(f"{state.doing} failed: {type(error).__name__}: {error}", "error")
        finally:
            finished.set()
            state.progress, state.busy = None, ""
            clock.join()  # no thread outlives the work

    def _tick(self, finished: threading.Event) -> None:
        started = time.monotonic()
        while not finished.wait(TICK):
            self._state.elapsed = time.monotonic() - started

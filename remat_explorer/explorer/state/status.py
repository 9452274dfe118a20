"""The status line as traits: one sentence, how it is meant, and which entry it refuses."""

from __future__ import annotations

import threading
from typing import Any

import traitlets as t


class Status(t.HasTraits):
    """What is going on, in one sentence; changes of all its traits are told one at a time, from whichever thread.

    >>> status = Status()
    >>> status.refuse("'x' is not a batch size")
    >>> status.status, status.tone
    ("'x' is not a batch size", 'error')
    >>> status.accept()
    >>> status.status, status.tone
    ('Ready.', 'plain')
    """

    status = t.Unicode("Ready.", help="What the explorer is doing, or what came of it.")
    tone = t.Enum(("plain", "good", "warning", "error"), "plain", help="How the status is meant.")

    def __init__(self, **settings: Any) -> None:
        self.lock = threading.RLock()
        self._refusal, self._before = "", ("Ready.", "plain")  # why an entry was refused, and what was said before it
        super().__init__(**settings)

    def notify_change(self, change: Any) -> None:
        """Tell the observers, one change at a time: workers and clicks change the state from different threads."""
        with self.lock:
            super().notify_change(change)

    def say(self, status: str, tone: str = "plain") -> None:
        """Put a sentence into the status line."""
        with self.lock:
            self.tone = tone
            self.status = status

    def refuse(self, status: str) -> None:
        """Say why an entry was not taken; the next one that is taken brings back what the status line said before."""
        with self.lock:
            before = self._before if self.status == self._refusal else (self.status, self.tone)
            self._refusal, self._before = status, before
            self.say(status, "error")

    def accept(self) -> None:
        """An entry was taken: why an earlier one was not is over."""
        with self.lock:
            if self._refusal and self.status == self._refusal:
                self.say(*self._before)
            self._refusal = ""

"""Helpers for tests that drive the explorer without a browser."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import remat_explorer as rx
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.driver import Driver
from remat_explorer.explorer.work.model_sources import ModelSources


def driver_of(graph: rx.Graph, budget: Any = None, **settings: Any) -> Any:
    """A driver with a loaded graph; there are no widgets. Nothing works by itself unless ``settings`` say so."""
    state = State(**{"improve": False, "sweep": False} | settings)
    return settled(Driver(state, ModelSources(graph=graph), budget))


def settled(explorer: Any) -> Any:
    """The explorer once nothing that was asked for is under way."""
    assert explorer.wait(120)
    return explorer


def until(condition: Callable[[], Any], seconds: float = 60) -> bool:
    """Whether something comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False

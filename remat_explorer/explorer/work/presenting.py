"""Shows the scenes of a presentation, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remat_explorer.errors import QuantityError
from remat_explorer.explorer.state.scenes import Scene, as_of, caption_of, selection_of
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.proof import proof


class Presenting:
    """Brings the state to the scene that ``state.scene`` names, as soon as there is a schedule.

    While the scene is shown, a better schedule takes its place and its numbers with it.

    Args:
        state: its ``scenes`` are shown.
        execute: what executes the schedule on the screen.
    """

    def __init__(self, state: State, execute: Callable[[], None]) -> None:
        self._state, self._execute = state, execute
        self._due = False
        self._shown = -1  # the scene that was begun last
        state.observe(self._enter, ["scene", "scenes"])
        state.observe(self._follow, ["schedule", "busy", "measurement"])

    @property
    def _scene(self) -> Scene | None:
        state = self._state
        return state.scenes[state.scene] if 0 <= state.scene < len(state.scenes) else None

    def _enter(self, change: Any) -> None:
        self._state.playing = False
        self._due = self._scene is not None
        if not self._due or change["name"] == "scenes":
            self._shown = -1
        self._follow()

    def _follow(self, change: Any = None) -> None:
        state, scene = self._state, self._scene
        if scene is None:
            state.caption = ""
            return
        if self._due and state.schedule is not None and state.busy != "loading":
            self._due = False
            goes_on = state.scene == self._shown + 1
            self._shown = state.scene
            self._begin(scene if goes_on else as_of(state.scenes, state.scene))
        elif change is not None and change["name"] == "schedule":
            self._go(scene)
        state.caption = caption_of(scene, state, proof(state.measurement) if state.measurement else "")

    def _begin(self, scene: Scene) -> None:
        state = self._state
        try:
            if scene.budget is not None:
                state.set_budget(scene.budget)
        except QuantityError as error:
            state.say(str(error), "error")
        for name in ("picture", "panel"):
            if getattr(scene, name) is not None:
                setattr(state, name, getattr(scene, name))
        self._go(scene)
        if scene.play:
            state.stage = state.stage if scene.at is not None else 0
            state.playing = True
        if scene.execute and state.measurement is None:
            self._execute()

    def _go(self, scene: Scene) -> None:
        stage, value = selection_of(scene, self._state)
        with self._state.at_once():
            if stage is not None:
                self._state.stage = stage
            if value is not None:
                self._state.value = value

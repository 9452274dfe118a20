"""Scenes of a presentation: what is on the screen, and what is said of it with the numbers of the schedule there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from string import Formatter
from typing import Any

from remat_explorer.errors import QuantityError, UnknownNameError
from remat_explorer.explanations import dearest_recomputation, peak_look
from remat_explorer.explorer.controllers.executing import describe_proof
from remat_explorer.explorer.controllers.screen import show_schedule
from remat_explorer.explorer.state.state import PANELS, PICTURES, State
from remat_explorer.quantities import format_bytes, format_overhead

PEAK, RECOMPUTATION = "peak", "recomputation"
_RESTORED = ("graph", "picture", "panel", "budget", "schedule", "solution", "sending", "measurement", "stage", "value")
_STAYING = ("budget", "picture", "panel")  # what a scene may leave as it was
_NUMBERS = ("model", "budget", "peak", "overhead", "keep_all", "saved", "recomputations", "proof")


@dataclass(frozen=True)
class Scene:
    """One scene; what it does not name stays as it was.

    Args:
        caption: a sentence. ``{model}``, ``{budget}``, ``{peak}``, ``{overhead}``, ``{keep_all}`` (the peak of keeping
            everything), ``{saved}`` (how much lower the peak is, in percent), ``{recomputations}`` and ``{proof}``
            (what an execution has shown) are filled in.
        budget: what `State.set_budget` takes.
        picture: one of `remat_explorer.explorer.state.state.PICTURES`.
        panel: the panel that is chosen when the presentation ends.
        at: a stage, "peak" for that with the highest memory, or "recomputation" for that of the dearest
            recomputation.
        play: whether the stages play, from the first one if ``at`` names none.
        execute: whether the schedule is executed and measured.

    Raises:
        UnknownNameError: if there is no such picture, panel or number.
        QuantityError: if ``at`` is no place, or a brace of the caption is not closed.

    >>> Scene("{peak} in place of {keep_all}", budget="60%", at="peak").at
    'peak'
    >>> Scene("{paek}")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    remat_explorer.errors.UnknownNameError: unknown number in a caption 'paek'; did you mean 'peak'? Known: ...
    """

    caption: str
    budget: str | int | float | None = None
    picture: str | None = None
    panel: str | None = None
    at: int | str | None = None
    play: bool = False
    execute: bool = False

    def __post_init__(self) -> None:
        for kind, given, known in (("picture", self.picture, PICTURES), ("panel", self.panel, PANELS)):
            if given is not None and given not in known:
                raise UnknownNameError(kind, given, known)
        try:
            names = [name for _, name, _, _ in Formatter().parse(self.caption)]
        except ValueError as error:
            raise QuantityError(f"the caption {self.caption!r} has a brace without its other one: {error}") from None
        for name in names:
            if name is not None and name not in _NUMBERS:
                raise UnknownNameError("number in a caption", name, _NUMBERS)
        if self.at not in (None, PEAK, RECOMPUTATION) and (not isinstance(self.at, int) or self.at < 0):
            raise QuantityError(f"{self.at!r} is no place of a scene: give a stage, {PEAK!r} or {RECOMPUTATION!r}")


def fill_caption(scene: Scene, state: State, proven: str) -> str:
    """The caption with the numbers of the schedule on the screen.

    Args:
        scene: one of the scenes.
        state: its schedule may still be missing.
        proven: what an execution has shown.
    """
    plan, schedule, found = state.shown_plan, state.schedule, state.sending or state.schedule
    whole, peak = state.checkpoint_all_peak, plan.peak if plan else 0
    numbers: dict[str, Any] = {
        "model": state.model,
        "budget": format_bytes(state.budget),
        "peak": format_bytes(peak) if plan else "…",
        "overhead": format_overhead(found.overhead or 1.0) if found else "…",
        "keep_all": format_bytes(whole) if whole else "…",
        "saved": f"{100 * (1 - peak / whole):.0f} %" if plan and whole else "…",
        "recomputations": schedule.recomputations if schedule else "…",
        "proof": proven or "…",
    }
    return scene.caption.format(**numbers)


def scene_selection(scene: Scene, state: State) -> tuple[int | None, int | None]:
    """Stage and value that the scene selects on the schedule on the screen; None for what stays."""
    schedule, plan = state.schedule, state.plan
    if schedule is None or plan is None or scene.at is None:
        return None, None
    if scene.at == PEAK:
        return peak_look(plan)
    if scene.at == RECOMPUTATION:
        return dearest_recomputation(schedule) or (None, None)
    return int(scene.at), None


def complete_scene(scenes: Sequence[Scene], number: int) -> Scene:
    """A scene with budget, picture and panel of the ones before it where it names none itself.

    So it shows the same whether it is reached step by step or by a jump.

    >>> complete_scene([Scene("a", "60%", "model"), Scene("b", picture="matrices"), Scene("c")], 2)
    Scene(caption='c', budget='60%', picture='matrices', panel=None, at=None, play=False, execute=False)
    """
    known: dict[str, Any] = {}
    for scene in scenes[: number + 1]:
        known |= {name: getattr(scene, name) for name in _STAYING if getattr(scene, name) is not None}
    return replace(scenes[number], **known)


def default_scenes(state: State) -> tuple[Scene, ...]:
    """Scenes for any model; the last one is the proof, where the schedule was run."""
    scenes = [
        Scene("{model}: keeping every value for the backward pass takes {keep_all}", "100%", "model", "explain", PEAK),
        Scene("Within 60 % of it: {peak}, for {overhead} time", "60%", "overview", "explain", RECOMPUTATION),
        Scene("Where memory is highest", picture="model", panel="peak", at=PEAK),
        Scene(
            "This is freed, and computed again when it is needed", picture="model", panel="explain", at=RECOMPUTATION
        ),
        Scene("The whole step, compared with plain PyTorch", picture="model", panel="explain", play=True),
    ]
    if state.measurement is not None:
        scenes.append(Scene("Proof: {proof}", picture="overview"))
    return tuple(scenes)


class ScenePlayer:
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
        self._before: dict[str, Any] = {}  # what was on the screen before the first one
        state.observe(self._enter, ["scene", "scenes"])
        state.observe(self._follow, ["schedule", "busy", "measurement"])

    @property
    def _scene(self) -> Scene | None:
        state = self._state
        return state.scenes[state.scene] if 0 <= state.scene < len(state.scenes) else None

    def _enter(self, change: Any) -> None:
        self._state.playing = False
        if self._scene is None:
            self._restore()
        elif not self._before:
            self._before = {name: getattr(self._state, name) for name in _RESTORED}
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
            self._begin(scene if goes_on else complete_scene(state.scenes, state.scene))
        elif change is not None and change["name"] == "schedule":
            self._go(scene)
        state.caption = fill_caption(scene, state, describe_proof(state.measurement) if state.measurement else "")

    def _restore(self) -> None:
        """Bring back what was on the screen before, if it is still of the same model."""
        state, before = self._state, self._before
        self._before = {}
        if not before or before["graph"] is not state.graph:
            return
        with state.at_once():
            for name in ("picture", "panel", "budget"):
                setattr(state, name, before[name])
        if before["schedule"] is not None:
            with state.at_once():
                show_schedule(state, before["schedule"], before["solution"], before["sending"])
                state.measurement, state.stage, state.value = before["measurement"], before["stage"], before["value"]

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
        stage, value = scene_selection(scene, self._state)
        with self._state.at_once():
            if stage is not None:
                self._state.stage = stage
            if value is not None:
                self._state.value = value

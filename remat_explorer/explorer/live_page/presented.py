"""What the live page presents: a run that was measured, and scenes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.executing import describe_proof
from remat_explorer.explorer.work.pacing import moments, pace, pace_text
from remat_explorer.explorer.work.scenes import Scene, complete_scene, default_scenes, fill_caption, scene_selection
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solution import Solution


class Presented:
    """The run and the scenes of a recorded curve.

    Args:
        state: brought to what each scene shows.
        shown: the points of the curve.
        scheduled: their schedules, with their peaks.
        measurement: a `remat_explorer.runtime.Measurement` of one of these schedules, or None.
    """

    def __init__(
        self, state: State, shown: Sequence[Solution], scheduled: Sequence[tuple[Schedule, int]], measurement: Any
    ) -> None:
        self._state, self._shown, self._scheduled, self._measurement = state, shown, scheduled, measurement

    def measured(self, schedule: Schedule) -> Any:
        """The measurement, if it is of this schedule, or None."""
        found = self._measurement
        return found if found is not None and Plan.of(schedule).statements == found.plan.statements else None

    def run(self) -> dict[str, Any] | None:
        """What was measured: the point of the curve, what is proven, and the pace at which its line is drawn."""
        for point, (schedule, peak) in enumerate(self._scheduled):
            found = self.measured(schedule)
            if found is not None:
                said = {"proof": describe_proof(found), "pace": pace_text(found)}
                return {"point": point, "peak": peak, **said, "moments": moments(found), "duration": pace(found)}
        return None

    def scenes(self, scenes: Sequence[Scene] | None = None) -> list[dict[str, Any]]:
        """What the page shows of each scene, and says in it; None for the usual scenes.

        Where a scene executes, it draws the run that was measured; without one it is left out.
        """
        state, said = self._state, describe_proof(self._measurement) if self._measurement is not None else ""
        state.measurement = self._measurement
        script = default_scenes(state) if scenes is None else scenes
        self._show(len(self._scheduled) - 1)
        recorded = []
        for scene in (complete_scene(script, number) for number in range(len(script))):
            if scene.execute and self.run() is None:
                continue
            if scene.budget is not None:
                state.set_budget(scene.budget)
                fitting = [i for i, (_, peak) in enumerate(self._scheduled) if peak <= state.budget]
                self._show(max(fitting, default=0))
            stage, value = scene_selection(scene, state)
            recorded.append(
                {
                    "caption": fill_caption(scene, state, said),
                    "budget": None if scene.budget is None else state.budget,
                    "picture": scene.picture,
                    "stage": 0 if scene.play and stage is None else stage,
                    "value": value,
                    "play": scene.play,
                    "draw": scene.execute,
                }
            )
        return recorded

    def _show(self, point: int) -> None:
        """Bring a point of the curve into the state, with its measurement."""
        schedule, _ = self._scheduled[point]
        with self._state.at_once():
            self._state.schedule, self._state.solution = schedule, self._shown[point]
            self._state.measurement = self.measured(schedule)

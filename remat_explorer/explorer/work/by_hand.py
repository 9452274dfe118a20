"""Editing a schedule by hand, as methods: what clicks on S and the buttons of the panel do, and what scripts drive."""

from __future__ import annotations

from collections.abc import Sequence

from remat_explorer.entry_checks import require_arguments
from remat_explorer.errors import ScheduleError
from remat_explorer.explorer.state.edited_schedule import EditedSchedule
from remat_explorer.explorer.state.places import place_of
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work import editing
from remat_explorer.solution import Solution


class ByHand:
    """A person against the solver: say what is kept, and see what it costs.

    R follows from S: for what is kept, the least that has to be computed again is computed again. What is edited is
    `State.editing`; the budget, the best that is known for it and the checker say how good it is.

    >>> import remat_explorer as rx
    >>> from remat_explorer.explorer.work.driver import Driver
    >>> from remat_explorer.explorer.work.sources import Sources
    >>> driver = Driver(State(improve=False, sweep=False), Sources(graph=rx.linear(8)), 8)
    >>> driver.wait(60)
    True
    >>> driver.edit("everything")
    >>> driver.drop(9, "v2")  # from its last use before stage 9 up to its next
    >>> driver.drop(9, "v5")
    >>> driver.solution.peak, driver.solution.cost, driver.state.solution.strategy
    (8, 19.0, 'by hand')
    >>> driver.undo()
    >>> driver.state.status
    'By hand: overhead +5.9 %, predicted peak 9 B, 1 B above the budget of 8 B'
    """

    state: State

    def edit(self, start: Solution | str | None = None) -> None:
        """Begin to edit by hand, or go on with what was edited before.

        Args:
            start: "shown" for the schedule on the screen, "everything" for the one that keeps everything, or a
                solution; None goes on, or begins with what is shown. What was edited before can be had by `undo`.

        Raises:
            ScheduleError: if schedules of the graph cannot be edited, or that one cannot; the message says why.
            SolutionError: if ``start`` is none of these.
        """
        require_arguments(ByHand.edit, locals())
        editing.begin(self.state, start)

    def keep(self, stage: int, value: int | str | Sequence[int | str], until: int | None = None) -> None:
        """Keep a value into a stage.

        It is kept from where it was in memory last before that, up to where it is used next. With ``until`` it is kept
        into the stages from ``stage`` to ``until`` alone, and computed in the one before them if it must be.

        Args:
            stage: the stage that begins with it in memory.
            value: its number or name; or several, which are kept in one step into the stages from ``stage`` to
                ``until`` (else ``stage`` alone), where that is possible.
            until: the last stage.

        Raises:
            ScheduleError: if nothing is edited, or the value cannot be kept there; the message says why.
            UnknownNameError: if there is no such value.
        """
        require_arguments(ByHand.keep, locals())
        self._change(stage, value, until, True)

    def drop(self, stage: int, value: int | str | Sequence[int | str], until: int | None = None) -> None:
        """Do not keep a value into a stage: it is freed after its last use before, and computed again for its next.

        With ``until`` it is not kept into the stages from ``stage`` to ``until``, and nothing else changes.

        Args:
            stage: the stage that begins without it.
            value: as for `keep`.
            until: the last stage.

        Raises:
            ScheduleError: if nothing is edited, or the value is never, or always, kept into that stage.
            UnknownNameError: if there is no such value.
        """
        require_arguments(ByHand.drop, locals())
        self._change(stage, value, until, False)

    def undo(self) -> None:
        """Take back the last step.

        Raises:
            ScheduleError: if nothing is edited.
        """
        editing.change(self.state, EditedSchedule.undo)

    def redo(self) -> None:
        """Take the last step that was undone again.

        Raises:
            ScheduleError: if nothing is edited.
        """
        editing.change(self.state, EditedSchedule.redo)

    def judge(self) -> str:
        """What the checker of the exercises says: a schedule, within the budget, as cheap as the best that is known?

        Raises:
            ScheduleError: if nothing is edited.
        """
        return editing.judge(self.state)

    def reveal(self) -> None:
        """Compare with the best schedule that is known within the budget, as `compare` does.

        Raises:
            SolutionError: if none is known.
        """
        editing.reveal(self.state)

    def stop_editing(self) -> None:
        """Edit no longer; the schedule stays on the screen."""
        editing.stop_editing(self.state)

    def _change(self, stage: int, value: int | str | Sequence[int | str], until: int | None, keep: bool) -> None:
        graph = self.state.graph
        if graph is None or self.state.editing is None:
            raise ScheduleError(editing.NOT_BEGUN)
        if until is not None and until < stage:
            raise ScheduleError(f"the last stage, {until}, comes before the first, {stage}")
        names = [entry.name for entry in graph.values]
        several = not isinstance(value, int | str)
        values = [place_of("value", given, names) for given in (value if several else [value])]
        for number in values:
            if not 0 <= number < len(names):
                raise ScheduleError(f"there is no value {number}; the values are 0 to {len(names) - 1}")

        def step(edited: EditedSchedule) -> EditedSchedule:
            if several:
                return edited.paint(range(stage, (stage if until is None else until) + 1), values, keep)
            return (edited.keep if keep else edited.drop)(stage, values[0], until)

        editing.change(self.state, step)

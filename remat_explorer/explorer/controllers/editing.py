"""A schedule that is edited by hand: what each step puts on the screen, how it stands, and who judges it.

`EditingMethods` is the part of `Driver` that scripts call; clicks and buttons call the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from remat_explorer.entry_checks import require_arguments
from remat_explorer.errors import RematError, ScheduleError, SolutionError
from remat_explorer.explorer.controllers.screen import add_to_frontier, explain_none_known, show_schedule
from remat_explorer.explorer.state.edited_schedule import EditedSchedule, why_not_editable
from remat_explorer.explorer.state.navigation import resolve_index
from remat_explorer.explorer.state.state import State
from remat_explorer.quantities import format_bytes, format_overhead, format_share
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import PROVEN, Solution, Status, assess_schedule, bound_at, checkpoint_all, unknown_point
from remat_explorer.verdicts import schedule_verdict

_BY_HAND = "by hand"  # the strategy of an edited schedule
SHOWN, EVERYTHING = "shown", "everything"
_OPENING = "By hand: "  # of what the status line says of it
_NOT_BEGUN = "No schedule is being edited: press Edit first."


class EditingMethods:
    """A person against the solver: say what is kept, and see what it costs.

    R follows from S: for what is kept, the least that has to be computed again is computed again. What is edited is
    `State.editing`; the budget, the best that is known for it and the checker say how good it is.

    >>> import remat_explorer as rx
    >>> from remat_explorer.explorer.controllers.driver import Driver
    >>> from remat_explorer.explorer.controllers.model_sources import ModelSources
    >>> driver = Driver(State(improve=False, sweep=False), ModelSources(graph=rx.linear(8)), 8)
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
        require_arguments(EditingMethods.edit, locals())
        begin_editing(self.state, start)

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
        require_arguments(EditingMethods.keep, locals())
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
        require_arguments(EditingMethods.drop, locals())
        self._change(stage, value, until, False)

    def undo(self) -> None:
        """Take back the last step.

        Raises:
            ScheduleError: if nothing is edited.
        """
        apply_edit(self.state, EditedSchedule.undo)

    def redo(self) -> None:
        """Take the last step that was undone again.

        Raises:
            ScheduleError: if nothing is edited.
        """
        apply_edit(self.state, EditedSchedule.redo)

    def judge(self) -> str:
        """What the checker of the exercises says: a schedule, within the budget, as cheap as the best that is known?

        Raises:
            ScheduleError: if nothing is edited.
        """
        return judge(self.state)

    def reveal(self) -> None:
        """Compare with the best schedule that is known within the budget, as `compare` does.

        Raises:
            SolutionError: if none is known.
        """
        reveal(self.state)

    def stop_editing(self) -> None:
        """Edit no longer; the schedule stays on the screen."""
        stop_editing(self.state)

    def _change(self, stage: int, value: int | str | Sequence[int | str], until: int | None, keep: bool) -> None:
        graph = self.state.graph
        if graph is None or self.state.editing is None:
            raise ScheduleError(_NOT_BEGUN)
        if until is not None and until < stage:
            raise ScheduleError(f"the last stage, {until}, comes before the first, {stage}")
        names = [entry.name for entry in graph.values]
        several = not isinstance(value, int | str)
        values = [resolve_index("value", given, names) for given in (value if several else [value])]
        for number in values:
            if not 0 <= number < len(names):
                raise ScheduleError(f"there is no value {number}; the values are 0 to {len(names) - 1}")

        def step(edited: EditedSchedule) -> EditedSchedule:
            if several:
                return edited.paint(range(stage, (stage if until is None else until) + 1), values, keep)
            return (edited.keep if keep else edited.drop)(stage, values[0], until)

        apply_edit(self.state, step)


def begin_editing(state: State, start: Solution | str | None = None) -> None:
    """Begin to edit, or go on.

    Args:
        state: with a graph.
        start: "shown" for the schedule on the screen, "everything" for the one that keeps everything, or a solution;
            None goes on with the schedule that was edited before, if there is one, else begins with what is shown.

    Raises:
        ScheduleError: if schedules of the graph cannot be edited.
        SolutionError: if ``start`` is none of these.
    """
    if reason := why_not_editable(state.graph):
        raise ScheduleError(reason)
    if state.busy:
        raise ScheduleError(f"Wait until {state.busy} is done, or cancel it.")
    edited = state.editing
    if edited is not None and start is None:
        show_edited(state, edited)
        return
    schedule = _start(state, SHOWN if start is None else start)
    show_edited(state, EditedSchedule.of(schedule) if edited is None else edited.reset(schedule))


def _start(state: State, start: Solution | str) -> Schedule:
    assert state.graph is not None
    if start == EVERYTHING:
        return checkpoint_all(state.graph)
    schedule = state.schedule if start == SHOWN else start.schedule if isinstance(start, Solution) else None
    if schedule is None or schedule.graph is not state.graph:
        raise SolutionError(f'only "{SHOWN}", "{EVERYTHING}" or a solution of the loaded graph can be edited')
    return schedule


def apply_edit(state: State, step: Callable[[EditedSchedule], EditedSchedule]) -> None:
    """Take a step, and show what came of it; one that changes nothing shows the edited schedule again.

    Raises:
        ScheduleError: if nothing is being edited, something else is under way, or the step is refused.
    """
    if state.editing is None:
        raise ScheduleError(_NOT_BEGUN)
    if state.busy:
        raise ScheduleError(f"Wait until {state.busy} is done, or cancel it.")
    show_edited(state, step(state.editing))


def toggle_cell(state: State, stage: int, value: int) -> None:
    """Drop a value that is kept into a stage, or keep it, as a click does."""

    def step(edited: EditedSchedule) -> EditedSchedule:
        return edited.drop(stage, value) if edited.is_kept(stage, value) else edited.keep(stage, value)

    apply_edit(state, step)


def stop_editing(state: State) -> None:
    """Edit no longer; the schedule stays on the screen."""
    state.editing = None


def show_edited(state: State, edited: EditedSchedule) -> None:
    """Put an edited schedule on the screen; one that is better than any known joins the trade-off curve."""
    with state.at_once():
        state.editing = edited
        show_schedule(state, edited.schedule, _solution_of(state, edited))
        state.accept()
        state.say(*describe_edited_schedule(state))
    _join_if_better(state)


def _update_solution(state: State) -> None:
    """The budget is another one, or more is known for it: the edited schedule on the screen stands otherwise."""
    edited, before = state.editing, state.solution
    if not state.is_edited or edited is None or before is None or state.busy:
        return
    now = _solution_of(state, edited)
    with state.at_once():
        if (now.budget, now.lower_bound) != (before.budget, before.lower_bound):
            state.solution = now
        if state.status.startswith(_OPENING):
            state.say(*describe_edited_schedule(state))
    _join_if_better(state)


def _join_if_better(state: State) -> None:
    best, edited = best_known(state), state.editing
    assert edited is not None
    if fits_budget(state) and (best is None or edited.schedule.cost < (best.cost or 0.0) * (1 - PROVEN)):
        add_to_frontier(state, edited.graph, [_solution_of(state, edited)])
        _update_solution(state)


def _solution_of(state: State, edited: EditedSchedule) -> Solution:
    """The edited schedule as a solution, for the state's budget if it fits, else for its own peak."""
    peak, graph = edited.checked.peak, edited.graph
    budget = state.budget if peak <= state.budget else peak
    bound = bound_at(budget, state.frontier.solutions) if state.frontier is not None else None
    return assess_schedule(unknown_point(graph, _BY_HAND, budget), budget, edited.schedule, bound)


def fits_budget(state: State) -> bool:
    """Whether the edited schedule is within the budget."""
    return state.editing is not None and state.editing.checked.peak <= state.budget


def best_known(state: State) -> Solution | None:
    """The best that is known within the budget, or None."""
    frontier = state.frontier
    return frontier.best(state.budget) if frontier is not None and frontier.graph is state.graph else None


def describe_edited_schedule(state: State) -> tuple[str, str]:
    """How the edited schedule stands, in one line, and its tone."""
    edited = state.editing
    assert edited is not None
    peak = format_bytes(edited.checked.peak)
    words = (
        f"{_OPENING}overhead {format_overhead(edited.schedule.overhead)}, predicted peak {peak}, {describe_room(state)}"
    )
    if not fits_budget(state):
        return words, "warning"
    distance, proven = distance_from_best(state)
    return f"{words} · {distance}", "good" if proven else "plain"


def describe_room(state: State) -> str:
    """By how much the edited schedule is within the budget, or exceeds it."""
    assert state.editing is not None
    left = state.budget - state.editing.checked.peak
    budget = format_bytes(state.budget)
    if left < 0:
        return f"{format_bytes(-left)} above the budget of {budget}"
    return f"within the budget of {budget}" + (f", {format_bytes(left)} to spare" if left else "")


def distance_from_best(state: State) -> tuple[str, bool]:
    """How far the cost is from the best that is known within the budget, and whether it is proven optimal."""
    best, edited = best_known(state), state.editing
    assert edited is not None
    if best is None or best.cost is None or best.schedule is edited.schedule:
        return "nothing that is known within the budget costs less", False
    proven, further = best.status is Status.OPTIMAL, edited.schedule.cost - best.cost
    if further <= PROVEN * best.cost:
        return ("proven best", True) if proven else ("as cheap as the best known", False)
    return f"costs {format_share(further / best.cost)} more than the {'optimum' if proven else 'best known'}", False


def judge(state: State) -> str:
    """What the exercises' checker says of the edited schedule: within the budget, and as cheap as the best known?

    Raises:
        ScheduleError: if nothing is being edited.
    """
    edited, best = state.editing, best_known(state)
    if edited is None:
        raise ScheduleError(_NOT_BEGUN)
    enough = edited.schedule.cost if best is None or best.cost is None else best.cost * (1 + PROVEN)
    verdict = schedule_verdict(edited.graph, edited.schedule.R, edited.schedule.S, state.budget, enough)
    right = verdict.startswith("Right")
    timeline = edited.checked.plan.timeline
    if timeline.peak > state.budget:  # what is in memory there is listed by the panel, not here
        stage, most = int(timeline.stage[timeline.peak_statement]), format_bytes(timeline.peak)
        verdict = f"Not yet: stage {stage} needs {most}, {describe_room(state)}. The panel says what could go."
    if right and (best is None or best.status is not Status.OPTIMAL):
        verdict += " Whether anything costs less is not proven."
    state.say(verdict, "good" if right else "warning")
    return verdict


def reveal(state: State) -> None:
    """Compare with the best that is known within the budget.

    Raises:
        SolutionError: if none is known; the message says from which budget on one is.
    """
    best = best_known(state)
    if best is None:
        raise SolutionError(explain_none_known(state, state.budget))
    state.other, state.panel = best, "compare"


@contextmanager
def refusals_in_status(state: State) -> Iterator[None]:
    """What is refused inside is said in the status line, as for a click."""
    try:
        yield
    except RematError as error:
        text = str(error)
        state.refuse(f"{text[:1].upper()}{text[1:].removesuffix('.')}.")


def follow_editing(state: State) -> None:
    """Judge the edited schedule again whenever budget or curve change; another graph ends the editing."""
    state.observe(lambda _: _update_solution(state), ["budget", "frontier"])
    state.observe(lambda _: _leave(state), "graph")


def _leave(state: State) -> None:
    if state.editing is not None and state.editing.graph is not state.graph:
        state.editing = None

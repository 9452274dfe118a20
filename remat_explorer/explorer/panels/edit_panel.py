"""A person against the solver: how the schedule that is edited by hand stands, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from remat_explorer.explanations import Mention, alive_at, cost_text, count
from remat_explorer.explorer.controllers.editing import (
    EVERYTHING,
    SHOWN,
    apply_edit,
    begin_editing,
    best_known,
    describe_room,
    distance_from_best,
    fits_budget,
    judge,
    refusals_in_status,
    reveal,
    stop_editing,
)
from remat_explorer.explorer.panels.side_panel import Click, SidePanel, button, link, note, table, text
from remat_explorer.explorer.state.edited_schedule import EditedSchedule, why_not_editable
from remat_explorer.explorer.state.state import State
from remat_explorer.plan import Compute
from remat_explorer.quantities import format_bytes, format_overhead
from remat_explorer.solvers import Solution

BEFORE = (
    "Take the solver's place: keep and drop values in S, and see memory and cost at once. What is computed again "
    "follows from what is kept."
)
HOW = (
    "In S, click a cell or press Enter at the cursor. A kept value is then dropped until its next use, and a dropped "
    "one is kept until then. Drag to change several. u undoes, U redoes."
)
NAMED = 4  # values at the peak that could be dropped
ACTIONS: dict[str, Callable[[State], object]] = {
    "go-on": begin_editing,
    "shown": lambda state: begin_editing(state, SHOWN),
    "everything": lambda state: begin_editing(state, EVERYTHING),
    "undo": lambda state: apply_edit(state, EditedSchedule.undo),
    "redo": lambda state: apply_edit(state, EditedSchedule.redo),
    "judge": judge,
    "reveal": reveal,
    "stop": stop_editing,
}


class EditPanel(SidePanel):
    """The figures of the edited schedule beside budget and best known, and the buttons."""

    name, title = "edit", "Your own schedule, against the solver's"
    traits = ("editing", "schedule", "budget", "frontier", "other", "graph", "busy")

    def html(self) -> str:
        return editing_html(self.state)

    def clicked(self, click: Click) -> None:
        if click.action in ACTIONS:
            with refusals_in_status(self.state):
                ACTIONS[click.action](self.state)
        else:
            super().clicked(click)


def editing_html(state: State) -> str:
    """The buttons, and where a schedule is edited how it stands."""
    edited, reason = state.editing, why_not_editable(state.graph)
    if reason or edited is None:
        return f"<p>{_beginnings(state, reason)}</p>{note(reason or BEFORE)}"
    if not state.is_edited:
        go_on = button("Go on with yours", "go-on", "Put the schedule that you edited on the screen again")
        stop = button("Stop editing", "stop", "Forget your steps")
        others = note("Another schedule is on the screen. Yours is kept, with every step.")
        return f"<p>{go_on} {_beginnings(state, reason)} {stop}</p>{others}"
    how, rest = note(HOW), _figures(state, edited) + _help(state, edited)
    return f"<p>{_buttons(state, edited)}</p>" + (rest + how if edited.done else how + rest)


def _beginnings(state: State, reason: str) -> str:
    free = not reason and not state.busy
    begin_with = reason or "Begin with the schedule on the screen"
    shown = button("Edit what is shown", "shown", begin_with, free and state.schedule is not None)
    return f"{shown} {button('Keep everything', 'everything', reason or 'Begin by keeping everything', free)}"


def _buttons(state: State, edited: EditedSchedule) -> str:
    return " ".join(
        [
            button("Undo", "undo", "Take back the last step (u in the matrices)", bool(edited.done)),
            button("Redo", "redo", "Take the step that was undone again (U in the matrices)", bool(edited.undone)),
            button("Keep everything", "everything", "Begin again by keeping everything; Undo brings this back"),
            button("Judge", "judge", "Let the checker of the exercises judge it; the status line shows what it says"),
            button("Reveal", "reveal", "Compare with the best known schedule within the budget"),
            button("Stop", "stop", "Stop editing; the schedule stays on the screen"),
        ]
    )


def _figures(state: State, edited: EditedSchedule) -> str:
    """Peak, overhead and recomputations; those of the best known schedule once it was revealed."""
    schedule, timeline, inside = edited.schedule, edited.checked.plan.timeline, fits_budget(state)
    stage = int(timeline.stage[timeline.peak_statement])
    verdict = f'<b class="{"good" if inside else "bad"}">{text(describe_room(state))}</b>'
    again = schedule.cost - edited.graph.total_cost
    rows = [
        ["peak", format_bytes(edited.checked.peak), f"{verdict}, in {link(Mention(f'stage {stage}', stage=stage))}"],
        ["overhead", format_overhead(schedule.overhead), text(distance_from_best(state)[0] if inside else "")],
        ["recomputed", f"{schedule.recomputations:,}", f"{text(cost_text(edited.graph, again))} more" if again else ""],
    ]
    head, best = ["", "yours", ""], best_known(state)
    if best is not None and best.schedule is not None and _is_revealed(state, best):
        head.insert(2, "best known")
        told = (format_bytes(best.peak or 0), format_overhead(best.schedule.overhead))
        columns = zip(rows, (*told, f"{best.schedule.recomputations:,}"), strict=True)
        rows = [[label, mine, theirs, said] for (label, mine, said), theirs in columns]
    return table(rows, head, "facts edited")


def _is_revealed(state: State, best: Solution) -> bool:
    return state.other is not None and state.other.schedule is best.schedule


def _help(state: State, edited: EditedSchedule) -> str:
    """Where there is too much at the peak, what is only kept through it; and what is kept in vain."""
    parts = [] if fits_budget(state) else [_at_the_peak(edited)]
    vain = np.flatnonzero(edited.in_vain.any(axis=0))
    if len(vain):
        first = int(vain[0])
        name = link(Mention(edited.graph.values[first].name, first, int(edited.in_vain[:, first].argmax())))
        others = f" and {count(len(vain) - 1, 'other value')}" if len(vain) > 1 else ""
        parts.append(f"Pale in S: {name}{others} may be kept where nothing reads it, and the plan does not hold it.")
    return "".join(f"<p>{part}</p>" for part in parts)


def _at_the_peak(edited: EditedSchedule) -> str:
    """The values that are in memory at the peak for a later stage only, largest first."""
    memory, schedule = alive_at(edited.checked.plan), edited.schedule
    stage, later = memory.stage, memory.stage + 1
    statement = edited.checked.plan.statements[memory.statement]
    running = statement.operation if isinstance(statement, Compute) else -1  # whose outputs have to be there
    waiting = [
        row
        for row in memory.rows
        if row.value is not None and row.reader is not None and later < schedule.stages
        if edited.graph.producer[row.value] != running
        if schedule.S[later, row.value] and not schedule.R[stage, row.reader] and not edited.refusal(later, row.value)
    ]
    if not waiting:
        return f"All that is in memory at the peak is needed in stage {stage}."
    names = [link(Mention(f"{row.name} ({format_bytes(row.bytes)})", row.value, later)) for row in waiting[:NAMED]]
    more = f" and {len(waiting) - NAMED} more" if len(waiting) > NAMED else ""
    return (
        f"In memory at the peak for later stages only: {', '.join(names)}{more}. Drop what is cheap to compute again."
    )

"""The story of the step: what it needs, what it costs within the budget, what runs twice; and what is going on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remat_explorer.explorer.controllers.executing import nearest_feasible_budget
from remat_explorer.explorer.controllers.screen import describe_rate, rules_out
from remat_explorer.explorer.panels.execution_panel import take_nearest_budget
from remat_explorer.explorer.panels.side_panel import Click, Clickable, button, text
from remat_explorer.explorer.state.state import State
from remat_explorer.figures import journeys_of, schedule_of
from remat_explorer.graph import cost_unit
from remat_explorer.offload import TransferPlan, TransferSolution
from remat_explorer.quantities import format_bytes, format_seconds
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import Solution, Status

REMEDY, CANCEL = "remedy", "cancel"  # what the story's buttons send
TOLD = [
    *("graph", "schedule", "solution", "sending", "measurement", "shortage", "budget", "dragged", "smallest"),
    *("frontier", "checkpoint_all_peak", "status", "tone", "busy", "elapsed", "progress", "improving", "stale"),
    *("editing", "transfers"),
]
PREDICTED = "times are predicted, not measured"
KNOWN = ("is known that fits", "The least that is known is")
ON_PAGE = ("on this page fits", "The least on this page is")
ICONS = {"good": "✓", "warning": "▲", "error": "✖", "plain": ""}


@dataclass(frozen=True)
class Story:
    """The sentence, the budget that its button sets, in bytes, 0 without a button, and what the button is called."""

    sentence: str
    remedy: int = 0
    offer: str = ""


class StoryView:
    """Shows the story, what is known of the schedule beside it, and what is going on, which can be cancelled.

    Args:
        state: of which it tells.
        cancel: stops what is under way.
    """

    def __init__(self, state: State, cancel: Callable[[], None]) -> None:
        self._state, self._cancel = state, cancel
        self.widget = Clickable(self._clicked, "What the step needs and costs")
        self.widget.add_class("remat-story")
        state.observe(self._draw, TOLD)
        self._draw()

    def _draw(self, change: Any = None) -> None:
        self.widget.html = story_html(self._state)
        reserve = self.widget.add_class if self._state.transfers is not None else self.widget.remove_class
        reserve("remat-long")  # a second line is kept, so that nothing moves when the sentence is longer

    def _clicked(self, click: Click) -> None:
        if click.action == CANCEL:
            self._cancel()
        elif click.action == REMEDY:
            take_nearest_budget(self._state)


def tell(state: State) -> Story:
    """The story of what is on the screen.

    >>> import remat_explorer as rx
    >>> state = State(graph=rx.linear(8), checkpoint_all_peak=10, budget=8)
    >>> state.schedule = rx.solve(state.graph, 8).schedule
    >>> tell(state).sentence
    'This step needs 10 B. In 8 B it costs 12 % more: 2 operations run twice.'
    """
    graph, schedule, budget = state.graph, state.schedule, state.shown_budget
    if graph is None or schedule is None or (state.plan is None and state.sending is None):
        return Story("A model is being read." if state.busy else "Choose a model.")
    if state.shortage:
        least = nearest_feasible_budget(state)
        return Story("Memory ran out while the step was run.", least if least != state.budget else 0)
    if state.sending is not None and (state.sending.peak or 0) <= budget:
        return Story(tell_sending(state.sending, state.checkpoint_all_peak, format_bytes(budget)))
    if state.plan is None:
        return Story(f"The plan on the screen does not fit into {format_bytes(budget)}.")
    if state.is_edited:
        return Story(f"Your schedule needs {format_bytes(state.plan.peak)} and {tell_cost(schedule)}.")
    if state.plan.peak > budget > 0 and not state.busy:
        return _tell_misfit(state, budget)
    return Story(tell_fit(schedule, state.checkpoint_all_peak, budget, format_bytes(budget)))


def tell_fit(schedule: Schedule, keep_all: int, budget: int, written: str) -> str:
    """What the step needs, and what a schedule costs within a budget.

    Args:
        schedule: R and S.
        keep_all: peak of keeping everything, bytes.
        budget: bytes.
        written: how the sentence writes it.
    """
    all_is_kept = schedule.recomputations == 0 and keep_all <= budget
    costs = "everything can be kept: nothing runs twice" if all_is_kept else f"it {tell_cost(schedule)}"
    return f"This step needs {format_bytes(keep_all)}. In {written} {costs}."


def tell_cost(schedule: Schedule) -> str:
    """What a schedule costs, and what runs twice.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> tell_cost(solve(linear(8), 9).schedule)
    'costs 5.9 % more: 1 operation runs twice'
    """
    again = _tell_again(schedule)
    more = f"costs {format_more(schedule.overhead)} more{' time' if cost_unit(schedule.graph) else ''}"
    if not again:
        return (
            "costs no more: nothing runs twice" if schedule.overhead < 1 + 5e-4 else f"{more}, and nothing runs twice"
        )
    return f"{more}: {again}"


def _tell_again(schedule: Schedule) -> str:
    """How many operations run more than once, and how often; "" where none does."""
    again = list(schedule.repeated_operations.values())
    if not again:
        return ""
    subject = "1 operation runs" if len(again) == 1 else f"{len(again)} operations run"
    least, most = min(again), max(again)
    times = "twice" if most == 2 else f"{most} times" if least == most else f"{least} to {most} times"
    return f"{subject} {times}"


def tell_sending(sending: TransferSolution, keep_all: int, written: str) -> str:
    """What the step needs, and what a plan that may send values costs within a budget, as it is written.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.offload import Transfers
    >>> from remat_explorer.solvers import solve
    >>> sending = solve(linear(4), 4, strategy="offload", transfers=Transfers(1.0, 1.0))
    >>> tell_sending(sending, 6, "4 B").partition("travel")[2]
    ' to the host at 1 B a unit of cost, and nothing has to be computed again.'
    """
    plan = sending.plan
    assert plan is not None
    assert sending.overhead is not None
    time = " time" if cost_unit(plan.graph) else ""
    more = "no" if sending.overhead < 1 + 5e-4 else format_more(sending.overhead)
    travel, again = len({journey.value for journey in journeys_of(plan)}), _tell_again(schedule_of(plan))
    values = "1 value travels" if travel == 1 else f"{travel} values travel"
    needs = f"This step needs {format_bytes(keep_all)}. In {written} it costs {more} more{time}"
    if not travel:
        return f"{needs}: nothing travels, and {again or 'nothing runs twice'}."
    rate = describe_rate(plan.transfers, plan.graph)
    return f"{needs}: {values} to the host at {rate}, and {again or 'nothing has to be computed again'}."


def format_more(overhead: float) -> str:
    """An overhead with as many digits as one takes in.

    >>> format_more(1.1094), format_more(1.0344), format_more(1.0004), format_more(2.5)
    ('11 %', '3.4 %', 'less than 0.1 %', '150 %')
    """
    percent = 100 * (overhead - 1)
    if percent < 0.1:
        return "less than 0.1 %"
    return f"{percent:.0f} %" if percent >= 9.95 else f"{percent:.1f} %"


def _tell_misfit(state: State, budget: int) -> Story:
    """Nothing that is known fits into the budget."""
    least = nearest_feasible_budget(state)
    offer = "Show one that fits" if least == budget else ""
    if state.measurement is not None and state.plan is not None:
        excess = format_bytes(state.plan.peak - budget)
        needed = f"With the workspace of its kernels this schedule needs {format_bytes(state.plan.peak)}"
        return Story(f"{needed}: {excess} more than the budget.", least, offer)
    if offer:  # one is known, and another is on the screen
        return Story(f"The schedule on the screen does not fit into {format_bytes(budget)}.", least, offer)
    return tell_misfit(format_bytes(budget), least, rules_out(state, budget), is_least(state, least))


def tell_misfit(budget: str, least: int, is_ruled_out: bool, is_least: bool, words: tuple[str, str] = KNOWN) -> Story:
    """The story of a budget that no schedule fits into.

    Args:
        budget: as it is written.
        least: the least that any schedule at hand needs, bytes; 0 where there is none.
        is_ruled_out: whether it is proven that nothing fits.
        is_least: whether it is proven that nothing needs less than ``least``.
        words: which schedules are at hand: `KNOWN`, or `ON_PAGE`.

    >>> tell_misfit("4 B", 6, False, False).sentence
    'No schedule is known that fits into 4 B. The least that is known is 6 B.'
    """
    sentence = f"Nothing fits into {budget}" if is_ruled_out else f"No schedule {words[0]} into {budget}"
    if not least:
        return Story(f"{sentence}.")
    known = "The least that any schedule needs is" if is_least else words[1]
    return Story(f"{sentence}. {known} {format_bytes(least)}.", least)


def is_least(state: State, budget: int) -> bool:
    """Whether it is proven that nothing fits into fewer bytes."""
    return state.smallest is not None and budget <= state.smallest.lower_bound


def describe_proven(solution: Solution | TransferSolution | None) -> tuple[str, str]:
    """How good a schedule is proven to be, in a few words, and their tone."""
    if solution is None:
        return "not compared with a bound yet", "plain"
    if solution.status is Status.OPTIMAL:
        return "proven best", "good"
    if solution.gap is None or solution.gap >= 1:
        return "not proven how good", "plain"
    return f"at most {format_more(1 / (1 - solution.gap))} from the best", "plain"


def chips(state: State) -> list[tuple[str, str]]:
    """What is known of the schedule on the screen: words, and their tone.

    >>> import remat_explorer as rx
    >>> solution = rx.solve(rx.linear(8), 4)
    >>> chips(State(graph=solution.graph, schedule=solution.schedule, solution=solution, budget=4))
    [('proven best', 'good'), ('uses 4 of 4 B', 'plain'), ('no module to run', 'plain')]
    """
    graph, sending = state.graph, state.sending
    plan = sending.plan if sending is not None else state.plan
    if graph is None or plan is None:
        return []
    budget = state.shown_budget
    used = format_bytes(plan.peak)
    limit = format_bytes(budget)
    same_unit = used.split()[1:] == limit.split()[1:]
    fits = plan.peak <= budget
    said = [describe_proven(sending or state.solution)] if fits and not state.is_edited else []
    said.append((f"uses {used.split()[0] if same_unit else used} of {limit}", "plain" if fits else "error"))
    if isinstance(plan, TransferPlan):
        said.append((f"{format_bytes(plan.host_peak)} on the host", "plain"))
        said.append((PREDICTED, "plain"))
    if state.measurement is None:
        estimated = "" if state.costs_are_measured or sending is not None else ": times are estimates"
        said.append(("no module to run" if state.inputs is None else f"not yet run{estimated}", "plain"))
    else:
        said.append(describe_run(state.measurement))
    return said


def describe_run(measured: Any) -> tuple[str, str]:
    """What was measured of the schedule, a `remat_explorer.runtime.Measurement`, and its tone."""
    words = f"measured {format_bytes(max(measured.peak, measured.generated_peak))}"
    if measured.eager is None:
        return (f"{words}, gradients not compared", "warning") if measured.is_timed else (words, "plain")
    if measured.eager.comparison.equal:
        words += ", gradients equal"
    else:
        words += ", results differ"
    return words, "good" if measured.sound else "warning"


def story_html(state: State) -> str:
    """The story as HTML, with what is going on in its second line.

    >>> "Choose a model." in story_html(State())
    True
    """
    marks = "" if state.busy and state.measurement is None else "".join(chip(*said) for said in chips(state))
    return frame_story(tell(state), _going_on(state) + marks)


def frame_story(story: Story, known: str) -> str:
    """A story with its button as HTML, above what is known of the schedule, which is HTML already."""
    label = story.offer or f"Use {format_bytes(story.remedy)}"
    offer = button(label, REMEDY, "Show the best schedule that is known there") if story.remedy else ""
    said = f'<p class="sentence" role="status">{text(story.sentence)} {offer}</p>'
    return f'{said}<div class="known">{known}</div>'


def chip(words: str, tone: str) -> str:
    """A few words with the icon of their tone, as HTML."""
    return f'<span class="chip {tone}">{ICONS[tone]}{" " if ICONS[tone] else ""}{text(words)}</span>'


def folded_report(report: str) -> str:
    """What is there for whoever asks: HTML behind a click."""
    return f"<details><summary>Report</summary>{report}</details>"


def _going_on(state: State) -> str:
    """What is under way with the button that cancels it; a refusal in full; else the report, behind a click."""
    words = state.status
    if state.stale and state.graph is not None:
        words += f"{'' if words.endswith(('.', '…')) else '.'} The picture is still that of {state.graph.name}."
    whole = f' title="{text(words)}"' if state.busy else ""  # the line may be too short for it
    report = f'<span class="remat-status {state.tone}" data-busy="{state.busy}"{whole}>{text(words)}</span>'
    if state.busy:
        clock = format_seconds(max(state.elapsed, 0.0)) if state.elapsed >= 0.1 else "0.0 s"
        bar = f'<progress max="1" value="{state.progress:.3f}"></progress>' if state.progress is not None else ""
        stop = button("Cancel", CANCEL, "Stop what is under way; a search keeps the best schedule it has found")
        return f'<i class="spinner"></i><span class="clock">{clock}</span>{bar}{report}{stop}'
    if state.tone in ("warning", "error") and not tell(state).remedy:  # else the story says it
        return f'<span class="said {state.tone}" tabindex="0">{ICONS[state.tone]} {report}</span>'  # keys scroll it
    stop = button("Stop improving", CANCEL, "Keep the schedule on the screen as it is") if state.improving else ""
    return stop + folded_report(report)

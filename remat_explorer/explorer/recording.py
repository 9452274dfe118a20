"""What the live page holds: all that the explorer's widgets would be sent while someone explores the curve.

`Recording` has the curve, with its story for every budget, `RecordedPresentation` the measured run and the scenes,
`record_layouts` the model for each choice of folded blocks; `text_patterns` writes texts that differ in their numbers
alone once, with numbers in columns.
"""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

from remat_explorer.explanations import first_look, values_of_stages
from remat_explorer.explorer.controllers.background_searches import alignment_of
from remat_explorer.explorer.controllers.executing import describe_proof
from remat_explorer.explorer.controllers.scenes import (
    Scene,
    complete_scene,
    default_scenes,
    fill_caption,
    scene_selection,
)
from remat_explorer.explorer.controllers.screen import describe_best_known, describe_sending, rules_out
from remat_explorer.explorer.curve import sent_curve, slider_range
from remat_explorer.explorer.matrices import Frame, folded_blocks, hover_labels, kind_colours
from remat_explorer.explorer.measured_run import describe_pace, drawing_moments, drawing_seconds
from remat_explorer.explorer.memory_view import (
    KEEP_EVERYTHING,
    describe_arena,
    map_colours,
    map_columns,
    map_lanes,
    map_lines,
    map_names,
    peak_of_other,
    peaks_of_stages,
)
from remat_explorer.explorer.model_view import graph_layout, graph_picture, step_plan
from remat_explorer.explorer.panels.explain_panel import (
    OF_REASON,
    OF_SCHEDULE,
    margins,
    source_parts,
    stage_parts,
    value_template,
)
from remat_explorer.explorer.panels.runs_twice import runs_twice_html
from remat_explorer.explorer.panels.side_panel import button, colours, place, text
from remat_explorer.explorer.plots_figure import PlotsScene
from remat_explorer.explorer.recorded_points import (
    BUDGET_LINES,
    THEMES,
    StatementPlaces,
    record_curves,
    record_explanations,
    record_figures,
    record_sending,
)
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.story import (
    ON_PAGE,
    PREDICTED,
    Story,
    chip,
    describe_proven,
    describe_run,
    folded_report,
    frame_story,
    is_least,
    tell_fit,
    tell_misfit,
    tell_sending,
)
from remat_explorer.figures import (
    DARK,
    KINDS,
    LIGHT,
    PLACES,
    AnyPlan,
    host_stack,
    rectangles_of,
    schedule_of,
    widest_journey,
)
from remat_explorer.graph import Graph
from remat_explorer.graph.repeated_blocks import repeated_blocks
from remat_explorer.offload import TransferPlan, TransferSolution
from remat_explorer.offsets import place_rectangles
from remat_explorer.permissions import Permissions
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import Frontier, MinimumBudget, Solution, checkpoint_all

FEW = 4  # repeated blocks of which each choice is laid out
NUMBER = re.compile(r"(?<!\d)(0|[1-9]\d{0,14})(?!\d)")  # as a browser writes it, too, and that it holds exactly
GAP = "\ue002"  # a character that no text of a model has a use for
CHUNK = 64  # values
Begin = tuple[int | None, int | None, int | None]
NOWHERE: Begin = (None, None, None)
PLACING = 0.3  # seconds for where the values of a point lie
DRAW = "draw"  # what the button sends that shows the measured run
NOT_RUN = ("not run", "plain")


class Recording:
    """The states of the explorer on one trade-off curve.

    Args:
        frontier: the curve; it has at least one schedule.
        smallest: between which budgets its graph starts to be feasible.
        keep_all: peak of the schedule that keeps everything, bytes.
        title: the model's name.
        permissions: whose files may be shown; None for none.
        measurement: a `remat_explorer.runtime.Measurement` of one of the curve's schedules, or None.
        begin: budget in bytes, stage and value that are shown first; None for what the page chooses.
        sending: a solution that may send values, which is one more point, or None.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import minimum_budget, solve
    >>> graph = linear(4)
    >>> recording = Recording(Frontier(graph, (solve(graph, 4), solve(graph, 6))), minimum_budget(graph), 6)
    >>> [budget for budget, *_ in recording.steps()], len(list(recording.points()))
    ([0, 3, 4, 5, 6], 2)
    """

    def __init__(
        self,
        frontier: Frontier,
        smallest: MinimumBudget,
        keep_all: int,
        title: str = "",
        permissions: Permissions | None = None,
        measurement: Any = None,
        begin: Begin = NOWHERE,
        sending: TransferSolution | None = None,
    ) -> None:
        self._permissions, self._begin = permissions, begin
        self.frontier = frontier
        points = [
            RecordedPoint(found, schedule, peak, Plan.of(schedule))
            for found, (schedule, peak) in zip(frontier.nondominated(), frontier.scheduled(), strict=True)
        ]
        if sending is not None and sending.plan is not None:
            own = RecordedPoint(sending, schedule_of(sending.plan), sending.plan.peak, sending.plan)
            cheaper = [point for point in points if (point.found.cost or 0.0) < sending.plan.makespan]
            smaller = [point for point in points if point.peak < own.peak]
            kept = {id(point): point for point in (*smaller, own, *(one for one in cheaper if one not in smaller))}
            points = list(kept.values())
        self.at = points
        self.shown, self.scheduled = [one.found for one in points], [(one.schedule, one.peak) for one in points]
        self.graph, self.title = frontier.graph, title or frontier.graph.name
        self._state = State(model=self.title, graph=self.graph, smallest=smallest, frontier=frontier)
        self._state.budget = begin[0] or 0
        self._state.checkpoint_all_peak = keep_all
        if sending is not None and sending.plan is not None:
            self._state.transfers, self._state.known_sending = sending.transfers, (sending,)
        self._sent = sent_curve(self._state)
        if self._sent:
            self._sent["colour"] = {"light": LIGHT.sent, "dark": DARK.sent}
        self.presented = RecordedPresentation(self._state, self.at, measurement)
        self._range = slider_range(self._state)

    def overview(self) -> dict[str, Any]:
        """What does not depend on the budget: traits of the widgets, texts, and the steps of the curve."""
        state, (first, _) = self._state, self.scheduled[0]
        operations, values = hover_labels(self.graph)
        picture, boxes = graph_picture(self.graph, state.folded)
        both = {"palettes": {"light": asdict(LIGHT), "dark": asdict(DARK)}, "found": []}
        everything = Plan.of(checkpoint_all(self.graph))
        frames = [astuple(Frame.of(one.schedule, one.peak, one.sends)) for one in self.at]
        return {
            "title": self.title,
            "matrices": {
                **both,
                "operations": operations,
                "values": values,
                "kinds": kind_colours(self.graph),
                "blocks": folded_blocks(self.graph),
                "folded": list(state.folded),
                "resident": self.graph.resident_bytes,
                "colouring": "computation",
                "frames": [[*frame[:-2], {"bytes": _text(frame[-2])}, frame[-1]] for frame in frames],
            },
            "model": {**both, "picture": picture, "boxes": {"bytes": _text(boxes)}, "folded": list(state.folded)},
            "layouts": [
                [list(numbers), layout, {"bytes": _text(boxes)}]
                for numbers, layout, boxes in record_layouts(self.graph)
            ],
            "memory": {
                "names": map_names(self.graph),
                "kinds": list(KINDS),
                "colours": map_colours(),
                "resident": self.graph.resident_bytes,
                "other": peak_of_other(everything, KEEP_EVERYTHING),
                "plain": peaks_of_stages(everything),
                "found": [],
                "folded": list(state.folded),
            },
            "plain": step_plan(everything).tolist(),
            "budget": self._range,
            "begin": self._begin,
            "colours": {theme: colours(theme) for theme in THEMES},
            "steps": self.steps(),
            "templates": text_patterns(value_template(first, value) for value in range(len(self.graph.values))),
            "sources": source_parts(self.graph, self._permissions),
            "places": {"schedule": OF_SCHEDULE, "reason": OF_REASON},
            "chunk": CHUNK,
            "lines": BUDGET_LINES,
            "run": self.presented.run(),
            "not_run": chip(*NOT_RUN),
            "timeline": PLACES,
            "first": [one.first_look() for one in self.at],
            "curves": record_curves(self.frontier, self._sent),
        }

    @property
    def chunks(self) -> int:
        """How many parts `values` has."""
        return -(-len(self.graph.values) // CHUNK)

    def steps(self) -> list[tuple[int, int, str, int]]:
        """What is told from which budget on, up to the next one.

        What is proven changes behind each budget that was solved for, and the point at each of the curve's peaks.

        Returns:
            The budget; the point of the curve that is the best known, -1 below all of them; the story as HTML, with
            places for the budget, what is used of it, the run and what it proved; and what its button sets, or 0.
        """
        state, peaks = self._state, [peak for _, peak in self.scheduled]
        budgets = {budget for solution in self.frontier.solutions for budget in (solution.budget, solution.budget + 1)}
        for one in self.shown:
            budgets |= {one.budget, one.budget + 1}
        budgets |= {0, state.checkpoint_all_peak, state.smallest.lower_bound if state.smallest else 0}
        steps: list[tuple[int, int, str, int]] = []
        for budget in sorted(budgets | set(peaks)):
            point = max((i for i, peak in enumerate(peaks) if peak <= budget), default=-1)
            best = self.shown[point] if point >= 0 else None
            if isinstance(best, Solution):
                best = self.frontier.best(budget)
            if best is None:
                sends = bool(self._sent)  # what is proven of schedules does not hold then
                ruled_out, proven = rules_out(state, budget) and not sends, is_least(state, peaks[0]) and not sends
                story = tell_misfit(place("budget"), peaks[0], ruled_out, proven, ON_PAGE)
                told = frame_story(story, self._chip_of_use("error") + place("run"))
                step = (budget, -1, told, peaks[0])
            else:
                step = (budget, point, self._story(best, self.scheduled[point][0], budget), 0)
            if not steps or steps[-1][1:] != step[1:]:
                steps.append(step)
        return steps

    def _story(self, best: Solution | TransferSolution, schedule: Schedule, budget: int) -> str:
        """What is told of the best known schedule within a budget."""
        if isinstance(best, TransferSolution):
            story = Story(tell_sending(best, self._state.checkpoint_all_peak, place("budget")))
            proven = describe_proven(best if budget <= best.budget else None)
            chips = [chip(*proven), self._chip_of_use("plain"), chip(PREDICTED, "plain"), place("run")]
            report = f"<span>{text(describe_sending(best))}. {place('proof')}</span>"
            return frame_story(story, folded_report(report) + "".join(chips))
        story = Story(tell_fit(schedule, self._state.checkpoint_all_peak, budget, place("budget")))
        known = describe_best_known(best).partition(": ")[2]
        report = f"<span>Best known within {place('budget')}: {text(known)}. {place('proof')}</span>"
        chips = [chip(*describe_proven(best)), self._chip_of_use("plain"), place("run")]
        return frame_story(story, folded_report(report) + "".join(chips))

    @staticmethod
    def _chip_of_use(tone: str) -> str:
        return chip(f"uses {place('used')} of {place('budget')}", tone)

    def points(self) -> Iterator[dict[str, Any]]:
        """For each point of the curve: its figure, where its stages are in it, and what is said of the stages."""
        for one in self.at:
            schedule, (scene, state) = one.schedule, (PlotsScene(), self._state)
            with state.at_once():
                state.budget = int(
                    self._range["high"]
                )  # the axes reach to it, so that they are the same for every point
                one.show(state)
                state.measurement = self.presented.measured(one)
            parts = one.stage_parts()
            yield {
                **record_figures(scene, state),
                "spans": [scene.span(stage) for stage in range(schedule.stages)],
                "hits": [scene.pointed(place) for place in range(scene.places)],
                "total": str(len(one.plan.statements)),
                "twice": runs_twice_html(schedule, -1, one.sends),
                "along": values_of_stages(schedule),
                "margins": margins(schedule),
                "steps": step_plan(one.plan).tolist(),
                "host": [] if one.sends is None else host_stack(one.sends).total.tolist(),
                "stages": {name: text_patterns(part[name] for part in parts) for name in parts[0]},
            }

    def maps(self) -> Iterator[dict[str, Any]]:
        """For each point of the curve the traits of its memory map."""
        for one in self.at:
            plan = one.plan
            arena = place_rectangles(rectangles_of(plan), alignment_of(self.graph), PLACING)
            words = {"size": arena.size, "bound": arena.bound, "words": describe_arena(arena)}
            found = self.presented.measured(one)
            lines = map_lines(plan, found.during if found is not None else None)
            lanes = {} if one.sends is None else map_lanes(one.sends)
            yield {"columns": map_columns(plan, arena), "lines": lines, "lanes": lanes, "arena": words}

    def values(self) -> Iterator[dict[str, Any]]:
        """What is said of `CHUNK` values after the other.

        The texts of all of them; and for each value how many of these are its own, its different `record_explanations`,
        with a text's number among its own in place of each, and which explanation holds at each point. What is said at
        several points is alike, and shrinks by being together.
        """
        explain = [one.explainer() for one in self.at]
        count = len(self.graph.values)
        for start in range(0, count, CHUNK):
            texts: list[str] = []
            values: list[Any] = []
            for value in range(start, min(start + CHUNK, count)):
                own, *said = _numbered([explain_at(value) for explain_at in explain])
                texts += own
                values.append([len(own), *said])
            yield {"texts": text_patterns(texts), "values": values}


@dataclass(frozen=True, eq=False)
class RecordedPoint:
    """A point of a recorded curve: a solution, what it computes, its peak in bytes, and its plan."""

    found: Solution | TransferSolution
    schedule: Schedule
    peak: int
    plan: AnyPlan

    @property
    def sends(self) -> TransferPlan | None:
        """The plan, if it may send values."""
        return self.plan if isinstance(self.plan, TransferPlan) else None

    def show(self, state: State) -> None:
        """Bring it into a state."""
        sending = self.found if isinstance(self.found, TransferSolution) else None
        state.schedule, state.sending = self.schedule, sending
        state.solution = self.found if isinstance(self.found, Solution) else None

    def first_look(self) -> tuple[int, int]:
        """Stage and value that are worth a look."""
        if isinstance(self.plan, Plan):
            return first_look(self.schedule, self.plan)
        way = widest_journey(self.plan)
        return (0, 0) if way is None else (way.fetched, way.value)

    def stage_parts(self) -> list[dict[str, str]]:
        """What depends on each stage alone."""
        stages = range(self.schedule.stages)
        if isinstance(self.plan, Plan):
            return [stage_parts(self.schedule, self.plan, stage) for stage in stages]
        return [
            {"stage": str(stage), "sentence": "has times that are predicted, not measured", "begin": "0", "width": "0"}
            for stage in stages
        ]

    def explainer(self) -> Callable[[int], list[Any]]:
        """What is said of a value, by its number."""
        if isinstance(self.plan, Plan):
            return partial(record_explanations, self.schedule, self.plan, StatementPlaces(self.plan))
        return partial(record_sending, self.schedule, self.plan)


class RecordedPresentation:
    """The run and the scenes of a recorded curve.

    Args:
        state: brought to what each scene shows.
        at: the points of the curve.
        measurement: a `remat_explorer.runtime.Measurement` of one of these schedules, or None.
    """

    def __init__(self, state: State, at: Sequence[RecordedPoint], measurement: Any) -> None:
        self._state, self._at, self._measurement = state, at, measurement

    def measured(self, point: RecordedPoint) -> Any:
        """The measurement, if it is of this point, or None."""
        found = self._measurement
        return found if found is not None and point.plan.statements == found.plan.statements else None

    def run(self) -> dict[str, Any] | None:
        """What was measured: the point of the curve, what is proven, and the pace at which its line is drawn.

        The story has ``here`` at that point, and elsewhere ``away``, with a button that leads to it.
        """
        for point, one in enumerate(self._at):
            found, peak = self.measured(one), one.peak
            if found is not None:
                pace = f"Draws the measured line over the prediction, {describe_pace(found)}"
                return {
                    "point": point,
                    "peak": peak,
                    "proof": text(describe_proof(found)),
                    "here": chip(*describe_run(found)) + button("Draw the run", DRAW, pace),
                    "away": chip(*NOT_RUN) + button("Show the one that was run", DRAW, pace),
                    "moments": drawing_moments(found),
                    "duration": drawing_seconds(found),
                }
        return None

    def scenes(self, scenes: Sequence[Scene] | None = None) -> list[dict[str, Any]]:
        """What the page shows of each scene, and says in it; None for the usual scenes.

        Where a scene executes, or says what was proven, the schedule that was measured is shown; without one it is left
        out.
        """
        state, said = self._state, describe_proof(self._measurement) if self._measurement is not None else ""
        state.measurement = self._measurement
        script = default_scenes(state) if scenes is None else scenes
        self._show(len(self._at) - 1)
        recorded = []
        for scene in (complete_scene(script, number) for number in range(len(script))):
            if scene.execute or "{proof}" in scene.caption:  # said of the schedule that was run alone
                run = self.run()
                if run is None:
                    continue
                scene = replace(scene, budget=run["peak"])
            if scene.budget is not None:
                state.set_budget(scene.budget)
                fitting = [i for i, one in enumerate(self._at) if one.peak <= state.budget]
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
        with self._state.at_once():
            self._at[point].show(self._state)
            self._state.measurement = self.measured(self._at[point])


def record_layouts(graph: Graph) -> Iterator[tuple[tuple[int, ...], dict[str, Any], bytes]]:
    """The numbers of the folded blocks, and what `graph_layout` says then.

    Of more than `FEW` blocks it is all of them, none, and each one alone folded or unfolded; without any, nothing.

    >>> from remat_explorer.instances import linear
    >>> [(numbers, layout["rows"]) for numbers, layout, _ in record_layouts(linear(8))]
    [((), 1), ((0,), 1)]
    """
    every = range(len(repeated_blocks(graph)))
    if not every:
        return
    if len(every) <= FEW:
        choices = [numbers for count in range(len(every) + 1) for numbers in combinations(every, count)]
    else:
        single = [tuple(i for i in every if i != number) for number in every]
        choices = [(), tuple(every), *((number,) for number in every), *single]
    for numbers in choices:
        yield (numbers, *graph_layout(graph, numbers))


def delta_encode(numbers: Iterable[int]) -> list[int]:
    """Each number less the one before it; of numbers that grow evenly little remains.

    >>> delta_encode([5, 7, 9, 9])
    [5, 2, 2, 0]
    """
    before, found = 0, []
    for number in numbers:
        found.append(number - before)
        before = number
    return found


def delta_columns(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Rows of the same length as columns of `delta_encode`; none where there are no rows.

    >>> delta_columns([(0, 3), (602, 5), (603, 6)])
    [[0, 602, 1], [3, 2, 1]]
    """
    return [delta_encode(column) for column in zip(*rows, strict=True)]


def text_patterns(texts: Iterable[str]) -> dict[str, Any]:
    """Texts as patterns with gaps, which the page fills again.

    Returns:
        The patterns; for each text the number of its pattern; and for each pattern the numbers in its gaps, one column
        for each gap, one row for each text in their order.

    >>> found = text_patterns(["stage 3 of 8", "stage 5 of 8", "runs once"])
    >>> [pattern.split(GAP) for pattern in found["patterns"]], found["which"], found["columns"]
    ([['stage ', ' of ', ''], ['runs once']], [0, 0, 1], [[[3, 2], [8, 0]], []])
    """
    numbers: dict[str, int] = {}
    which: list[int] = []
    rows: dict[int, list[list[int]]] = defaultdict(list)
    for content in texts:
        parts = NUMBER.split(content.replace(GAP, ""))
        pattern = numbers.setdefault(GAP.join(parts[::2]), len(numbers))
        which.append(pattern)
        rows[pattern].append([int(part) for part in parts[1::2]])
    return {
        "patterns": list(numbers),
        "which": which,
        "columns": [delta_columns(rows[pattern]) for pattern in range(len(numbers))],
    }


def _numbered(said: list[Any]) -> list[Any]:
    """Explanations of a value: its texts, what is said with them, and which of that is said at each point.

    What is said with them is the number of the strip and of each of `schedule_parts`, and columns: from which stage on
    which of the texts hold.
    """
    numbers: dict[str, int] = {}

    def number(texts: Iterable[str]) -> list[int]:
        return [numbers.setdefault(text, len(numbers)) for text in texts]

    points = [
        [number(parts), delta_columns([[stage, *number(texts)] for stage, *texts in reasons])]
        for parts, reasons in said
    ]
    keys = [json.dumps(point) for point in points]
    distinct = dict(zip(keys, points, strict=True))
    place_of = {key: place for place, key in enumerate(distinct)}
    return [list(numbers), list(distinct.values()), [place_of[key] for key in keys]]


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")

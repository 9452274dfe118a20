"""What the explorer knows. No widget lives here: views observe it, controllers change it, people script it.

`State` is everything that can change; `Status` is its status line, `FitQuestion` the question of the panel *Fit*.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import traitlets as t

from remat_explorer.errors import QuantityError, UnknownNameError
from remat_explorer.explorer.state.edited_schedule import EditedSchedule
from remat_explorer.explorer.state.implementation_choices import (
    NONE,
    KnownSolutions,
    allowed_kinds,
    parse_implementations,
)
from remat_explorer.explorer.state.navigation import (
    Folding,
    clip_zoom,
    find_operations,
    last_computation,
    nearest_computation,
    next_found,
    stage_of_computation,
)
from remat_explorer.figures import AnyPlan, Theme
from remat_explorer.graph import Graph
from remat_explorer.offload import Transfers, TransferSolution
from remat_explorer.offsets import Arena
from remat_explorer.permissions import Permissions
from remat_explorer.plan import Plan
from remat_explorer.quantities import parse_budget
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import STRATEGIES, Frontier, MinimumBudget, Solution

# Keys of `remat_explorer.fit.optimizers.OPTIMIZERS`, which is imported with torch, for which no screen should wait.
FIT_OPTIMIZERS = ("adamw", "adam", "adam8bit", "adafactor", "lion", "momentum", "sgd")
PRECISIONS = ("bfloat16", "float32", "autocast")
PICTURES = ("overview", "memory", "matrices", "model", "case", "plots")
WITH_MAP, WITH_MATRICES = ("overview", "memory"), ("overview", "matrices")
PANELS = ("explain", "peak", "compare", "execution", "plan", "ways", "solver", "fit", "edit")
_DOING = {"solving": "Searching", "executing": "Running"}
BUDGETS = ("budget", "dragged")  # of which `State.shown_budget` is one


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


class FitQuestion(t.HasTraits):
    """Memory and recipe of the question whether a training step fits, what is being done for it, and the answer."""

    fit_memory = t.Unicode("24 GB", help="Memory of the device, such as '24 GB'.")
    fit_optimizer = t.Enum(FIT_OPTIMIZERS, "adamw", help="Whose state has to fit, too.")
    fit_precision = t.Enum(PRECISIONS, "bfloat16", help="Of a model of the zoo.")
    fit_master_weights = t.Bool(False, help="Whether a float32 copy of parameters in half precision is kept.")
    fit_full_gradients = t.Bool(False, help="Whether gradients are kept in float32.")
    fit_asked = t.Bool(False, help="Whether an answer is wanted; False once it is there, or to give it up.")
    fit_doing = t.Unicode("", help="What is being done for the answer; empty where nothing is.")
    fit_refusal = t.Unicode("", help="Why there is no answer, or empty.")
    fitted: Any = t.Any(None, help="The answer, a `remat_explorer.fit.Fit`, or None.")


@dataclass(frozen=True)
class HistoryPoint:
    """A step of a solve: seconds since it began, cost of the best schedule, lower bound; None where unknown."""

    seconds: float
    cost: float | None
    lower_bound: float | None


def _optional(kind: type, help: str) -> Any:
    """A trait that is an instance of ``kind`` or None."""
    return t.Instance(kind, allow_none=True, help=help)


class State(FitQuestion, Folding, Status):
    """Everything that can change while someone explores, each under one name.

    >>> import remat_explorer as rx
    >>> state = State(graph=rx.linear(8))
    >>> state.set_budget("4")
    >>> state.budget
    4
    >>> State(buget=4)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    remat_explorer.errors.UnknownNameError: unknown setting 'buget'; did you mean 'budget'? Known: answer, arena, ...
    """

    # What the person chooses.
    model = t.Unicode(help="Name of a model of the zoo, or of the person's own module or graph.")
    batch = t.Int(0, help="Batch size; 0 is a size to begin with.")
    image = t.Any(None, help="Pixels: one number or (height, width); None is a size to begin with, if any.")
    device = t.Unicode("cpu", help="Where to profile and execute.")
    measured_costs = t.Bool(
        None,
        allow_none=True,
        help="Whether costs and workspace are measured, not estimated; None is once Execute is pressed.",
    )
    implementations: Any = t.Any(NONE, help="'none', 'exact', 'all', or the kinds that may be chosen, a tuple.")
    budget = t.Int(0, help="Memory budget in bytes, resident bytes included.")
    strategy = t.Unicode("optimal", help="Name in `remat_explorer.solvers.STRATEGIES`.")
    solver = t.Unicode("highs", help="MILP back end, 'highs' or 'cbc'.")
    options = t.Dict(default_value={}, help="Settings of the strategy by name, such as {'splits': 2}.")
    time_limit = t.Float(60.0, min=0.0, help="Seconds that a solve may take.")
    transfers: Any = t.Any(
        None, help="What copies to the host take, where values may be sent away; anything that `Transfers.of` takes."
    )
    improve = t.Bool(True, help="Improve the best known schedule in the background when a budget was set.")
    sweep = t.Bool(True, help="Fill the trade-off curve in the background when a model was loaded.")
    stage = t.Int(0, help="The selected stage t.")
    computation = t.Int(0, help="The computation of the plan that the step has come to, one of the selected stage.")
    value = t.Int(0, help="The selected value.")

    permissions = t.Instance(Permissions, (), help="What who is at the page may do with files.")

    # What the person looks at.
    dragged = t.Int(0, help="The budget under the thumb of the slider while it is dragged, else 0.")
    picture = t.Enum(
        PICTURES,
        "overview",
        help="R and S beside the memory map; the map; R, S and U; the model; a case study; or curve and timeline.",
    )
    colouring = t.Enum(("computation", "implementation"), "computation", help="What the colours of R say.")
    panel = t.Enum(PANELS, "explain", help="The panel beside what runs twice.")
    more = t.Bool(False, help="Whether the fields beyond model and budget are shown.")
    methods = t.Bool(False, help="Whether the trade-off shows all points of all strategies, beside its best ones.")
    legend = t.Bool(False, help="Whether the panel shows what terms and colours mean.")
    map_colours = t.Enum(("kind", "layer"), "kind", help="What the colours of the memory map say.")
    moment: Any = t.Any(None, help="What the memory is compared with: a stage, 'peaks' of two schedules, or None.")
    zoom: Any = t.Tuple(default_value=(), help="Part of the matrices: first and last stage, first and last operation.")
    search = t.Unicode("", help="Words that describe the operations to be found, as in `find_operations`.")
    found: Any = t.Tuple(default_value=(), help="Operations that `search` finds, ascending.")
    speed = t.Enum((1, 2, 4), 1, help="How many times faster than usual the stages play.")
    scenes: Any = t.Tuple(default_value=(), help="What is presented: a `scenes.Scene` after the other.")
    scene = t.Int(-1, help="The scene on the screen, from 0; -1 where nothing is presented.")
    caption = t.Unicode("", help="What is said of the scene.")
    hint = t.Int(0, min=0, max=6, help="Step of the guided tour, from 1; 0 is closed.")

    # What is known about the model.
    graph: Graph | None = _optional(Graph, "The training graph.")
    inputs = t.Any(None, help="The module that Execute runs with its example inputs (`loading.Inputs`), or None.")
    no_execution = t.Unicode("", help="Why Execute is not possible; empty when it is.")
    costs_are_measured = t.Bool(False, help="Whether costs and workspace of `graph` were measured on the device.")
    smallest: MinimumBudget | None = _optional(MinimumBudget, "Between which budgets the graph starts to be feasible.")
    checkpoint_all_peak = t.Int(0, help="Peak of the schedule that keeps everything, bytes.")

    # What has been found.
    schedule: Schedule | None = _optional(Schedule, "The schedule on the screen: incumbent or result.")
    solution: Solution | None = _optional(Solution, "The solution on the screen; None while it is an incumbent.")
    sending: TransferSolution | None = _optional(
        TransferSolution, "The solution on the screen where it may send values; `schedule` is then what it computes."
    )
    known_sending: Any = t.Tuple(default_value=(), help="Every `TransferSolution` of the graph that was found.")
    answer: Solution | None = _optional(Solution, "What the last solve returned, infeasible included.")
    measurement = t.Any(None, help="The measurement of `solution`, or None.")
    drawings = t.Int(
        0, help="How often the measured memory has drawn itself over the prediction; one more draws it anew."
    )
    shortage = t.Unicode("", help="Why the last execution ran out of memory, or empty.")
    arena: Arena | None = _optional(Arena, "Where everything of the plan on the screen lies, while the map is shown.")
    other: Solution | None = _optional(Solution, "The solution that the one on the screen is compared with, or None.")
    editing: EditedSchedule | None = _optional(EditedSchedule, "The schedule that a person edits by hand, or None.")
    frontier: Frontier | None = _optional(Frontier, "The trade-off curve, as far as it is known.")
    history = t.Tuple(default_value=(), help="How the last solve went: a `HistoryPoint` for each step it reported.")

    # What is going on.
    busy = t.Unicode("", help="'loading', 'solving', 'executing', or empty.")
    elapsed = t.Float(0.0, help="Seconds that the work under way has taken.")
    sweeping = t.Float(None, allow_none=True, help="Share of the background sweep that is done; None when none runs.")
    improving = t.Bool(False, help="Whether the schedule on the screen is being improved in the background.")
    stale = t.Bool(False, help="Whether the screen still shows another model than the chosen one.")
    playing = t.Bool(False, help="Whether the stages are played one after the other.")
    progress = t.Float(None, allow_none=True, help="Share of the work done, 0 to 1, or None when unknown.")
    theme: t.Enum[Theme] = t.Enum(("light", "dark"), "light", help="Ground of the page, as the browser reports it.")

    def __init__(self, **settings: Any) -> None:
        for name in settings:
            if not self.has_trait(name):
                raise UnknownNameError("setting", name, self.trait_names())
        self._known_solutions: KnownSolutions | None = None
        self.auto_selection: tuple[int, int] = (0, 0)  # stage and value that nobody chose
        self.strategy_without_choices = ""  # what was chosen before a graph with choices asked for "monet"
        super().__init__(**settings)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Changes made inside reach the observers together, once all of them are made."""
        with self.lock, self.hold_trait_notifications():
            yield

    def release(self) -> None:
        """Hold no model, no graph, and nothing that was found any more."""
        with self.at_once():
            self.inputs = self.smallest = self.schedule = self.solution = self.answer = self.measurement = None
            self.arena = self.other = self.editing = self.frontier = self.fitted = self.moment = self.graph = None
            self.sending = None
            self.history = self.scenes = self.known_sending = ()
            self._known_solutions = None

    @property
    def plan(self) -> Plan | None:
        """The plan of the schedule on the screen; None where it sends values, whose plan `sending` has."""
        return None if self.schedule is None or self.sending is not None else Plan.of(self.schedule)

    @property
    def shown_plan(self) -> AnyPlan | None:
        """The plan on the screen, whether it sends values or not."""
        return self.plan if self.sending is None else self.sending.plan

    @property
    def doing(self) -> str:
        """What is under way, as a word that begins a sentence."""
        return _DOING.get(self.busy, self.busy.capitalize())

    @property
    def shown_budget(self) -> int:
        """The budget in the pictures: the one that is dragged, or the chosen one."""
        return self.dragged or self.budget

    @property
    def is_edited(self) -> bool:
        """Whether the schedule on the screen is the one that is edited by hand."""
        return self.editing is not None and self.schedule is self.editing.schedule

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of implementations that may be chosen on the graph; none where it has no choices."""
        return allowed_kinds(self.graph, self.implementations)

    @property
    def known_solutions(self) -> KnownSolutions:
        """What is known of the loaded graph for any set of kinds."""
        assert self.graph is not None
        if self._known_solutions is None or self._known_solutions.graph is not self.graph:
            self._known_solutions = KnownSolutions(self.graph)
        return self._known_solutions

    def set_budget(self, text: str | int | float) -> None:
        """Set the budget from bytes, "1.5 GiB", "60%" of the checkpoint-all peak, or "smallest".

        Raises:
            QuantityError: if ``text`` is not a budget.
        """
        if isinstance(text, str) and "%" in text and self.graph is None:
            raise QuantityError(f"{text!r} is a share of the checkpoint-all peak, and no model is loaded yet")
        self.budget = parse_budget(text, self.checkpoint_all_peak, self._smallest_known)

    def _smallest_known(self) -> int:
        if self.smallest is None:
            raise QuantityError('"smallest" is the smallest budget with a known schedule, and none is known yet')
        peaks = [] if self.frontier is None else [point.peak for point in self.frontier.nondominated()]
        return min([self.smallest.known_feasible, *(peak for peak in peaks if peak is not None)])

    @t.observe("budget")
    def _end_drag(self, change: Any) -> None:
        self.dragged = 0

    @t.observe("strategy")
    def _keep_its_options(self, change: Any) -> None:
        """Options that the new strategy does not have go."""
        arguments = STRATEGIES[self.strategy].arguments if self.strategy in STRATEGIES else ()
        self.options = {name: value for name, value in self.options.items() if name in arguments}

    def select_operation(self, k: int) -> None:
        """Select what operation ``k`` writes first, and the stage in which it first runs."""
        if self.schedule is None or not 0 <= k < self.schedule.graph.n:
            return
        outputs, runs = self.schedule.graph.outputs(k), self.schedule.implementations_of(k) > 0
        if outputs:
            self.value = outputs[0]
        if runs.any():
            self.stage = int(runs.argmax())

    def select_found(self, by: int = 1) -> None:
        """Select the next operation that `search` has found, or with ``by`` -1 the one before."""
        current = int(self.graph.producer[self.value]) if self.graph and self.graph.values else 0
        k = next_found(self.found, current, by)
        if k is not None:
            self.select_operation(k)

    @t.observe("search", "graph", "schedule")
    def _find(self, change: Any) -> None:
        graph, schedule = self.graph, self.schedule
        if change["name"] == "schedule" and not self.search:
            return
        try:
            self.found = find_operations(graph, self.search, schedule) if graph else ()
        except QuantityError:  # a size that is still being typed; the search field says so
            self.found = ()

    @t.validate("implementations")
    def _implementations_known(self, proposal: Any) -> str | tuple[str, ...]:
        return parse_implementations(proposal["value"], self.graph)

    @t.validate("transfers")
    def _transfers_known(self, proposal: Any) -> Transfers | None:
        return Transfers.of(proposal["value"]) if proposal["value"] else None

    @t.validate("zoom")
    def _zoom_inside(self, proposal: Any) -> tuple[int, ...]:
        if self.schedule is None:
            return tuple(proposal["value"])  # clipped when there is a schedule
        compared = self.other.schedule if self.other else None
        stages = max(self.schedule.stages, compared.stages if compared else 0)
        return clip_zoom(proposal["value"], stages, self.schedule.graph.n)

    @t.observe("schedule", "other")
    def _zoom_again(self, change: Any) -> None:
        before, after = change["old"], change["new"]
        another = change["name"] == "schedule" and before and (after is None or before.graph is not after.graph)
        self.zoom = () if another else self.zoom  # validated again: there may be fewer stages

    @t.validate("stage")
    def _stage_inside(self, proposal: Any) -> int:
        last = self.schedule.stages - 1 if self.schedule else self.graph.stages - 1 if self.graph else 0
        return min(max(0, proposal["value"]), max(0, last))

    @t.observe("stage", "schedule")
    def _step_there(self, change: Any) -> None:
        """A stage that is selected has been computed to its end."""
        if self.schedule is not None and stage_of_computation(self.schedule, self.computation) != self.stage:
            self.computation = last_computation(self.schedule, self.stage)

    @t.observe("computation")
    def _stage_of_step(self, change: Any) -> None:
        if self.schedule is not None:
            self.stage = stage_of_computation(self.schedule, self.computation)

    @t.validate("computation")
    def _computation_inside(self, proposal: Any) -> int:
        return 0 if self.schedule is None else nearest_computation(self.schedule, proposal["value"])

    @t.validate("scene")
    def _scene_inside(self, proposal: Any) -> int:
        return min(max(-1, proposal["value"]), len(self.scenes) - 1)

    @t.validate("value")
    def _value_inside(self, proposal: Any) -> int:
        last = len(self.graph.values) - 1 if self.graph else 0
        return min(max(0, proposal["value"]), max(0, last))

    @t.validate("moment")
    def _moment_known(self, proposal: Any) -> Any:
        wanted = proposal["value"]
        if wanted is None or wanted == "peaks":
            return wanted
        if isinstance(wanted, bool) or not isinstance(wanted, int):
            raise t.TraitError(f"{wanted!r} is no moment: give a stage, 'peaks', or None")
        return self._stage_inside(proposal)

    @t.validate("budget")
    def _budget_positive(self, proposal: Any) -> int:
        if proposal["value"] < 0:
            raise t.TraitError(f"a budget of {proposal['value']} bytes is below 0")
        return proposal["value"]

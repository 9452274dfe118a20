"""The trade-off curve, which is the slider of the budget, and a field that understands "1.5 GiB" and "60%".

`curve_of` is what the browser draws of a frontier: the best known, what is proven, and the points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ipywidgets as w
import traitlets as t

from remat_explorer.errors import QuantityError, shown
from remat_explorer.explorer.controllers.screen import choose_solution, describe_rate, sending_now
from remat_explorer.explorer.page_widget import PageWidget
from remat_explorer.explorer.plots_figure import marker_outline
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.strategy_choice import describe_strategy
from remat_explorer.figures import Theme, bound_steps, largest_infeasible, mark, overheads, points_of
from remat_explorer.figures.palette import palette
from remat_explorer.offload import TransferSolution
from remat_explorer.quantities import format_bytes, format_overhead
from remat_explorer.solvers import Frontier, Solution, Status

HERE = Path(__file__).parent
LARGE = 1000  # bytes: nobody means a budget below it where nothing fits into it
BEYOND = 1.05  # the slider ends a little above keeping everything
FORMS = 'Bytes, "1.5 GiB", "60%" of what keeping everything takes, "40% of the way" to it, or "smallest"'


class CurveSlider(PageWidget):
    """The curve with the budget's handle; all budgets are bytes, all overheads %.

    ``dragged`` is where the handle is while it is dragged, else 0, for other widgets of the page. ``moving`` follows
    it: the browser sends its next position only when ``answered`` says that the last one is on the screen, so positions
    never queue up. Neither is echoed by the kernel, which would put back an earlier position while the handle goes on.

    Attributes:
        low, high: ends of the axis.
        known: the smallest budget for which a schedule is known, or 0.
        keep_all: the peak of keeping everything.
        value: the budget.
        curve: what `curve_of` says.
    """

    _esm = (HERE / "drawing_tools.js").read_text() + (HERE / "curve.js").read_text()
    _css = HERE / "curve.css"
    low = t.Float(0).tag(sync=True)
    high = t.Float(0).tag(sync=True)
    known = t.Float(0).tag(sync=True)
    keep_all = t.Float(0).tag(sync=True)
    value = t.Float(0).tag(sync=True)
    dragged = t.Float(0).tag(sync=True, echo_update=False)
    moving = t.Float(0).tag(sync=True, echo_update=False)
    answered = t.Float(0).tag(sync=True)
    curve = t.Dict({}).tag(sync=True)


class CurveView:
    """Keeps curve, field and the state's budget together.

    Args:
        state: whose budget it is.
        preview: called with the bytes under the handle while it is dragged.
    """

    def __init__(self, state: State, preview: Callable[[int], None]) -> None:
        self._state, self._preview = state, preview
        self._points: list[Solution] = []
        self._drawn: tuple[Any, ...] = ()
        self.slider = self.widget = CurveSlider()
        self.field = w.Text(
            description="Budget",
            continuous_update=False,
            layout=w.Layout(width="132px", flex="0 0 auto"),
            tooltip=FORMS,
        )
        self.field.style.description_width = "initial"
        self.slider.observe(lambda change: setattr(state, "budget", int(change["new"])), "value")
        self.slider.observe(self._drag, "moving")
        self.slider.observe(self._let_go, "dragged")
        self.slider.on_msg(self._asked)
        self.field.observe(self._typed, "value")
        state.observe(self._draw, ["budget", "smallest", "checkpoint_all_peak"])
        state.observe(self._plot, ["frontier", "smallest", "theme", "methods", "transfers", "known_sending"])
        self._draw()
        self._plot()

    def _plot(self, change: Any = None) -> None:
        state = self._state
        shown = (state.frontier, state.theme, state.methods, state.transfers, state.known_sending)
        with self.slider.hold_sync():
            self.slider.known = slider_range(state)["known"]
            if self._drawn and self._drawn[0] is shown[0] and self._drawn[1:] == shown[1:]:
                return
            self._drawn = shown
            self._points = points_on_curve(state.frontier, state.methods)
            self.slider.curve = curve_of(state.frontier, self._points, state.theme) | sent_curve(state)

    def _asked(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        """A click on the point of a strategy: that very schedule is shown."""
        point = content.get("point")
        if isinstance(point, int) and 0 <= point < len(self._points):
            choose_solution(self._state, self._points[point])

    def _drag(self, change: Any) -> None:
        try:
            self._draw_for(int(change["new"]))
        finally:
            self.slider.answered = change["new"]  # after what the preview sent: messages arrive in order

    def _let_go(self, change: Any) -> None:
        """Where the thumb is let go at the budget that is set, nothing else brings back what was shown for it."""
        state = self._state
        if not change["new"] and int(self.slider.value) == state.budget != state.shown_budget:
            self._draw_for(0)

    def _draw_for(self, dragged: int) -> None:
        budget = dragged or self._state.budget
        self._show(budget)
        with self._state.at_once():  # the schedule comes first: the matrices follow it
            self._preview(budget)
            self._state.dragged = dragged

    def _draw(self, change: Any = None) -> None:
        traits = slider_range(self._state)
        with self.slider.hold_sync():
            for name in ("low", "high", "keep_all"):
                setattr(self.slider, name, traits[name])
            self.slider.value = self._state.budget
        self._show(self._state.budget)

    def _show(self, budget: float) -> None:
        self._shown = format_bytes(budget) if budget else ""
        self.field.value = self._shown
        share = (
            f"{100 * budget / peak:.1f} % of keeping everything. " if (peak := self._state.checkpoint_all_peak) else ""
        )
        self.field.tooltip = f"{share}{FORMS}"

    def _typed(self, change: Any) -> None:
        if change["new"] == self._shown:
            return
        try:
            require_unit(change["new"], self._state)
            self._state.set_budget(change["new"])
            self._state.accept()
        except QuantityError as error:
            self._state.refuse(str(error))
        self._draw()


def slider_range(state: State) -> dict[str, float]:
    """The ends of the slider, as `CurveSlider` has them.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import minimum_budget
    >>> slider_range(State(smallest=minimum_budget(linear(8)), checkpoint_all_peak=10, budget=4))
    {'low': 3, 'high': 11, 'known': 3, 'keep_all': 10}
    """
    frontier, smallest = state.frontier, state.smallest
    peaks = {point.peak for point in frontier.nondominated()} if frontier is not None else set()
    found = sorted(float(peak) for peak in peaks if peak is not None)
    feasible = [smallest.known_feasible] if smallest else []
    found = sorted([*found, *(float(one.peak or 0) for one in sending_now(state))])
    least = smallest.lower_bound if smallest else 0
    return {
        "low": min(least, state.budget) if state.budget else least,
        "high": max(math.ceil(state.checkpoint_all_peak * BEYOND), state.budget),
        "known": min([*feasible, *found[:1]], default=0),  # a solve may have found less
        "keep_all": state.checkpoint_all_peak,
    }


def points_on_curve(frontier: Frontier | None, every: bool) -> list[Solution]:
    """The points that are drawn: those that no other beats, or with ``every`` those of all strategies."""
    if frontier is None:
        return []
    if not every:
        return list(frontier.nondominated())
    return [point for name in frontier.strategies for point in points_of(frontier, name)]


def curve_of(frontier: Frontier | None, points: Sequence[Solution], theme: Theme) -> dict[str, Any]:
    """What is drawn of a frontier.

    Args:
        frontier: the curve, or None.
        points: of it, as `points_on_curve` gives them.
        theme: ground of the page.

    Returns:
        ``best``, peaks in bytes with overheads in %, by peak; ``bound``, budgets with the overhead in % that nothing up
        to there and from the one before on can undercut; ``infeasible``, the largest budget that is proven to be too
        small, or 0; ``points``, each with its peak, its overhead, whether it is proven best, what is said of it and its
        strategy's name; ``marks``, by the name of a strategy the corners of its marker and its colour.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> frontier = Frontier(linear(8), (solve(linear(8), 4), solve(linear(8), 10)))
    >>> drawn = curve_of(frontier, points_on_curve(frontier, False), "light")
    >>> [[peak, round(overhead)] for peak, overhead in drawn["best"]], list(drawn["marks"])
    ([[4, 53], [10, 0]], ['optimal'])
    """
    if frontier is None:
        return {}
    budgets, bounds = bound_steps(frontier)
    best = frontier.nondominated()
    names = sorted({point.strategy for point in points})
    looks = {name: mark(name, theme) for name in names}
    return {
        "best": [[point.peak, height] for point, height in zip(best, overheads(best).tolist(), strict=True)],
        "bound": [[budget, max(0.0, bound)] for budget, bound in zip(budgets.tolist(), bounds.tolist(), strict=True)],
        "infeasible": largest_infeasible(frontier) or 0,
        "points": [
            [point.peak, height, point.status is Status.OPTIMAL, describe_point(point), point.strategy]
            for point, height in zip(points, overheads(points).tolist(), strict=True)
        ],
        "marks": {name: [marker_outline(look.shape), look.colour] for name, look in looks.items()},
    }


def sent_curve(state: State) -> dict[str, Any]:
    """What is drawn of plans that may send values, beside the curve of those that only compute again.

    Returns:
        Nothing where nothing may be sent, or no such plan is known. Else ``sent``, peaks with overheads in % at the
        bandwidth of now, by peak, each cheaper than all before; ``others``, what was solved at other bandwidths: peak,
        overhead, and what is said of it; ``rate``, in words; ``colour``.
    """
    now = sending_now(state)
    if state.transfers is None or not now:
        return {}
    best = [] if state.frontier is None else state.frontier.nondominated()
    plain = [(point.peak or 0, height) for point, height in zip(best, overheads(best).tolist(), strict=True)]
    steps: list[list[float]] = []
    for peak, height in sorted([*plain, *((one.peak or 0, _percent(one)) for one in now)]):
        if not steps or height < steps[-1][1] - 1e-9:
            steps.append([peak, height])
    others = [
        [one.peak, _percent(one), f"{one.transfers.describe()}: {format_bytes(one.peak or 0)}, predicted"]
        for one in state.known_sending
        if one.plan is not None and one.plan.sent_bytes and one.transfers != state.transfers
    ]
    rate = describe_rate(state.transfers, now[0].graph)
    return {"sent": steps, "others": others, "rate": rate, "colour": palette(state.theme).sent}


def _percent(solution: TransferSolution) -> float:
    return 100 * ((solution.overhead or 1.0) - 1)


def describe_point(point: Solution) -> str:
    """What is said of a point.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> describe_point(solve(linear(8), 4))
    'optimal: 4 B for +52.9 %, proven best'
    """
    proven = ", proven best" if point.status is Status.OPTIMAL else ""
    peak, overhead = format_bytes(point.peak or 0), format_overhead(point.overhead or 1.0)
    return f"{describe_strategy(point.strategy)}: {peak} for {overhead}{proven}"


def require_unit(text: str, state: State) -> None:
    """Ask back where a number without a unit is too little in bytes, and may have been meant as a share.

    Raises:
        QuantityError: if so; the message says what can be written.

    >>> from dataclasses import replace
    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import minimum_budget
    >>> state = State(smallest=replace(minimum_budget(linear(8)), lower_bound=4000))
    >>> require_unit("60", state)
    Traceback (most recent call last):
        ...
    remat_explorer.errors.QuantityError: '60' alone is bytes, and nothing fits below 3.91 KiB; write "60%" or "60 MiB"
    """
    digits, least = text.strip(), state.smallest.lower_bound if state.smallest else 0
    if least >= LARGE and digits.replace(".", "", 1).isdecimal() and len(digits) < 6 and float(digits) < LARGE:
        raise QuantityError(
            f'{shown(text)} alone is bytes, and nothing fits below {format_bytes(least)}; write "{digits}%" or '
            f'"{digits} MiB"'
        )

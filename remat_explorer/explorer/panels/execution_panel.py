"""The validation card: what was predicted, what was measured, and where the two differ most."""

from __future__ import annotations

from typing import Any

from remat_explorer.allocator import AllocatorPrediction, predict_allocator
from remat_explorer.explanations import Mention, largest_difference
from remat_explorer.explorer.controllers.executing import describe_excess, describe_proof, nearest_feasible_budget
from remat_explorer.explorer.controllers.screen import show_best_known
from remat_explorer.explorer.measured_run import describe_pace
from remat_explorer.explorer.panels.side_panel import Click, SidePanel, button, link, note, table, text
from remat_explorer.explorer.state.state import State
from remat_explorer.offload import TransferPlan
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds, format_share

BEFORE = "Press Run it to compare measured memory, time and gradients with the prediction."

DRAW = "draw"  # the action of the button that draws the measured line again
HOLD = "hold"  # that of the button that takes the nearest budget that holds, or the schedule that fits
GPU = "on a GPU"  # whatever device a graph is for


class ExecutionPanel(SidePanel):
    """The measurement of the solution on the screen, or why there is none."""

    name, title = "execution", "What was predicted and what was measured"
    traits = ("measurement", "shortage", "no_execution", "busy", "progress", "solution", "frontier", "budget")

    def html(self) -> str:
        return execution_html(self.state)

    def clicked(self, click: Click) -> None:
        if click.action == DRAW:
            self.state.drawings += 1
        elif click.action == HOLD:
            take_nearest_budget(self.state)
        else:
            super().clicked(click)

    def _changed(self, change: Any) -> None:
        if change["name"] == "progress" and self.state.busy != "executing":
            return
        super()._changed(change)


def execution_html(state: State) -> str:
    """The card, what ran out of memory, how far a run is, or what to do for one."""
    under_way = ""
    if state.busy == "executing":
        share = f", {100 * state.progress:.0f} % done" if state.progress else ""
        under_way = note(f"Running{share}: the plan, plain PyTorch, and both in turn with keeping everything.")
        if state.measurement is None:
            return under_way
    if state.shortage:
        return shortage_html(state)
    if state.measurement is not None:
        return under_way + missing_html(state) + card_html(state.measurement)
    return missing_html(state) + note(state.no_execution or BEFORE) + predicted_allocator_html(state)


def missing_html(state: State) -> str:
    """By how much the schedule exceeds its budget, with a button for what holds; nothing where it fits."""
    words, nearest = describe_excess(state), nearest_feasible_budget(state)
    if not words:
        return ""
    offers = f"Set the budget to {format_bytes(nearest)}", "Show the schedule that fits"
    offer = button(offers[nearest == state.budget], HOLD, "Show the best known schedule within this budget")
    return f'<p class="missing"><b class="bad">Over the budget.</b> {text(words)}. {offer if nearest else ""}</p>'


def take_nearest_budget(state: State) -> None:
    """Choose the nearest budget within which a schedule is known, and show that schedule."""
    if state.busy or not (nearest := nearest_feasible_budget(state)):
        return
    state.budget = nearest
    show_best_known(state)


def shortage_html(state: State) -> str:
    """Running out of memory, as a result."""
    predicted = f" Predicted: {format_bytes(state.plan.peak)}." if state.plan is not None else ""
    reason = state.shortage[:1].upper() + state.shortage[1:].removesuffix(".")
    return (
        f'<p class="head"><b class="bad">Out of memory</b> on {text(state.device)}.{predicted}</p>'
        f'<p class="reason">{text(reason)}.</p>'
    )


def predicted_allocator_html(state: State) -> str:
    """What the plan on the screen would take of a GPU, whatever device it is for."""
    if state.plan is None:
        return ""
    words = allocator_text(predict_allocator(state.plan))
    return table([[GPU, words]], kind="facts")


def allocator_text(prediction: AllocatorPrediction) -> str:
    """The predicted peaks on a GPU, in a few words."""
    expandable = " · expandable segments" if prediction.settings.expandable_segments else ""
    fragmentation = format_share(prediction.fragmentation)
    return (
        f"PyTorch's allocator, predicted: {format_bytes(prediction.peak_reserved)} reserved · "
        f"{format_bytes(prediction.peak_allocated)} allocated · fragmentation {fragmentation}{expandable}"
    )


def card_html(measurement: Any) -> str:
    """The card of a `remat_explorer.runtime.Measurement`."""
    held = measurement.within_budget
    highest = format_bytes(max(measurement.peak, measurement.generated_peak))
    verdict, sends = "good" if held else "bad", isinstance(measurement.plan, TransferPlan)
    rows = [
        ["peak", format_bytes(measurement.predicted_peak), format_bytes(measurement.peak), _error(measurement.error)],
        [
            "without resident bytes",
            format_bytes(measurement.predicted_peak - measurement.resident_bytes),
            format_bytes(measurement.peak - measurement.resident_bytes),
            _error(measurement.dynamic_error),
        ],
        *_host(measurement),
        [
            "overhead",
            format_overhead(measurement.predicted_overhead),
            measurement.overhead_text,
            _times(measurement),
        ],
    ]
    facts = [
        [
            "budget",
            f'<b class="{verdict}">{"held" if held else "exceeded"}</b>: at most {highest} of '
            f"{format_bytes(measurement.budget)}",
        ],
        *_against_eager(measurement),
        *([] if sends else [[GPU, allocator_text(measurement.predicted_allocator)]]),
        *_allocator(measurement),
        ["largest difference", _largest(measurement)],
        ["device", text(measurement.device)],
        *([["measured line", _drawn(measurement)]] if measurement.is_timed else []),
        *([["not compared", text(measurement.missing)]] if measurement.missing else []),
    ]
    card = table(rows, ("", "predicted", "measured", "difference"), "card")
    return f'<p class="proof">{_proven(measurement)}</p>' + card + table(facts, kind="facts")


def _host(measurement: Any) -> list[list[str]]:
    """The bytes of copies, where values are sent."""
    plan = measurement.plan
    if not isinstance(plan, TransferPlan):
        return []
    error = (measurement.host_peak - plan.host_peak) / max(plan.host_peak, 1)
    return [["on the host", format_bytes(plan.host_peak), format_bytes(measurement.host_peak), _error(error)]]


def _proven(measurement: Any) -> str:
    """The line that says it all, with its verdicts in green or red."""
    said = "; ".join(_marked(part) for part in describe_proof(measurement).split("; "))
    return said.replace("ABOVE", '<b class="bad">ABOVE</b>', 1)


def _drawn(measurement: Any) -> str:
    """Why it was not drawn while the plan ran, and at which pace it was."""
    again = button("Draw it again", DRAW, "Draw the measured line over the prediction once more, at the run's own pace")
    return f"drawn after the measurement, so that nothing disturbs the runs, {describe_pace(measurement)} {again}"


def _error(ratio: float) -> str:
    return f"{100 * ratio:+.2f} %"


def _times(measurement: Any) -> str:
    if not measurement.is_timed:
        return "not timed"
    if measurement.checkpoint_all_seconds is None:
        return format_seconds(measurement.seconds)
    return f"{format_seconds(measurement.seconds)} against {format_seconds(measurement.checkpoint_all_seconds)}"


def _against_eager(measurement: Any) -> list[list[str]]:
    if measurement.eager is None:
        return []
    compared = measurement.eager.comparison
    others = [
        "loss equal" if compared.loss_difference == 0 else f"loss {compared.loss_text}",
        f"buffers {compared.buffers_text}",
        f"random state {compared.random_state_text}",
    ]
    return [
        ["gradients", " · ".join(_marked(part) for part in (compared.gradients_text, *others))],
        *([["difference", text(compared.begins_text)]] if compared.begins else []),
        ["plain PyTorch", _plain(measurement)],
    ]


def _plain(measurement: Any) -> str:
    peak = format_bytes(measurement.eager.peak)
    return f"{peak}, {format_seconds(measurement.eager.seconds)}" if measurement.is_timed else peak


def _marked(words: str) -> str:
    """A finding with its verdict, the first word in which it says one, in green or red."""
    marked = text(words)
    for verdict, colour in (("DIFFERS", "bad"), ("DIFFER", "bad"), ("equal", "good")):
        if verdict in marked:
            return marked.replace(verdict, f'<b class="{colour}">{verdict}</b>', 1)
    return marked


def _allocator(measurement: Any) -> list[list[str]]:
    if measurement.allocator is None:
        return []
    found = measurement.allocator
    return [["CUDA, beside the budget", str(found.plan)], ["CUDA, whole process", str(found.process)]]


def _largest(measurement: Any) -> str:
    plan = measurement.plan
    difference = largest_difference(plan, measurement.during, measurement.after)
    if difference is None:
        return "none: measured and predicted memory are equal at every statement"
    statement = plan.statements[difference.statement]
    where = link(Mention(f"statement {difference.statement}, {plan.text(statement)}", stage=statement.stage))
    sign = "+" if difference.bytes > 0 else ""
    return f"{sign}{format_bytes(difference.bytes)} at {where}: {text(difference.reason)}"

"""Whether a training step fits into a device's memory: the question in fields, the answer as bars and tables."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from remat_explorer.explorer.panels.side_panel import Click, SidePanel, button, note, table, text
from remat_explorer.explorer.state.state import FIT_OPTIMIZERS, PRECISIONS, State
from remat_explorer.quantities import format_bytes

BEFORE = (
    "Find out whether a training step of this model fits into a device's memory, with its parameters, gradients and "
    "optimizer, what recomputation it takes, and how large the step may be. It needs neither weights nor a GPU, and "
    "takes a few seconds to half a minute."
)
GOOD = {"yes": "good", "recompute": "good", "unknown": "", "no": "bad"}
COLOURED = {
    "parameters": "resident",
    "master weights": "predicted",
    "optimizer": "measured",
    "gradients": "gradients",
    "activations": "kept",
    "workspace": "forward",
}


class FitPanel(SidePanel):
    """Memory, optimizer and precision; the verdict, what takes the memory, the largest step, other optimizers."""

    name, title = "fit", "Whether a training step fits into a memory"
    traits = ("fit_asked", "fit_doing", "fit_refusal", "fitted", "fit_memory", "model")

    def __init__(self, state: State) -> None:
        super().__init__(state)
        field = {"style": {"description_width": "initial"}}
        self.memory = w.Text(
            description="Memory", continuous_update=False, tooltip="Of the device, such as 24 GB", **field
        )
        self.optimizer = w.Dropdown(description="Optimizer", options=FIT_OPTIMIZERS, **field)
        self.precision = w.Dropdown(description="Precision", options=PRECISIONS, **field)
        self.master = w.Checkbox(
            description="master weights", indent=False, tooltip="A float32 copy of parameters in half precision"
        )
        self.full = w.Checkbox(description="float32 gradients", indent=False, tooltip="As when they are added up")
        for trait, widget in {
            "fit_memory": self.memory,
            "fit_optimizer": self.optimizer,
            "fit_precision": self.precision,
            "fit_master_weights": self.master,
            "fit_full_gradients": self.full,
        }.items():
            w.link((state, trait), (widget, "value"))
        row = w.HBox([self.memory, self.optimizer, self.precision, self.master, self.full])
        row.add_class("remat-fit-fields")
        self.widget: Any = w.VBox([row, self.content], layout=w.Layout(height="100%"))
        self.widget.add_class("remat-fit")

    def html(self) -> str:
        return fit_html(self.state)

    def clicked(self, click: Click) -> None:
        state = self.state
        if click.action == "ask":
            state.fit_asked = True
        elif click.action == "stop":
            state.fit_asked = False
        elif click.action.startswith("recipe-") and state.fitted is not None:
            recipe = state.fitted.alternatives[int(click.action.removeprefix("recipe-"))].recipe
            with state.at_once():
                state.fit_optimizer = recipe.optimizer
                state.fit_master_weights, state.fit_full_gradients = recipe.master_weights, recipe.full_gradients
            state.fit_asked = True
        else:
            super().clicked(click)


def fit_html(state: State) -> str:
    """The button, and the answer as far as there is one."""
    if state.fit_asked:
        return f"<p>{button('Cancel', 'stop', 'Stop looking')} {text(state.fit_doing)}…</p>"
    ask = button("Does it fit?", "ask", f"Whether {state.model} trains within {state.fit_memory}")
    if state.fitted is None:
        return f"<p>{ask}</p>" + (
            f'<p class="bad">{text(state.fit_refusal)}</p>' if state.fit_refusal else note(BEFORE)
        )
    return _answer_html(state.fitted, state.fit_memory)


def _answer_html(found: Any, asked: str) -> str:
    """The answer; the memory stands there as it was given, too."""
    memory = format_bytes(found.memory)
    given = memory if asked == memory else f"{asked} ({memory})"
    head, _, rest = found.decided.replace(memory, given, 1).partition(": ")
    sizes = "".join(f"<p>{text(line)}</p>" for line in found.sizes)
    return (
        f'<p class="proof {GOOD[found.verdict]}">{text(head)}</p>'
        f"<p>{text(rest[:1].upper() + rest[1:])}</p>"
        f'<p class="quiet">{text(found.asked)}</p>{_bar(found)}{_shares(found)}{sizes}{_others(found)}'
    )


def _bar(found: Any) -> str:
    """What takes the memory where everything is kept, as parts of a bar with a mark where the memory ends."""
    widest = max(found.keep_all, found.memory)
    parts = "".join(
        f'<i style="width:{100 * count / widest:.2f}%;--part:{_colour(what)}" title="{text(what)}"></i>'
        for what, count in found.shares.items()
    )
    end = f'<b style="left:{100 * found.memory / widest:.2f}%" title="{format_bytes(found.memory)}"></b>'
    return f'<div class="fit-bar" role="img" aria-label="{text(_said(found))}">{parts}{end}</div>'


def _said(found: Any) -> str:
    return f"keeping everything takes {format_bytes(found.keep_all)} of {format_bytes(found.memory)}"


def _colour(what: str) -> str:
    return f"var(--{COLOURED[what]})" if what in COLOURED else "var(--grid)"


def _shares(found: Any) -> str:
    rows = [
        [f'<i class="fit-key" style="--part:{_colour(what)}"></i>{text(what)}', format_bytes(count)]
        for what, count in found.shares.items()
    ]
    rows += [["<b>keeping everything</b>", f"<b>{format_bytes(found.keep_all)}</b>"]]
    name, most = found.largest
    rows += [[f"the largest operation alone, {text(name)}", format_bytes(most)]]
    return table(rows, kind="facts fit-facts")


def _others(found: Any) -> str:
    """Other recipes at the same size; a click asks for one of them."""
    rows = [
        [
            button(str(other.recipe), f"recipe-{number}", "Ask about this one"),
            format_bytes(other.extra_bytes),
            f'<span class="{GOOD[other.verdict]}">{other.words}</span>',
        ]
        for number, other in enumerate(found.alternatives)
    ]
    return table(rows, ["optimizer", "keeps", f"in {format_bytes(found.memory)}"], "fit-others")

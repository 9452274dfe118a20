"""Two schedules beside each other: A on the screen, B pinned."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from remat_explorer.explanations import in_vain_text
from remat_explorer.explorer.controllers.schedule_comparison import (
    compare_with_keep_all,
    comparison_rows,
    count_differing_cells,
    open_solution_file,
    open_uploaded_solution,
    pin_solution,
    stop_comparing,
    swap_compared,
)
from remat_explorer.explorer.panels.side_panel import Click, SidePanel, button, note, table, text
from remat_explorer.explorer.state.state import State
from remat_explorer.offload import TransferSolution
from remat_explorer.solvers import Solution

ACTIONS = {"pin": pin_solution, "keep": compare_with_keep_all, "swap": swap_compared, "stop": stop_comparing}
BEFORE = (
    "Pin the schedule on the screen as B, then solve with another budget or strategy. This panel then compares both, "
    "and the matrices show the cells in which they differ."
)


class ComparePanel(SidePanel):
    """The table of both, and where to give a solution file that is to be B: its path, or where that is not allowed
    the file itself."""

    name, title = "compare", "The schedule on the screen and another"
    traits = ("solution", "sending", "schedule", "other")

    def __init__(self, state: State) -> None:
        super().__init__(state)
        row = w.HBox(self._by_path() if state.permissions.paths else self._by_upload())
        row.add_class("remat-open")
        self.widget: Any = w.VBox([self.content, row], layout=w.Layout(height="100%"))
        self.widget.add_class("remat-compare")
        state.observe(self._forget_other, "graph")

    def _by_path(self) -> list[Any]:
        self.path = w.Text(
            description="Solution file",
            style={"description_width": "initial"},
            placeholder="solution.json",
            continuous_update=False,
            layout=w.Layout(flex="1 1 0", width="auto", min_width="0"),
            tooltip="Path of a solution file of this model, relative to the notebook's folder",
        )
        self.open = w.Button(description="Open as B", layout=w.Layout(width="84px"), tooltip="Compare with this file")
        self.open.on_click(lambda clicked: open_solution_file(self.state, self.path.value))
        return [self.path, self.open]

    def _by_upload(self) -> list[Any]:
        self.upload = w.FileUpload(
            description="Open as B", accept=".json", multiple=False, tooltip="Compare with a solution file of yours"
        )
        self.upload.observe(self._uploaded, "value")
        return [w.Label("Solution file"), self.upload]

    def _uploaded(self, change: Any) -> None:
        for file in change["new"]:
            open_uploaded_solution(self.state, file["name"], bytes(file["content"]))

    def html(self) -> str:
        return comparison_html(self.state.sending or self.state.solution, self.state.other)

    def clicked(self, click: Click) -> None:
        if click.action in ACTIONS:
            ACTIONS[click.action](self.state)

    def _forget_other(self, change: Any) -> None:
        """A solution of another graph cannot be compared."""
        other, graph = self.state.other, change["new"]
        if other is not None and (graph is None or other.graph.structure != graph.structure):
            self.state.other = None


def comparison_html(shown: Solution | TransferSolution | None, other: Solution | None) -> str:
    """The buttons, and where there are two solutions the table of both."""
    both = other is not None and shown is not None
    buttons = " ".join(
        [
            button("Compare with this", "pin", "Pin the schedule on the screen as B", shown is not None),
            button("Keep everything", "keep", "Compare with checkpoint-all, which keeps everything", shown is not None),
            button("Swap", "swap", "Put B on the screen, and pin what is there now", both),
            button("Stop comparing", "stop", "Forget B", other is not None),
        ]
    )
    if other is None:
        return f"<p>{buttons}</p>{note(BEFORE)}"
    theirs = comparison_rows(other)
    mine = dict(comparison_rows(shown)) if shown is not None else {}
    rows = [[text(label), text(mine.get(label, "…")), text(figure)] for label, figure in theirs]
    rows += [[text(label), *map(text, counts)] for label, counts in _cells(shown, other)]
    whole = f"<p>{buttons}</p>" + table(rows, ("", "A, on the screen", "B, pinned"), "compared")
    if not isinstance(shown, Solution) or shown.schedule is None or other.schedule is None:
        return whole
    return whole + f"<p>{text(in_vain_text(shown.schedule, other.schedule))}</p>"


def _cells(shown: Solution | TransferSolution | None, other: Solution) -> list[tuple[str, tuple[str, str]]]:
    if not isinstance(shown, Solution) or shown.schedule is None or other.schedule is None:
        return []
    rows = []
    for label, a, b in (
        ("computed only here", shown.schedule.R, other.schedule.R),
        ("kept only here", shown.schedule.S, other.schedule.S),
    ):
        cells = count_differing_cells(a, b)
        counts = ("other stages", "other stages") if cells is None else (f"{cells.only_a:,}", f"{cells.only_b:,}")
        rows.append((label, counts))
    return rows

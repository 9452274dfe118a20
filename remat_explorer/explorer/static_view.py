"""How the explorer stands, for pages without a kernel: one line and a picture, which a live explorer hides."""

from __future__ import annotations

import html
from typing import Any
from uuid import uuid4

from remat_explorer.explorer.controllers.screen import describe_best_known, describe_sending
from remat_explorer.explorer.state.state import State
from remat_explorer.figures import LIGHT, TITLES, AnyPlan, matrix_pictures, png_address
from remat_explorer.plan import Plan

LIVE = "Run the cell for the explorer itself."
WIDTH, HEIGHT = 1000, 120  # of the memory's drawing, whose width is stretched
# What JupyterLab shows for a widget without its kernel, "Error displaying widget", goes; so does an empty place.
STYLE = """<style>
.jp-OutputArea-child:has(+ .jp-OutputArea-child .remat-standing):not(:has(.remat-explorer)) { display: none; }
</style>"""


class StaticView:
    """The output beneath the explorer's, kept up to date whenever something has been loaded, solved or executed."""

    def __init__(self, state: State) -> None:
        self._state, self._identity = state, uuid4().hex
        self._shown: str | None = None

    def show(self) -> None:
        """Put it beneath what is displayed now."""
        if self._shown is None:
            self._state.observe(self._update, "busy")
        self._shown = static_html(self._state)
        self._display(update=False)

    def _update(self, change: Any) -> None:
        before = self._shown
        if not change["new"]:
            self._shown = static_html(self._state)
            if self._shown != before:
                self._display(update=True)

    def _display(self, update: bool) -> None:
        from IPython.display import display

        display({"text/html": self._shown, "text/plain": ""}, raw=True, display_id=self._identity, update=update)


def static_html(state: State) -> str:
    """What the explorer shows, in a line, and R, S, U and the memory as pictures.

    >>> import remat_explorer as rx
    >>> static_html(State(model="mlp")).count("<img")
    0
    """
    schedule, solution = state.schedule, state.solution
    if schedule is None:
        return _framed(f"<p><b>{html.escape(state.model)}</b>: nothing has been loaded yet. {LIVE}</p>")
    said = "a schedule that was not finished" if solution is None else describe_best_known(solution)
    if state.sending is not None:
        said = describe_sending(state.sending)
    line = f"<p><b>{html.escape(state.model)}</b>: {html.escape(said)}. This is a picture of its last state. {LIVE}</p>"
    matrices = "".join(
        f'<figure style="flex:1 1 0;min-width:0;margin:0"><figcaption style="font-size:12px">{title}</figcaption>'
        f'<img alt="{title}" style="width:100%;height:230px;image-rendering:pixelated" '
        f'src="{png_address(cells, colours)}"></figure>'
        for title, (cells, colours, _) in zip(TITLES, matrix_pictures(schedule, "light")[0], strict=True)
    )
    memory = _memory(state.shown_plan or Plan.of(schedule), state.budget)
    return _framed(f'{line}<div style="display:flex;gap:12px">{matrices}</div>{memory}')


def _framed(content: str) -> str:
    look = f"background:{LIGHT.ground};color:{LIGHT.ink};font:13px system-ui,sans-serif"
    return f'{STYLE}<div class="remat-standing" style="max-width:1240px;padding:6px 8px;{look}">{content}</div>'


def _memory(plan: AnyPlan, budget: int) -> str:
    """Predicted memory along the statements of the plan, and the budget as a line."""
    during = plan.timeline.during
    highest = 1.05 * max(plan.peak, budget, 1)
    width = WIDTH / max(len(during), 1)
    steps = [f"M0,{HEIGHT}"]
    for i, count in enumerate(during.tolist()):
        steps.append(f"V{HEIGHT * (1 - count / highest):.1f}H{(i + 1) * width:.1f}")
    area = f'<path d="{"".join(steps)}V{HEIGHT}Z" fill="{LIGHT.kept}"/>'
    place = HEIGHT * (1 - budget / highest)
    line = f'<path d="M0,{place:.1f}H{WIDTH}" stroke="{LIGHT.budget}" stroke-width="1.5" stroke-dasharray="8 5"/>'
    return (
        '<p style="margin:6px 0 2px;font-size:12px">Memory along the plan, predicted, and the budget</p>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="memory" '
        f'style="width:100%;height:{HEIGHT}px;background:{LIGHT.empty}">{area}{line if budget else ""}</svg>'
    )

"""What a person drives by mouse and keyboard: model, budget, a point of the trade-off, every control by Tab."""

from __future__ import annotations

from typing import Any

import pytest

from remat_explorer.figures.palette import palette
from tests.browser.explorer_page import await_idle, click, show_in, status
from tests.browser.lab import run_cell
from tests.browser.lasting_notebook import LastingNotebook
from tests.browser.test_matrices_in_browser import COLOURS

pytestmark = pytest.mark.browser

# Where the points of a strategy are on the page, those left out that others lie upon.
POINTS = """(name) => {
    const plot = document.querySelector('.js-plotly-plot');
    const trace = plot._fullData.find((trace) => trace.name === name && trace.xaxis === 'x');
    const [x, y] = [plot._fullLayout.xaxis, plot._fullLayout.yaxis];
    const box = plot.getBoundingClientRect();
    return [...trace.x].map((at, i) => [box.left + x._offset + x.l2p(at), box.top + y._offset + y.l2p(trace.y[i])]);
}"""
OVERHEAD = "() => parseFloat(document.querySelector('.remat-status .text').innerText.split('overhead +')[1])"
OVERHEAD_ABOVE = f"(least) => ({OVERHEAD})() > least"
SOLVED = "() => /^(Optimal|Feasible) /.test(document.querySelector('.remat-status .text').innerText)"
UNNAMED = """() => [...document.querySelectorAll(
    '.remat-explorer button, .remat-explorer select, .remat-explorer input, .remat-explorer [tabindex="0"]'
)].filter((control) => control.offsetParent !== null && control.type !== 'hidden').filter((control) => {
    const name = control.innerText || control.ariaLabel || control.labels?.length
        || control.closest('.widget-vbox')?.querySelector('.widget-label');
    const hint = control.title || control.closest('[title]');
    return !name && !hint;
}).map((control) => control.outerHTML.slice(0, 200))"""
# Drags the budget to a share of the slider: whether the matrices were drawn at once, before the kernel could answer.
DRAGGED = """(share) => {
    const [slider, root] = ['.remat-budget input', '.remat-matrices'].map((part) => document.querySelector(part));
    const drawn = root.dataset.drawn;
    slider.value = Number(slider.min) + share * (slider.max - slider.min);
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    return Number(root.dataset.drawn) > Number(drawn);
}"""
FOCUSED = "() => document.activeElement.innerText || document.activeElement.ariaLabel || document.activeElement.title"


def drawn(page: Any) -> int:
    return int(page.locator(".remat-matrices").get_attribute("data-drawn"))


def overhead(page: Any) -> float:
    """The overhead that the status line speaks of, in percent."""
    return page.evaluate(OVERHEAD)


def test_another_model_a_dragged_budget_and_a_point_of_the_curve(notebook: LastingNotebook) -> None:
    page = show_in(notebook, 'rx.Explorer("mlp", batch=64)')
    page.locator(".remat-controls select").first.select_option("residual_net")
    page.wait_for_selector('.remat-matrices[data-rows="68"]', timeout=60_000)
    await_idle(page)
    page.wait_for_function("() => document.querySelectorAll('.remat-ticks > *').length > 5", timeout=60_000)

    slider = page.locator(".remat-budget input").bounding_box()
    height = slider["y"] + slider["height"] / 2
    before = drawn(page)
    page.mouse.move(slider["x"] + 0.9 * slider["width"], height)
    page.mouse.down()
    page.mouse.move(slider["x"] + 0.89 * slider["width"], height, steps=6)
    page.wait_for_selector(".remat-status:has-text('Best known within')", timeout=20_000)
    with_much = overhead(page)
    page.mouse.move(slider["x"] + 0.1 * slider["width"], height, steps=6)
    page.wait_for_function(OVERHEAD_ABOVE, arg=with_much, timeout=20_000)  # less memory costs more
    page.mouse.up()
    assert drawn(page) > before

    await_idle(page)
    for share in (0.9, 0.05, 0.95):  # the curve comes to the page, and comes anew with what the sweep finds
        page.wait_for_function(f"(share) => ({DRAGGED})(share) || void ({DRAGGED})(0.5)", arg=share, timeout=120_000)
        assert palette("light").over not in page.evaluate(COLOURS, 2)  # which is of the budget that is dragged
    thumb = page.locator(".remat-budget input")
    dragged_to = thumb.input_value()
    page.set_viewport_size({"width": 1200, "height": 800})  # the slider is drawn anew, as with what the sweep finds
    page.wait_for_timeout(500)
    assert thumb.input_value() == dragged_to
    page.set_viewport_size({"width": 1280, "height": 800})
    thumb.evaluate("slider => slider.dispatchEvent(new Event('change', {bubbles: true}))")
    await_idle(page)
    page.locator(".remat-plots").evaluate("plots => plots.scrollIntoView({block: 'end'})")
    page.wait_for_timeout(300)
    field = page.locator(".remat-budget-row input[type=text]")
    for end in (max, min):  # of the curve; the drag has left the budget at neither
        before = field.input_value()
        for _ in range(5):  # what the sweep finds moves the axes, and a point is missed then
            page.mouse.click(*end(page.evaluate(POINTS, "optimal"), key=lambda place: place[0]))
            page.wait_for_timeout(1000)
            if status(page).startswith("Chosen: ") and field.input_value() != before:
                break
        assert status(page).startswith("Chosen: ")
        assert field.input_value() != before
    assert page.leaks == []
    assert page.failures == []


# Whether the line of the predicted memory is on the screen and reaches a height.
PREDICTED = """(height) => {
    const figure = document.querySelector('.js-plotly-plot');
    const line = figure && figure._fullData && figure._fullData.find((trace) => trace.name === 'predicted');
    return line && line.visible === true && line.y && Math.max(...line.y) === height
}"""


def test_the_plots_show_what_came_while_they_were_loaded_and_what_was_lost_and_come_anew(
    notebook: LastingNotebook,
) -> None:
    made = "e = rx.Explorer(graph=rx.linear(8), budget=4, improve=False, sweep=False)\ne.wait()\ndisplay(e)"
    hurried = "for strategy in ('chen-sqrt-n', 'optimal', 'checkpoint-all'):\n    e.state.strategy = strategy\n    "
    hurried += "e.state.budget = 10\n    e.solve()\n    e.wait()"
    figure = "next(w for w in widgets.widget._instances.values() if type(w).__name__ == 'LiveFigure')"
    lost = f"figure = {figure}\nfigure._send = lambda *given, **named: None\n"
    lost += "e.state.strategy = 'optimal'\ne.state.budget = 5\ne.solve()\ne.wait()"
    page = notebook.begin(f"import remat_explorer as rx\n{made}\n{hurried}", f"from ipywidgets import widgets\n{lost}")
    run_cell(page, 0)
    page.wait_for_function(PREDICTED, arg=10, timeout=60_000)
    run_cell(page, 1)
    page.wait_for_function(PREDICTED, arg=5, timeout=60_000)
    page.evaluate("document.querySelector('.remat-plots .js-plotly-plot').remove()")  # as if it had never been loaded
    page.wait_for_function(PREDICTED, arg=5, timeout=60_000)
    assert page.failures == []


def test_the_keyboard_alone_sets_a_budget_solves_and_opens_every_tab(notebook: LastingNotebook) -> None:
    chosen = 'batch=8, budget="80%", improve=False, sweep=False, time_limit=5'
    page = show_in(notebook, f'rx.Explorer("residual_net", {chosen})')
    assert page.evaluate(UNNAMED) == []

    page.locator(".remat-controls select").first.focus()
    reached: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        name = page.evaluate(FOCUSED).strip()
        reached.append(name)
        if name == "Memory budget":
            page.keyboard.press("ArrowLeft")
            page.wait_for_selector(".remat-status:has-text('Best known within')", timeout=20_000)
        if name.startswith("Compare") and "Execution" not in name:
            break
    for control in ("Solve", "Execute", "Memory budget", "Matrices", "Zoom", "Explain", "At the peak"):
        assert any(control in name for name in reached), (control, reached)
    page.keyboard.press("Enter")
    page.wait_for_selector(".remat-panel:has-text('Compare with this')", timeout=10_000)

    page.locator(".remat-controls").get_by_role("button", name="Solve").focus()
    page.keyboard.press("Enter")
    page.wait_for_function(SOLVED, timeout=60_000)
    await_idle(page)
    click(page, "Execute")
    page.wait_for_selector(".remat-status:has-text('gradients equal')", timeout=90_000)
    assert page.failures == []

"""The explorer as a person meets it: in JupyterLab, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.explorer_page import ON_SCREEN, await_idle, click, show, show_in, stage, status
from tests.browser.lab import cell, run_cell, save
from tests.browser.lasting_notebook import LastingNotebook

pytestmark = pytest.mark.browser

PAINTED = """() => [...document.querySelectorAll('.remat-matrices .remat-canvas canvas:first-child')].map((canvas) => {
    if (canvas.width * canvas.height === 0) return 0;
    const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return new Set(pixels).size;
}).every((colours) => colours >= 3)"""
WATCH_CANCEL = """() => {
    const status = document.querySelector('.remat-status');
    const button = [...document.querySelectorAll('.remat-controls button')].find((b) => b.innerText.includes('Cancel'));
    button.addEventListener('click', () => { window.cancelClicked = performance.now(); });
    new MutationObserver(() => {
        const now = document.querySelector('.remat-status');
        if (window.cancelClicked && now && now.dataset.busy === '')
            window.cancelHeard ??= performance.now() - window.cancelClicked;
    }).observe(status.parentElement, {subtree: true, childList: true, attributes: true});
}"""
MEASURED = """() => {
    const trace = document.querySelector('.js-plotly-plot')?._fullData?.find((trace) => trace.name === 'measured');
    return trace && trace.visible === true && trace.y?.length > 10 && Math.max(...trace.y) > 0
}"""
BROKEN = """() => [...document.querySelectorAll('.remat-explorer, .remat-explorer *')].filter(
    (widget) => !['none', 'normal'].includes(getComputedStyle(widget, '::before').content)
        && widget.classList.contains('jupyter-widgets-disconnected')
).length"""
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
ANSWERS = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'"

ROUND = """
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
seen = weakref.ref(model)
explorer = rx.Explorer(model, (torch.ones(2, 8),), sweep=False)
del model
explorer
"""
PRINTED = ".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stdout']"
IDS = "assert explorer.wait(60); print(json.dumps(list(_instances)))"
CLOSE = "explorer.close(); gc.collect(); print(len(_instances), seen() is None)"
IMPORTS = """
import gc, json, weakref, torch, remat_explorer as rx
from ipywidgets.widgets.widget import _instances
from torch import nn
"""
KNOWN = """(ids) => {
    const {kernel} = window.jupyterapp.shell.currentWidget.sessionContext.session;
    return ids.filter((id) => kernel.hasComm(id)).length;
}"""


def choose_tab(page: Any, name: str) -> None:
    page.locator(".remat-tabs").get_by_role("tab", name=name, exact=True).click()


def use_the_panels(page: Any) -> None:
    """A click on a statement, a name reached and pressed by keyboard, and a look at every tab."""
    row = page.locator(".remat-plan tr:not(.selected)[data-stage]").first
    chosen = row.get_attribute("data-stage")
    row.locator("td").first.click()
    page.wait_for_selector(f'.remat-matrices[data-stage="{chosen}"]')
    name = page.locator(".remat-plan tr.selected [role=button]").first
    name.focus()
    page.keyboard.press("ArrowDown")
    moved = page.evaluate("document.activeElement.dataset.stage")
    page.keyboard.press("Enter")
    page.wait_for_selector(f'.remat-matrices[data-stage="{moved}"]')
    choose_tab(page, "At the peak")
    page.get_by_role("button", name="Go to the peak").click()
    page.wait_for_selector(".remat-panel .bars .row.selected")
    choose_tab(page, "Compare")
    page.get_by_role("button", name="Compare with this").click()
    page.wait_for_selector(".remat-panel .compared")
    choose_tab(page, "Explain")
    page.wait_for_selector(".remat-panel .reason")


def test_solve_move_the_cursor_execute_and_reload(lab: tuple[str, Path], page: Any) -> None:
    chosen = 'batch=8, budget="75%", strategy="optimal", time_limit=5, sweep=False'
    show(page, lab, "road.ipynb", f'rx.Explorer("residual_net", {chosen})')
    page.wait_for_function(PAINTED)  # every matrix shows ground, cells and text

    click(page, "Solve")
    page.wait_for_selector(".remat-status:has-text('overhead +')", timeout=60_000)
    await_idle(page)
    page.wait_for_selector(".remat-budget-row:has-text('of keeping everything')")

    page.locator(".remat-matrices").focus()
    page.keyboard.press("Home")  # from the recomputation that is selected first
    page.wait_for_selector(".remat-scrubber :text('Stage 0 of')")
    slider = page.locator(".remat-stage-bar input")
    slider.focus()
    for _ in range(3):  # one after the other: each goes through the kernel
        before = stage(page)
        page.keyboard.press("ArrowRight")
        page.wait_for_function(f"() => Number(document.querySelector('.remat-matrices').dataset.stage) > {before}")
    page.locator(".remat-matrices").focus()
    moved = stage(page)
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(f".remat-scrubber :text('Stage {moved + 1} of')")
    matrix = page.locator(".remat-canvas").first.bounding_box()
    page.mouse.click(matrix["x"] + 60, matrix["y"] + 180)
    page.wait_for_function(f"() => Number(document.querySelector('.remat-matrices').dataset.stage) > {moved + 1}")
    page.wait_for_selector(".remat-tip", state="visible")
    choose_tab(page, "Plan")
    page.wait_for_selector(f".remat-plan tr.selected:has-text('t={stage(page)}')")
    use_the_panels(page)

    click(page, "Execute")
    page.wait_for_selector(".remat-status:has-text('gradients equal: max difference 0')", timeout=90_000)
    assert "ABOVE its budget of" in status(page)  # it was solved without the workspace of its kernels, now measured
    page.locator(".remat-panel .missing button").click()
    await_idle(page)
    click(page, "Execute")
    page.wait_for_selector(".remat-status:has-text('within its budget of')", timeout=90_000)
    assert "gradients equal: max difference 0" in status(page)
    page.wait_for_function(MEASURED)

    save(page, lab[1] / "road.ipynb", "application/vnd.jupyter.widget-view+json")
    page.reload()
    page.wait_for_function(ON_SCREEN, timeout=90_000)
    page.wait_for_function(MEASURED, timeout=20_000)
    page.wait_for_function(PAINTED)

    page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    page.wait_for_selector('.remat-matrices[data-theme="dark"]')
    page.wait_for_timeout(1500)  # JupyterLab hides the page for a moment
    page.wait_for_function(PAINTED)
    assert page.leaks == []
    assert page.failures == []


def test_cancel_stops_a_long_solve_at_once_and_the_interface_lives_on(notebook: LastingNotebook) -> None:
    chosen = 'strategy="checkmate-ilp", time_limit=600, improve=False, sweep=False'
    network = str(Path(__file__).parents[1] / "data" / "captured" / "mobilenet_v1.json")
    page = show_in(notebook, f'rx.Explorer(graph=rx.Graph.load({network!r}), budget="60%", {chosen})')
    choose_tab(page, "Plan")
    click(page, "Solve")
    page.wait_for_selector('.remat-status[data-busy="solving"]', timeout=20_000)
    before = stage(page)
    page.locator(".remat-matrices").focus()
    page.keyboard.press("ArrowDown")  # while it solves: the kernel answers with the statements of the next stage
    page.wait_for_selector(f".remat-plan tr.selected:has-text('t={before + 1}')", timeout=10_000)
    assert page.locator('.remat-status[data-busy="solving"]').count() == 1

    page.evaluate(WATCH_CANCEL)
    click(page, "Cancel")
    await_idle(page, 10)
    assert page.evaluate("window.cancelHeard") < 5000  # milliseconds on the page's own clock; the solve has 600 s
    assert "ancelled" in status(page)
    page.keyboard.press("Home")
    page.locator(".remat-matrices").focus()
    page.keyboard.press("Home")
    page.wait_for_selector(".remat-plan tr.selected:has-text('t=0')")
    assert page.leaks == []
    assert page.failures == []


def test_a_kernel_that_was_restarted_is_told_once_until_the_cell_runs_again(lab: tuple[str, Path], page: Any) -> None:
    show(page, lab, "restart.ipynb", 'rx.Explorer("mlp", batch=64)')
    height = page.locator(".remat-controls").bounding_box()["height"]
    banner = page.locator(".remat-gone")
    assert banner.inner_text() == ""
    page.evaluate(RESTART)
    page.wait_for_selector(".remat-gone:has-text('run the cell again')", timeout=30_000)
    assert page.locator(".remat-explorer.jupyter-widgets-disconnected").count() == 1
    assert page.evaluate(BROKEN) == 0
    assert page.locator(".remat-controls").bounding_box()["height"] == height
    page.locator(".remat-matrices").evaluate("matrices => matrices.focus()")
    assert page.evaluate("document.activeElement.closest('.remat-explorer') === null")
    solve = page.locator(".remat-controls").get_by_role("button", name="Solve").bounding_box()
    page.mouse.click(solve["x"] + 5, solve["y"] + 5)  # raised "Cannot send"
    page.wait_for_function(ANSWERS, timeout=60_000)
    run_cell(page, 0)
    page.wait_for_function(ON_SCREEN, timeout=90_000)
    assert page.locator(".remat-gone").inner_text() == ""
    assert page.leaks == []
    assert page.failures == []


def test_a_closed_explorer_leaves_nothing_in_the_kernel_and_in_the_page(notebook: LastingNotebook) -> None:
    page = notebook.begin(IMPORTS, ROUND, IDS, CLOSE)
    run_cell(page, 0)
    for _ in range(3):
        run_cell(page, 1)
        page.wait_for_function(ON_SCREEN, timeout=90_000)
        run_cell(page, 2)
        ids = json.loads(cell(page, 2).locator(PRINTED).inner_text())
        assert page.evaluate(KNOWN, ids) == len(ids) > 200
        run_cell(page, 3)
        assert cell(page, 3).locator(PRINTED).inner_text().split() == ["0", "True"]
        page.wait_for_function(f"(ids) => ({KNOWN})(ids) === 0", arg=ids, timeout=20_000)
        assert page.locator(".remat-explorer").count() == 0
    assert page.leaks == []
    assert page.failures == []

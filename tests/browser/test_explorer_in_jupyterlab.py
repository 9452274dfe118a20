"""The explorer in JupyterLab: exports, an execution, restarts, and how it stands without a kernel."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from tests.browser.explorer_page import (
    LINE_OF,
    ON_SCREEN,
    PAINTED,
    await_attribute,
    await_idle,
    await_status,
    choose_picture,
    choose_tab,
    click,
    flawless,
    open_more,
    show_again,
    show_in,
    stage,
    status,
)
from tests.browser.lab import LastingNotebook, run, run_cell, save, write_notebook

pytestmark = pytest.mark.browser

COLOURS = """async (bytes) => {
    const bitmap = await createImageBitmap(new Blob([new Uint8Array(bytes)]));
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
    const context = canvas.getContext('2d');
    context.drawImage(bitmap, 0, 0);
    const pixels = new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return [canvas.width, canvas.height, new Set(pixels).size];
}"""


@pytest.fixture(scope="module")
def page(notebook: LastingNotebook) -> Any:
    page = show_in(notebook, "rx.Explorer(graph=rx.linear(8), budget=4, improve=False, sweep=False)")
    click(page, "Find the best")
    await_status(page, "Proven best")
    return page


def choose(page: Any, label: str) -> None:
    open_more(page)
    page.locator(".remat-export > button").click()
    page.locator(".remat-export-menu").get_by_role("button", name=label, exact=True).click()


def saved(page: Any, root: Path, name: str) -> bytes:
    """What was saved; files are written atomically, so one that is there is complete."""
    end = time.monotonic() + 60
    while not (root / name).exists():
        assert time.monotonic() < end, f"{name} is not there; the status is {status(page)!r}"
        page.wait_for_timeout(100)
    return (root / name).read_bytes()


def test_files_are_saved_downloaded_and_never_replaced(notebook: LastingNotebook, page: Any, tmp_path: Path) -> None:
    for name in ("linear8-graph.json", "linear8-graph-2.json"):
        choose(page, "Graph (JSON)")
        saved(page, notebook.root, name)
    graph = rx.Graph.load(str(notebook.root / "linear8-graph.json"))

    choose(page, "Report (HTML)")
    assert saved(page, notebook.root, "linear8-report.html").startswith(b"<!doctype html>")

    with page.expect_download() as download:
        choose(page, "Report (HTML): download")  # several megabytes, in parts
    assert download.value.suggested_filename == "linear8-report.html"
    download.value.save_as(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").endswith("</html>\n")

    with page.expect_download() as download:
        choose(page, "Solution (JSON): download")
    download.value.save_as(tmp_path / "solution.json")
    assert rx.Solution.load(tmp_path / "solution.json", graph).budget == 4

    page.locator(".remat-export > button").click()
    assert page.locator(".remat-export-menu").get_by_role("button", name="Execution for Perfetto").first.is_disabled()
    page.keyboard.press("Escape")
    assert page.locator(".remat-export-menu").is_hidden()
    assert flawless(page)


def test_pictures_show_what_is_on_the_screen(notebook: LastingNotebook, page: Any) -> None:
    choose_picture(page, "Plots")
    page.wait_for_function(LINE_OF, arg="predicted")
    choose(page, "Plots (SVG)")
    drawing = saved(page, notebook.root, "linear8-plots.svg")
    assert drawing.startswith(b"<svg")
    assert b"predicted" in drawing
    for label, name in (
        ("Plots (PNG)", "linear8-plots.png"),
        ("Matrices (PNG)", "linear8-matrices.png"),
        ("Model (PNG)", "linear8-model.png"),
    ):
        kind = label.split()[0]
        choose_picture(page, kind)
        page.wait_for_selector(f".remat-{kind.lower()} :is(canvas, .main-svg)", state="visible")
        choose(page, label)
        width, height, colours = page.evaluate(COLOURS, list(saved(page, notebook.root, name)))
        assert width > 600
        assert height > 200
        assert colours > 8
    assert flawless(page)


MEASURED = f"() => ({LINE_OF})('measured')?.y.length > 10"
BROKEN = """() => [...document.querySelectorAll('.remat-explorer, .remat-explorer *')].filter(
    (widget) => !['none', 'normal'].includes(getComputedStyle(widget, '::before').content)
        && widget.classList.contains('jupyter-widgets-disconnected')
).length"""
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
ANSWERS = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'"
RUN = "() => document.querySelector('.js-plotly-plot')?.dataset.run"
# Whether the measured line is covered, how many covers there are, and where its pen is.
LINE = """() => {
    const plot = document.querySelector('.js-plotly-plot');
    const {index} = plot._fullData.find((trace) => trace.name === 'measured');
    const node = [...plot.querySelectorAll('g.trace')].find((group) => group.__data__?.[0]?.trace?.index === index);
    const pen = plot.querySelector('.remat-pen');
    return [node.style.clipPath !== '', plot.querySelectorAll('clipPath[id^=remat-measured-run]').length,
        pen && Number(pen.getAttribute('cx'))];
}"""
ROUND = """
import gc, json, weakref, torch, remat_explorer as rx
from ipywidgets.widgets.widget import _instances
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
seen = weakref.ref(model)
explorer = rx.Explorer(model, (torch.ones(2, 8),), sweep=False)
del model
explorer
"""
IDS = "assert explorer.wait(60); print(json.dumps(list(_instances)))"
CLOSE = "explorer.close(); gc.collect(); print(len(_instances), seen() is None)"
KNOWN = """(ids) => {
    const {kernel} = window.jupyterapp.shell.currentWidget.sessionContext.session;
    return ids.filter((id) => kernel.hasComm(id)).length;
}"""


def use_the_panels(page: Any) -> None:
    row = page.locator(".remat-plan tr:not(.selected)[data-stage]").first
    chosen = row.get_attribute("data-stage")
    row.locator("td").first.click()
    await_attribute(page, "stage", chosen)
    page.locator(".remat-plan tr.selected [role=button]").first.focus()
    page.keyboard.press("ArrowDown")
    moved = page.evaluate("document.activeElement.dataset.stage")
    page.keyboard.press("Enter")
    await_attribute(page, "stage", moved)
    choose_tab(page, "Peak")
    page.get_by_role("button", name="Go to the peak").click()
    page.wait_for_selector(".remat-panel .bars .row.selected")
    choose_tab(page, "Compare")
    page.get_by_role("button", name="Compare with this").click()
    page.wait_for_selector(".remat-panel .compared")
    choose_tab(page, "Why")
    page.wait_for_selector(".remat-panel .reason")


def watch_the_line(page: Any) -> None:
    """The measured line is uncovered from left to right, stands, and is drawn again when asked, not without motion."""
    page.wait_for_function(f"{RUN} === 'drawing'")
    places = []
    while page.evaluate(RUN) == "drawing":
        covered, clips, place = page.evaluate(LINE)
        if place is not None:
            assert (covered, clips) == (True, 1)
            places.append(place)
    assert places == sorted(places)
    assert places[-1] > places[0]
    assert page.evaluate(LINE) == [False, 0, None]
    proof = page.locator(".remat-panel.execution .proof").inner_text()
    assert "gradients equal bit for bit" in proof
    page.get_by_role("button", name="Draw it again").click()
    page.wait_for_function(f"{RUN} === 'drawing'")
    page.wait_for_function(f"{RUN} === 'drawn'")
    page.emulate_media(reduced_motion="reduce")
    page.evaluate("() => { document.querySelector('.js-plotly-plot').dataset.run = ''; }")
    run(page, "explorer.state.drawings += 1")
    page.wait_for_timeout(500)
    assert page.evaluate(RUN) != "drawing"
    assert page.evaluate(LINE) == [False, 0, None]
    page.emulate_media(reduced_motion="no-preference")


def test_solve_move_the_cursor_execute_and_reload(notebook: LastingNotebook) -> None:
    chosen = 'batch=8, budget="75%", strategy="optimal", time_limit=5, sweep=False'
    page = show_in(notebook, f'rx.Explorer("residual_net", {chosen})')
    page.wait_for_function(PAINTED)  # every matrix shows ground, cells and text
    click(page, "Find the best")
    await_status(page, "overhead +")
    await_idle(page)

    page.locator(".remat-matrices").focus()
    page.keyboard.press("Home")  # from the recomputation that is selected first
    page.wait_for_selector(".remat-scrubber :text-is('stage 0')")
    page.locator(".remat-stage-bar input").focus()
    for _ in range(3):  # one after the other: each goes through the kernel
        before = stage(page)
        page.keyboard.press("ArrowRight")
        page.wait_for_function(f"() => Number(document.querySelector('.remat-matrices').dataset.stage) > {before}")
    page.locator(".remat-matrices").focus()
    moved = stage(page)
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(f".remat-scrubber :text-is('stage {moved + 1}')")
    matrix = page.locator(".remat-canvas").first.bounding_box()
    page.mouse.click(matrix["x"] + 60, matrix["y"] + 180)
    page.wait_for_function(f"() => Number(document.querySelector('.remat-matrices').dataset.stage) > {moved + 1}")
    page.wait_for_selector(".remat-matrices .remat-tip", state="visible")
    choose_tab(page, "Plan")
    page.wait_for_selector(f".remat-plan tr.selected:has-text('t={stage(page)}')")
    use_the_panels(page)

    click(page, "Run it")
    await_status(page, "gradients equal: max difference 0", 90)
    assert "ABOVE its budget of" in status(page)  # it was solved without the workspace of its kernels, now measured
    page.locator(".remat-panel .missing button").click()
    await_idle(page)
    click(page, "Run it")
    await_status(page, "within its budget of", 90)
    assert "gradients equal: max difference 0" in status(page)
    choose_picture(page, "Plots")
    page.wait_for_function(MEASURED)
    page.wait_for_function(f"{RUN} === 'drawn'")  # the first time, by itself: a second one must not meet it
    choose_tab(page, "Run")
    page.get_by_role("button", name="Draw it again").click()
    watch_the_line(page)

    choose_picture(page, "Overview")
    save(page, notebook.file, "application/vnd.jupyter.widget-view+json")
    page.reload()
    page.wait_for_function(ON_SCREEN)
    page.wait_for_function(PAINTED)
    choose_picture(page, "Plots")
    page.wait_for_function(MEASURED)
    assert flawless(page)


def test_a_closed_explorer_leaves_nothing_in_the_kernel_and_in_the_page(notebook: LastingNotebook) -> None:
    page = notebook.begin(ROUND)
    for _ in range(2):
        run_cell(page, 0)
        page.wait_for_function(ON_SCREEN)
        ids = json.loads(run(page, IDS))
        assert page.evaluate(KNOWN, ids) == len(ids) > 200
        assert run(page, CLOSE).split() == ["0", "True"]
        page.wait_for_function(f"(ids) => ({KNOWN})(ids) === 0", arg=ids)
        assert page.locator(".remat-explorer").count() == 0
    assert flawless(page)


def test_a_kernel_that_was_restarted_is_told_once_until_the_cell_runs_again(notebook: LastingNotebook) -> None:
    page = show_in(notebook, "rx.Explorer(graph=rx.linear(8), budget=4, improve=False, sweep=False)")
    height = page.locator(".remat-controls").bounding_box()["height"]
    assert page.locator(".remat-gone").inner_text() == ""
    page.evaluate(RESTART)
    page.wait_for_selector(".remat-gone:has-text('run the cell again')")
    assert page.locator(".remat-explorer.jupyter-widgets-disconnected").count() == 1
    assert page.evaluate(BROKEN) == 0
    assert page.locator(".remat-controls").bounding_box()["height"] == height
    page.locator(".remat-matrices").evaluate("matrices => matrices.focus()")
    assert page.evaluate("document.activeElement.closest('.remat-explorer') === null")
    solve = page.locator(".remat-controls").get_by_role("button", name="Find the best").bounding_box()
    page.mouse.click(solve["x"] + 5, solve["y"] + 5)  # raised "Cannot send"
    page.wait_for_function(ANSWERS)
    show_again(page)
    assert page.locator(".remat-gone").inner_text() == ""
    assert flawless(page)


def test_a_saved_notebook_shows_how_the_explorer_stood(notebook: LastingNotebook, tmp_path: Path) -> None:
    page = show_in(notebook, "rx.Explorer(graph=rx.linear(8), budget=4, improve=False, sweep=False)")
    standing = page.locator(".remat-standing")
    assert standing.count() == 1
    assert not standing.is_visible()  # the explorer itself is there
    save(page, notebook.file, "+52.9 %, proven best")
    notebook.reopen()
    standing.wait_for(state="visible")
    assert "Best known within 4 B: overhead +52.9 %, proven best." in standing.inner_text()
    assert page.locator(".remat-standing img").count() == 3
    page.wait_for_timeout(1000)
    assert not page.get_by_text("model not found").is_visible()
    show_again(page)
    standing.wait_for(state="hidden")


def test_what_nbconvert_makes_has_the_standing_picture_and_a_live_page(file_page: Any, tmp_path: Path) -> None:
    page, path = file_page, tmp_path / "curve.ipynb"
    shown = 'display(rx.Explorer(graph=rx.linear(8), budget=4, improve=False, sweep=False))\nprint("shown")'
    curve = "rx.page(rx.sweep(rx.linear(8), [3, 5, 10]))"
    write_notebook(path, [f"import remat_explorer as rx\n{shown}", curve])
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--execute", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    page.context.set_offline(True)
    page.goto(path.with_suffix(".html").as_uri())
    page.locator(".remat-standing").wait_for(state="visible")
    words = page.inner_text("body")
    assert "within 4 B" in words
    assert "it needs no kernel" in words
    assert "model not found" not in words
    assert "Traceback" not in words
    frame = page.frame_locator("iframe")
    frame.locator("body[data-ready][data-shown]").wait_for()
    frame.locator("#curve input").evaluate(
        "s => { s.value = s.min; s.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    frame.locator('#story:has-text("In 3 B it costs 165 % more")').wait_for()
    before = int(frame.locator(".remat-matrices").get_attribute("data-stage") or 0)
    frame.locator(".remat-matrices").focus()
    page.keyboard.press("ArrowUp")
    frame.locator(f'.remat-matrices[data-stage="{before - 1}"]').wait_for()
    assert not frame.locator("#copy").is_visible()  # a frame has no address
    assert page.failures == []

"""The presenter mode as a person meets it: a button, keys, the whole screen, in JupyterLab and in the live page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_FILE_PATH

import remat_explorer as rx
from remat_explorer.explorer.live_page import live_page
from remat_explorer.explorer.work.scenes import Scene
from tests.browser.lab import run_cell, run_until_printed
from tests.browser.lasting_notebook import LastingNotebook
from tests.browser.test_accessibility import VIOLATIONS

pytestmark = pytest.mark.browser

FILLS = """() => {
    const {left, top, width, height} = document.querySelector('.remat-explorer').getBoundingClientRect();
    return left === 0 && top === 0 && width === innerWidth && height === innerHeight;
}"""


LETTERS = """() => {
    const place = document.querySelector('#figure'), text = place.querySelector('.xtick text');
    return parseFloat(getComputedStyle(text).fontSize) * place.getBoundingClientRect().width / place.offsetWidth;
}"""
# A place on the page within a recomputed cell of R, of whatever size the screen shows it.
ORANGE = """() => {
    const canvas = document.querySelector('.remat-canvas canvas:first-child'), box = canvas.getBoundingClientRect();
    const {data, width, height} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < data.length; i += 4)
        if (data[i] === 0xD5 && data[i + 1] === 0x5E && data[i + 2] === 0) {
            const [x, y] = [(i / 4) % width, Math.floor(i / 4 / width)];
            return [box.left + (x + 2) * box.width / width, box.top + (y + 2) * box.height / height];
        }
}"""


FITS = """() => {
    const [place, drawn] = ['.remat-figure', '.remat-figure .main-svg'].map(
        (name) => document.querySelector(name).getBoundingClientRect());
    return Math.abs(place.width - drawn.width) < 2 && Math.abs(place.height - drawn.height) < 2;
}"""


def at_scene(page: Any, scene: int, caption: str) -> bool:
    """Whether the bar comes to a scene with its caption."""
    page.wait_for_selector(f'.remat-presenter[data-scene="{scene}"]', timeout=20_000)
    page.locator(".remat-presenter .caption").filter(has_text=caption).wait_for(timeout=20_000)
    return True


def test_scenes_of_the_live_page_go_by_keys_and_end(page: Any, tmp_path: Path) -> None:
    script = [
        Scene("All of it: {keep_all}", "100%", "model", at=3),
        Scene("{peak} alone", "4", "matrices", at="recomputation"),
        Scene("It plays", picture="model", play=True),
    ]
    path = live_page(rx.solve(rx.linear(8), 4), scenes=script).save(tmp_path / "page.html")
    page.goto(path.as_uri() + "#budget=4")
    page.wait_for_selector("body[data-ready][data-shown]", timeout=60_000)
    page.get_by_role("button", name="Present").click()
    assert at_scene(page, 0, "All of it: 10 B")
    assert page.is_visible("#model")
    page.wait_for_selector('.remat-model[data-stage="3"]')
    assert "10 B" in page.inner_text("#budget-said")
    assert not page.is_visible("h1")
    size = page.evaluate("() => parseFloat(getComputedStyle(document.querySelector('.caption')).fontSize)")
    assert size >= 20
    page.evaluate(AXE_FILE_PATH.read_text("utf-8"))
    assert page.evaluate(VIOLATIONS, "body") == []
    page.keyboard.press("PageDown")
    assert at_scene(page, 1, "4 B alone")
    assert page.is_visible("#matrices")
    assert page.evaluate(LETTERS) >= 16
    page.wait_for_function(f"() => ({ORANGE})()")
    page.mouse.move(*page.evaluate(ORANGE))
    page.wait_for_selector(".remat-tip:has-text('recomputed')", state="visible")
    page.keyboard.press("ArrowRight")
    assert at_scene(page, 2, "It plays")
    page.wait_for_selector('.remat-model[data-stage="1"]', timeout=10_000)
    page.keyboard.press("PageDown")
    assert at_scene(page, 2, "It plays")
    page.keyboard.press("PageUp")
    assert at_scene(page, 1, "4 B alone")
    page.locator(".remat-matrices").focus()
    stage = int(page.locator(".remat-matrices").get_attribute("data-stage"))
    page.keyboard.press("ArrowUp")  # which is the matrices' own key
    page.wait_for_selector(f'.remat-matrices[data-stage="{stage - 1}"]')
    assert at_scene(page, 1, "4 B alone")
    page.keyboard.press("Escape")
    page.wait_for_selector("body:not(.remat-presenting)")
    assert page.is_visible("h1")
    assert page.failures == []


def test_the_explorer_fills_the_window_and_follows_keys_and_python(notebook: LastingNotebook) -> None:
    cells = [
        "import remat_explorer as rx\nfrom remat_explorer.explorer import Scene\n"
        "explorer = rx.Explorer(graph=rx.linear(8), budget=6, improve=False, sweep=False)\nexplorer.wait(60)\nexplorer",
        "explorer.present([Scene('First: {keep_all}', '100%', 'model'), Scene('Second', picture='matrices', at=5)])",
        "print('scene', explorer.state.scene, explorer.state.picture, explorer.state.stage)",
    ]
    page = notebook.begin(*cells)
    run_cell(page, 0)
    run_cell(page, 1)
    assert at_scene(page, 0, "First: 10 B")
    page.wait_for_function(FILLS)
    page.wait_for_function(FITS, timeout=30_000)
    assert not page.is_visible(".remat-controls")
    page.keyboard.press("PageDown")
    assert at_scene(page, 1, "Second")
    page.wait_for_selector('.remat-matrices[data-stage="5"]')
    page.keyboard.press("Escape")
    page.wait_for_selector(".remat-explorer:not(.remat-presenting)")
    assert page.is_visible(".remat-controls")
    run_until_printed(page, 2, "scene -1 matrices 5")
    page.get_by_role("button", name="Present").click()  # the scenes that there are
    assert at_scene(page, 0, "First: 10 B")
    page.wait_for_function("() => document.fullscreenElement !== null", timeout=10_000)
    page.keyboard.press("Escape")
    page.wait_for_selector(".remat-explorer:not(.remat-presenting)")
    page.wait_for_function("() => document.fullscreenElement === null", timeout=10_000)
    assert page.leaks == []
    assert page.failures == []

"""What a person meets first: few fields, a layout that fills the window, pointers that find what they are near."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.explorer_page import ON_SCREEN, open_more, show_in
from tests.browser.lab import run_cell
from tests.browser.lasting_notebook import LastingNotebook

pytestmark = pytest.mark.browser

# A place in R on the page above the uppermost recomputed cell, which is a row of pixels below it, and that cell's own.
ABOVE_ORANGE = """(away) => {
    const canvas = document.querySelector('.remat-canvas canvas:first-child');
    const box = canvas.getBoundingClientRect();
    const {data, width} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < data.length; i += 4)
        if (data[i] === 0xD5 && data[i + 1] === 0x5E && data[i + 2] === 0) {
            const [x, y] = [(i / 4) % width, Math.floor(i / 4 / width)];
            return [box.left + x + 1, box.top + y - away];
        }
}"""
BOXES = """(names) => Object.fromEntries(names.map(
    (name) => [name, document.querySelector(name).getBoundingClientRect().toJSON()]))"""
FILLED = """() => {
    const [place, drawn] = ['.remat-figure', '.remat-figure .main-svg'].map(
        (name) => document.querySelector(name).getBoundingClientRect());
    return Math.abs(place.width - drawn.width) < 2 && Math.abs(place.height - drawn.height) < 2;
}"""
PARTS = [".remat-explorer", ".remat-plots", ".remat-side", ".remat-canvas", ".remat-tip"]


@pytest.fixture(scope="module")
def page(notebook: LastingNotebook) -> Any:
    return show_in(notebook, 'rx.Explorer("residual_net", batch=8, budget="60%", improve=False, sweep=False)')


def boxes(page: Any) -> dict[str, dict[str, float]]:
    return page.evaluate(BOXES, PARTS)


def again(page: Any) -> None:
    """Another explorer in place of the one that is there."""
    run_cell(page, 0)
    page.wait_for_function(ON_SCREEN, timeout=90_000)
    page.keyboard.press("Escape")


def test_more_is_open_in_the_next_explorer_if_it_was_left_open(page: Any) -> None:
    open_more(page)
    again(page)
    page.wait_for_selector(".remat-more", state="visible", timeout=20_000)
    page.locator(".remat-controls").get_by_role("button", name="More").click()
    page.wait_for_selector(".remat-more", state="hidden", timeout=20_000)
    again(page)
    page.wait_for_timeout(1000)
    assert not page.locator(".remat-more").is_visible()


def test_plots_fill_their_cell_beside_the_panel_or_above_it(page: Any) -> None:
    for width, height in ((1280, 800), (1920, 1080), (1000, 800)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(FILLED, timeout=20_000)
        found = boxes(page)
        assert found[".remat-canvas"]["height"] == pytest.approx(min(max(200, 0.32 * height), 460), abs=1)
        if width >= 1280:  # of which JupyterLab leaves the explorer 1,112 and more
            assert found[".remat-side"]["left"] >= found[".remat-plots"]["right"]
            assert found[".remat-side"]["right"] == pytest.approx(found[".remat-explorer"]["right"], abs=6)
        else:
            assert found[".remat-side"]["top"] >= found[".remat-plots"]["bottom"]
            assert found[".remat-plots"]["width"] == pytest.approx(found[".remat-explorer"]["width"], abs=6)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.wait_for_function(FILLED, timeout=20_000)


def test_the_pointer_finds_the_recomputation_beside_it_and_the_tip_covers_no_cells(page: Any) -> None:
    page.locator(".remat-matrices").evaluate("root => root.scrollIntoView({block: 'center'})")
    x, y = page.evaluate(ABOVE_ORANGE, 4)
    page.mouse.move(x, y)
    page.wait_for_selector(".remat-tip:has-text('recomputed')", state="visible")
    found = boxes(page)
    assert found[".remat-tip"]["top"] >= found[".remat-canvas"]["bottom"]
    page.mouse.move(x, y - 20)
    page.wait_for_selector(".remat-tip:has-text('not computed')", state="visible")
    page.mouse.click(x, y)
    page.wait_for_selector(".remat-panel .reason.recomputed", timeout=20_000)


def test_strategies_that_are_not_for_the_graph_or_for_a_part_of_it_say_so_and_why(page: Any) -> None:
    open_more(page)
    entry = page.locator(".remat-more option:has-text('griewank')")
    page.wait_for_selector(".remat-more option:disabled", state="attached", timeout=20_000)
    assert entry.is_disabled()
    assert "is no chain" in entry.get_attribute("title")
    partly = page.locator(".remat-more option:has-text('rotor')")
    assert partly.is_enabled()
    assert "falls into" in partly.get_attribute("title")
    assert page.locator(".remat-more option:has-text('keep everything')").is_enabled()
    page.locator(".remat-controls").get_by_role("button", name="More").click()
    assert page.failures == []

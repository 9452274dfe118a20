"""The memory map in JupyterLab: what is drawn is what Python knows, and clicks select it everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.explorer_page import show_in
from tests.browser.lasting_notebook import LastingNotebook

pytestmark = pytest.mark.browser

MAP = ".remat-map"
FRAME = f"{MAP} .remat-canvas"
# Colours of the map's canvas in columns and rows of the drawn area, from the top left.
SAMPLE = """(points) => {
    const canvas = document.querySelector('.remat-map canvas'), context = canvas.getContext('2d');
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.width / ratio - 72, canvas.height / ratio - 40];
    return points.map(([x, y]) => {
        const at = [(64 + x * width) * ratio, (8 + y * height) * ratio];
        return [...context.getImageData(...at.map(Math.round), 1, 1).data].slice(0, 3);
    });
}"""


@pytest.fixture(scope="module")
def page(notebook: LastingNotebook) -> Any:
    """The chain of eight layers within 4 bytes, its map on the screen, and a cell that prints what is selected."""
    page = show_in(notebook, "rx.Explorer(graph=rx.linear(8), budget=4, improve=False, sweep=False)")
    page.locator(".remat-scrubber").get_by_role("button", name="Memory").click()
    page.wait_for_selector(f'{MAP}[data-rectangles="26"]')
    return page


def press(page: Any, *keys: str) -> None:
    page.locator(FRAME).focus()
    for key in keys:
        page.keyboard.press(key)


def place(page: Any, across: float, up: float) -> tuple[float, float]:
    """A place in the drawn area, as shares of its width and height from the lower left."""
    box = page.locator(FRAME).bounding_box()
    return box["x"] + 64 + across * (box["width"] - 72), box["y"] + 8 + (1 - up) * (box["height"] - 40)


def selected(page: Any) -> tuple[int, int]:
    stage, value = (int(page.locator(MAP).get_attribute(f"data-{name}")) for name in ("stage", "value"))
    return stage, value


def test_kept_values_gradients_and_what_is_computed_again_have_their_colours(page: Any) -> None:
    kept, again = "first[2] > 150 && first[0] < 150", "last[0] > 200 && last[2] < 200"  # blue, and orange at the end
    sampled = f"const [first, last] = ({SAMPLE})([[0.02, 0.9], [0.97, 0.9]])"
    page.wait_for_function(f"() => {{ {sampled}; return {kept} && {again}; }}", timeout=15_000)


def test_the_pointer_hears_what_is_there_and_a_click_selects_it_everywhere(page: Any) -> None:
    press(page, "Home")
    x, y = place(page, 0.14, 0.1)  # v2 lies at the bottom in stages 2 and 3
    page.mouse.move(x, y)
    page.wait_for_selector(f"{MAP} .remat-tip:has-text('at offset')")
    name = page.locator(f"{MAP} .remat-tip b").inner_text()
    page.mouse.click(x, y)
    reached = "({stage, value}) => stage > 0 && 'v' + value === name"
    page.wait_for_function(f"(name) => ({reached})(document.querySelector('{MAP}').dataset)", arg=name)
    now, value = selected(page)
    page.wait_for_selector(f'.remat-matrices[data-stage="{now}"][data-value="{value}"]', state="attached")
    page.wait_for_selector(f'.remat-panel.explain .head b:text-is("v{value}")')


def test_arrow_keys_walk_stages_and_the_values_in_memory(page: Any) -> None:
    press(page, "Home", "ArrowRight", "ArrowRight", "ArrowRight")
    page.wait_for_selector(f'{MAP}[data-stage="3"]')
    seen = set()
    for _ in range(3):
        press(page, "ArrowDown")
        page.wait_for_timeout(100)
        seen.add(selected(page)[1])
    for _ in range(3):
        press(page, "ArrowUp")
        page.wait_for_timeout(100)
        seen.add(selected(page)[1])
    assert seen >= {2, 3}  # what stage 3 has in memory
    assert "Stage 3. v" in page.locator(f"{MAP} .remat-live").inner_text()


def test_the_zoom_is_that_of_the_matrices(page: Any) -> None:
    press(page, "Home", "+")
    page.wait_for_function(f"() => document.querySelector('{MAP}').dataset.zoom !== ''")
    zoom = page.locator(MAP).get_attribute("data-zoom")
    assert page.locator(".remat-matrices").get_attribute("data-zoom") in (zoom, "")  # drawn when it is seen
    press(page, "Escape")
    page.wait_for_selector(f'{MAP}[data-zoom=""]')


def test_a_pinned_stage_is_compared_with_the_selected_one(page: Any) -> None:
    press(page, "Home", "PageDown", "p", "End")
    page.wait_for_selector(".remat-moments p:has-text('at stage 10, 3 B at stage 16.')")
    rows = page.locator(".remat-moments tbody tr:not(:has(.parts)) td:first-child").all_inner_texts()
    assert rows[0] == "all"
    assert len(rows) > 3
    press(page, "p", "p", "Escape")
    page.wait_for_selector(".remat-moments", state="hidden")
    assert page.failures == []


def test_another_theme_draws_the_map_in_its_colours(page: Any) -> None:
    light = page.evaluate(SAMPLE, [[0.02, 0.1]])[0]
    page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    page.wait_for_function(f"(old) => ({SAMPLE})([[0.02, 0.1]])[0][0] < 80", arg=light, timeout=15_000)
    assert sum(light) > 600
    page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})")
    page.wait_for_function(f"() => ({SAMPLE})([[0.02, 0.1]])[0][0] > 200", timeout=15_000)

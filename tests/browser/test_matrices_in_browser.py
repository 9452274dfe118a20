"""The matrices and the row above them as a person meets them: zoom, search, comparison, player, switch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.lab import run_cell, run_until_printed
from tests.browser.lasting_notebook import LastingNotebook

pytestmark = pytest.mark.browser

BEGIN = """import remat_explorer as rx
explorer = rx.Explorer(graph=rx.linear(24), budget="60%", improve=False, sweep=False)
explorer.wait(60)
explorer.select(stage=0, value=0)
keep = rx.solve(explorer.state.graph, "100%", "checkpoint-all")
explorer"""
SOLVE = "explorer.solve()\nexplorer.wait(60), explorer.solution.schedule.recomputations > 0"
COMPARE, COMPARE_NO_MORE = "explorer.state.other = keep", "explorer.state.other = None"
SAY_ZOOM, SET_ZOOM = "print(explorer.state.zoom)", "explorer.state.zoom = (30, 20, 3, 12)"
NEAR_THE_END = "explorer.state.speed, explorer.state.stage = 4, 44"
SAY_WHETHER_IT_PLAYS = "print('playing', explorer.state.playing)"
CELLS = [BEGIN, SOLVE, COMPARE, COMPARE_NO_MORE, SAY_ZOOM, SET_ZOOM, NEAR_THE_END, SAY_WHETHER_IT_PLAYS]
COLOURS = """(number) => {
    const canvas = document.querySelectorAll('.remat-canvas canvas:first-child')[number];
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    for (let i = 0; i < pixels.length; i += 4)
        colours.add('#' + [0, 1, 2].map((c) => pixels[i + c].toString(16).padStart(2, '0')).join('').toUpperCase());
    return [...colours];
}"""
SHOWN = f"([number, sought]) => sought.every((colour) => ({COLOURS})(number).includes(colour))"
# JupyterLab hides the page while it changes the theme: here callbacks of one frame hide it, would draw it, and show it.
DARK_WHILE_HIDDEN = """() => {
    const place = document.querySelector('.remat-matrices').parentElement;
    requestAnimationFrame(() => { place.style.display = 'none'; });
    document.body.dataset.jpThemeLight = 'false';
    queueMicrotask(() => requestAnimationFrame(() => { place.style.display = ''; }));
}"""

ZOOM = "() => document.querySelector('.remat-matrices').dataset.zoom"


def attribute(page: Any, name: str) -> str:
    return page.locator(".remat-matrices").get_attribute(f"data-{name}")


def await_attribute(page: Any, name: str, value: Any) -> None:
    page.wait_for_selector(f'.remat-matrices[data-{name}="{value}"]', timeout=20_000)


@pytest.fixture(scope="module")
def begun(notebook: LastingNotebook) -> Any:
    """A page with a notebook of `CELLS`, which all tests share."""
    return notebook.begin(*CELLS)


@pytest.fixture
def page(begun: Any) -> Any:
    """The notebook with a new explorer."""
    run(begun, BEGIN)
    await_attribute(begun, "rows", 49)
    await_attribute(begun, "stage", 0)
    begun.keyboard.press("Escape")
    return begun


def run(page: Any, source: str) -> None:
    run_cell(page, CELLS.index(source))


def print_until(page: Any, source: str, text: str) -> None:
    run_until_printed(page, CELLS.index(source), text)


def drag(page: Any, number: int, start: tuple[float, float], end: tuple[float, float], shift: bool) -> None:
    """Drag over a matrix under the labels of repeated blocks, from and to a share of its width and height."""
    area = page.locator(".remat-canvas").nth(number).bounding_box()
    places = [
        (area["x"] + 44 + x * (area["width"] - 50), area["y"] + 28 + y * (area["height"] - 60)) for x, y in (start, end)
    ]
    if shift:
        page.keyboard.down("Shift")
    page.mouse.move(*places[0])
    page.mouse.down()
    page.mouse.move(*places[1], steps=4)
    page.mouse.up()
    if shift:
        page.keyboard.up("Shift")


def test_zoom_by_rectangle_keys_buttons_and_script(page: Any) -> None:
    drag(page, 0, (0.25, 0.25), (0.5, 0.5), shift=True)
    page.wait_for_function(f"() => ({ZOOM})() !== ''")
    first, last, left, right = map(int, attribute(page, "zoom").split(","))
    assert abs(first - 12) <= 1
    assert abs(last - 24) <= 1
    assert abs(left - 12) <= 1
    assert abs(right - 24) <= 1
    caption = page.locator(".remat-matrices figcaption").first
    caption.filter(has_text=f"computed in stages {first}–{last} of 49").wait_for()
    print_until(page, SAY_ZOOM, f"({first}, {last}, {left}, {right})")

    page.locator(".remat-matrices").focus()
    page.keyboard.press("+")
    page.wait_for_function(f"() => ({ZOOM})() !== '{first},{last},{left},{right}'")
    inner = [int(edge) for edge in attribute(page, "zoom").split(",")]
    assert inner[1] - inner[0] < last - first
    page.keyboard.press("Escape")
    await_attribute(page, "zoom", "")

    page.get_by_role("button", name="Drag a rectangle").click()
    drag(page, 1, (0.5, 0.5), (0.75, 0.75), shift=False)
    page.wait_for_function(f"() => ({ZOOM})() !== ''")
    page.get_by_role("button", name="Show every stage").click()
    await_attribute(page, "zoom", "")

    run(page, SET_ZOOM)
    await_attribute(page, "zoom", "20,30,3,12")
    page.keyboard.press("Escape")
    page.locator(".remat-matrices").focus()
    page.keyboard.press("End")  # the part moves along with the cursor
    await_attribute(page, "zoom", "38,48,3,12")
    page.locator(".remat-canvas").nth(2).dblclick(position={"x": 100, "y": 60})
    await_attribute(page, "zoom", "")
    assert page.failures == []


def test_search_marks_counts_and_goes_from_one_to_the_next(page: Any) -> None:
    before = page.evaluate(COLOURS, 0)
    field = page.get_by_role("textbox", name="Search", exact=True)
    field.fill("backward >=1B")
    page.wait_for_selector(".remat-count:has-text('25 found')", timeout=20_000)
    page.wait_for_function(f"(colours) => ({COLOURS})(0).length > colours", arg=len(before))
    field.press("Enter")
    page.wait_for_selector(".remat-count:has-text('1 of 25')", timeout=20_000)
    await_attribute(page, "stage", 24)
    page.locator(".remat-matrices").focus()
    page.keyboard.press("n")
    page.wait_for_selector(".remat-count:has-text('2 of 25')", timeout=20_000)
    page.keyboard.press("Shift+N")
    page.keyboard.press("Shift+N")
    page.wait_for_selector(".remat-count:has-text('25 of 25')", timeout=20_000)
    await_attribute(page, "stage", 48)
    page.wait_for_function("() => document.querySelector('.remat-live').textContent.includes('Stage 48.')")
    assert page.failures == []


def test_a_comparison_has_its_legend_and_its_colours(page: Any) -> None:
    run(page, SOLVE)
    page.wait_for_selector(".jp-OutputArea-output:has-text('(True, True)')", timeout=60_000)
    legends = page.locator(".remat-legend")
    assert "recompute" in legends.first.inner_text()
    run(page, COMPARE)
    await_attribute(page, "compared", "true")
    for number in (0, 1):
        legends.nth(number).filter(has_text="only in the compared").wait_for()
    shown = page.evaluate("() => document.querySelector('.remat-matrices').dataset.theme")
    assert shown == "light"
    page.wait_for_function(SHOWN, arg=[0, ["#C4C8CD", "#222222"]])  # in both, and what only this one recomputes
    page.wait_for_function(SHOWN, arg=[1, ["#C4C8CD", "#9C4DCC"]])  # in both, and what only checkpoint-all keeps
    run(page, COMPARE_NO_MORE)
    await_attribute(page, "compared", "false")
    legends.first.filter(has_text="recompute").wait_for()
    assert page.failures == []


def test_playing_stops_at_the_end_and_begins_again(page: Any) -> None:
    run(page, NEAR_THE_END)
    await_attribute(page, "stage", 44)
    page.keyboard.press("Escape")
    page.locator(".remat-matrices").focus()
    page.keyboard.press("Space")
    await_attribute(page, "stage", 48)
    page.wait_for_selector(
        ".remat-stage-bar [aria-label='Play the stages']", timeout=20_000
    )  # the button offers to play again
    print_until(page, SAY_WHETHER_IT_PLAYS, "playing False")
    page.locator(".remat-matrices").focus()
    page.keyboard.press("Space")
    page.wait_for_function("() => document.querySelector('.remat-matrices').dataset.stage < 40")
    page.wait_for_selector(".remat-stage-bar [aria-label='Stop']", timeout=20_000)
    page.keyboard.press("Space")
    page.wait_for_selector(".remat-stage-bar [aria-label='Play the stages']", timeout=20_000)
    page.wait_for_timeout(1000)  # some may have been on their way
    stopped = int(attribute(page, "stage"))
    page.wait_for_timeout(1000)  # four would have followed
    assert int(attribute(page, "stage")) == stopped
    assert stopped < 48
    assert page.failures == []


def test_the_matrices_come_back_at_their_size_when_they_are_shown_again(page: Any) -> None:
    page.wait_for_function(SHOWN, arg=[0, ["#56B4E9"]])
    page.get_by_role("button", name="Model", exact=True).click()
    page.wait_for_selector(".remat-matrices", state="hidden", timeout=20_000)
    page.set_viewport_size({"width": 1500, "height": 800})
    page.get_by_role("button", name="Matrices", exact=True).click()
    page.wait_for_selector(".remat-matrices", state="visible", timeout=20_000)
    page.wait_for_function(
        """() => [...document.querySelectorAll('.remat-matrices .remat-canvas')].every((frame) =>
            frame.clientWidth > 400 && frame.querySelector('canvas').width === frame.clientWidth)"""
    )
    page.wait_for_function(SHOWN, arg=[0, ["#56B4E9"]])
    page.set_viewport_size({"width": 1280, "height": 800})
    assert page.failures == []


def test_plots_that_were_drawn_before_they_were_shown_have_all_their_names(page: Any) -> None:
    page.wait_for_function("() => document.querySelector('.js-plotly-plot')?.data?.length > 12", timeout=30_000)
    traces = page.evaluate(
        "() => document.querySelector('.js-plotly-plot').data.map(({name, x, y}) => [typeof name, typeof x, typeof y])"
    )
    assert [trace for trace in traces if trace != ["string", "object", "object"]] == []


def test_in_a_narrow_notebook_the_stage_slider_keeps_its_room(page: Any) -> None:
    wide = page.viewport_size
    try:
        for width in (960, wide["width"]):
            page.set_viewport_size({"width": width, "height": wide["height"]})
            page.wait_for_timeout(500)
            row = page.locator(".remat-scrubber")
            assert row.locator("input[type=range]").bounding_box()["width"] >= 96
            assert row.evaluate("row => row.scrollWidth - row.clientWidth") <= 1
    finally:
        page.set_viewport_size(wide)


def test_a_theme_that_changes_while_the_page_is_hidden_for_less_than_a_frame_is_drawn(page: Any) -> None:
    light = page.evaluate(COLOURS, 0)
    page.evaluate(DARK_WHILE_HIDDEN)
    await_attribute(page, "theme", "dark")
    page.wait_for_function(f"(light) => !light.every((colour) => ({COLOURS})(0).includes(colour))", arg=light)
    page.evaluate("() => { document.body.dataset.jpThemeLight = 'true'; }")
    page.wait_for_function(SHOWN, arg=[0, light])

"""The pictures in JupyterLab and the row above: zoom, search, comparison, edits, folds, kinds, map, model, scenes."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from remat_explorer.figures.implementation_images import LIGHT
from remat_explorer.graph.repeated_blocks import repeated_blocks
from tests.browser.explorer_page import (
    COLOURS,
    PIXELS,
    at_scene,
    attribute,
    await_attribute,
    await_idle,
    await_status,
    choose_picture,
    choose_tab,
    choose_theme,
    click,
    drawn_words,
    flawless,
    heights,
    show_in,
    status,
    violations,
)
from tests.browser.lab import LastingNotebook, run, run_cell, run_until
from tests.core.repeated_graphs import transformer
from tests.figures.choices import chain_with_choices

pytestmark = pytest.mark.browser

LAYERS = 13  # 421 operations, enough to be folded at first
BEGIN = """import remat_explorer as rx
explorer = rx.Explorer(graph=rx.linear(24), budget="60%", improve=False, sweep=False)
explorer.wait(60)
explorer.select(stage=0, value=0)
explorer.state.picture = "matrices"
explorer"""
FOLDED = """import remat_explorer as rx
graph = rx.Graph.load("blocks.json")
explorer = rx.Explorer(graph=graph, budget="100%", strategy="checkpoint-all", improve=False, sweep=False)
explorer.wait(60)
explorer.state.picture = "matrices"
explorer"""
COMPARE = "explorer.compare('checkpoint-all')"
COMPARE_NO_MORE = "explorer.compare(None)"
# A schedule in which the fifth and the tenth block's gelu is computed again, and is so kept in 11 of 13.
DIFFER = """from remat_explorer.explorer.controllers.screen import show_schedule
(blocks,) = explorer.state.blocks
keep = rx.solve(graph, "100%", "checkpoint-all").schedule
R, S = keep.R.copy(), keep.S.copy()
for copy in (4, 9):
    again = blocks.forward[copy, 11]
    reader = next(k for k in graph.readers[again] if graph.is_backward[k])
    S[again + 2 : reader + 1, again] = False
    R[reader, again] = 1
show_schedule(explorer.state, rx.Schedule(graph, R, S), None)
explorer.select(stage=0, value=0)"""
SHOWN = f"([number, sought]) => sought.every((colour) => ({COLOURS})(number).includes(colour))"
# JupyterLab hides the page while it changes the theme: here callbacks of one frame hide it, would draw it, and show it.
DARK_WHILE_HIDDEN = """() => {
    const place = document.querySelector('.remat-matrices').parentElement;
    requestAnimationFrame(() => { place.style.display = 'none'; });
    document.body.dataset.jpThemeLight = 'false';
    queueMicrotask(() => requestAnimationFrame(() => { place.style.display = ''; }));
}"""
ZOOMED = "(before) => document.querySelector('.remat-matrices').dataset.zoom !== before"
NAMES, NUMBERS = 96, 32  # pixels below the cells of a folded matrix


@pytest.fixture(scope="module")
def begun(notebook: LastingNotebook) -> Any:
    return notebook.begin(BEGIN)


@pytest.fixture(scope="module")
def repeating(notebook: LastingNotebook) -> Any:
    """The same once more for tests of a graph that repeats a block: two explorers would be on one page."""
    transformer(LAYERS).save(str(notebook.root / "blocks.json"))
    return notebook.begin(FOLDED)


@pytest.fixture
def page(begun: Any) -> Any:
    run_first(begun)
    await_attribute(begun, "rows", 49)
    await_attribute(begun, "stage", 0)
    return begun


@pytest.fixture
def folded(repeating: Any) -> Any:
    run_first(repeating)
    await_attribute(repeating, "rows", 32 * LAYERS + 5)
    await_attribute(repeating, "folded", 0)
    return repeating


def run_first(page: Any) -> None:
    run_cell(page, 0)
    page.keyboard.press("Escape")


def press(page: Any, key: str) -> None:
    page.locator(".remat-matrices").focus()
    page.keyboard.press(key)


def drag(page: Any, number: int, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag over a matrix under the labels of repeated blocks, from and to a share of its width and height."""
    area = page.locator(".remat-canvas").nth(number).bounding_box()
    places = [
        (area["x"] + 44 + x * (area["width"] - 50), area["y"] + 28 + y * (area["height"] - 60)) for x, y in (start, end)
    ]
    page.mouse.move(*places[0])
    page.mouse.down()
    page.mouse.move(*places[1], steps=4)
    page.mouse.up()


def test_zoom_by_rectangle_keys_buttons_and_script(page: Any) -> None:
    page.keyboard.down("Shift")
    drag(page, 0, (0.25, 0.25), (0.5, 0.5))
    page.keyboard.up("Shift")
    page.wait_for_function(ZOOMED, arg="")
    zoom = attribute(page, "zoom")
    first, last, left, right = map(int, zoom.split(","))
    assert np.abs(np.array([first, last, left, right]) - [12, 24, 12, 24]).max() <= 1
    caption = page.locator(".remat-matrices figcaption").first
    caption.filter(has_text=f"computed in stages {first}–{last} of 49").wait_for()
    run_until(page, "print(explorer.state.zoom)", f"({first}, {last}, {left}, {right})")
    press(page, "+")
    page.wait_for_function(ZOOMED, arg=zoom)
    inner = [int(edge) for edge in attribute(page, "zoom").split(",")]
    assert inner[1] - inner[0] < last - first
    page.keyboard.press("Escape")
    await_attribute(page, "zoom", "")

    page.get_by_role("button", name="Drag a rectangle").click()
    drag(page, 1, (0.5, 0.5), (0.75, 0.75))
    page.wait_for_function(ZOOMED, arg="")
    page.get_by_role("button", name="Show every stage").click()
    await_attribute(page, "zoom", "")
    run(page, "explorer.state.zoom = (30, 20, 3, 12)")
    await_attribute(page, "zoom", "20,30,3,12")
    press(page, "End")  # the part moves along with the cursor
    await_attribute(page, "zoom", "38,48,3,12")
    page.locator(".remat-canvas").nth(2).dblclick(position={"x": 100, "y": 60})
    await_attribute(page, "zoom", "")
    assert flawless(page)


def test_search_marks_counts_and_goes_from_one_to_the_next(page: Any) -> None:
    before = page.evaluate(COLOURS, 0)
    field = page.get_by_role("textbox", name="Search", exact=True)
    field.fill("backward >=1B")
    page.wait_for_selector(".remat-count:has-text('25 found')")
    page.wait_for_function(f"(colours) => ({COLOURS})(0).length > colours", arg=len(before))
    field.press("Enter")
    page.wait_for_selector(".remat-count:has-text('1 of 25')")
    await_attribute(page, "stage", 24)
    press(page, "n")
    page.wait_for_selector(".remat-count:has-text('2 of 25')")
    page.keyboard.press("Shift+N")
    page.keyboard.press("Shift+N")
    page.wait_for_selector(".remat-count:has-text('25 of 25')")
    await_attribute(page, "stage", 48)
    page.wait_for_function("() => document.querySelector('.remat-live').textContent.includes('Stage 48.')")
    assert flawless(page)


def test_a_comparison_has_its_legend_and_its_colours(page: Any) -> None:
    recomputes = "explorer.solve(); explorer.wait(60); print(explorer.solution.schedule.recomputations > 0)"
    assert run(page, recomputes) == "True\n"
    legends = page.locator(".remat-legend")
    assert "recompute" in legends.first.inner_text()
    run(page, COMPARE)
    await_attribute(page, "compared", "true")
    for number in (0, 1):
        legends.nth(number).filter(has_text="only in the compared").wait_for()
    assert attribute(page, "theme") == "light"
    page.wait_for_function(SHOWN, arg=[0, ["#C4C8CD", "#222222"]])  # in both, and what only this one recomputes
    page.wait_for_function(SHOWN, arg=[1, ["#C4C8CD", "#9C4DCC"]])  # in both, and what only checkpoint-all keeps
    run(page, COMPARE_NO_MORE)
    await_attribute(page, "compared", "false")
    legends.first.filter(has_text="recompute").wait_for()
    assert flawless(page)


def test_the_matrices_come_back_at_their_size_and_in_their_theme_and_keep_their_slider(page: Any) -> None:
    page.wait_for_function(SHOWN, arg=[0, ["#56B4E9"]])
    choose_picture(page, "Model")
    page.wait_for_selector(".remat-matrices", state="hidden")
    page.set_viewport_size({"width": 1500, "height": 800})
    choose_picture(page, "Matrices")
    page.wait_for_selector(".remat-matrices", state="visible")
    page.wait_for_function(
        """() => [...document.querySelectorAll('.remat-matrices .remat-canvas')].every((frame) =>
            frame.clientWidth > 400 && frame.querySelector('canvas').width === frame.clientWidth)"""
    )
    page.wait_for_function(SHOWN, arg=[0, ["#56B4E9"]])
    for width in (960, 1280):  # in a narrow notebook the slider keeps its room
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(500)
        row = page.locator(".remat-scrubber")
        assert row.locator("input[type=range]").bounding_box()["width"] >= 96
        assert row.evaluate("row => row.scrollWidth - row.clientWidth") <= 1
    light = page.evaluate(COLOURS, 0)
    page.evaluate(DARK_WHILE_HIDDEN)  # for less than a frame
    await_attribute(page, "theme", "dark")
    page.wait_for_function(f"(light) => !light.every((colour) => ({COLOURS})(0).includes(colour))", arg=light)
    page.evaluate("() => { document.body.dataset.jpThemeLight = 'true'; }")
    page.wait_for_function(SHOWN, arg=[0, light])
    assert flawless(page)


def test_a_large_graph_is_folded_and_clicks_and_a_comparison_unfold_it(folded: Any) -> None:
    labels = folded.locator(".remat-folds .remat-fold")
    assert labels.count() == 6  # forward and backward, over R, S and U
    label = labels.first
    assert label.get_attribute("aria-label") == f"Unfold blocks.0–{LAYERS - 1} × {LAYERS}"
    assert label.inner_text() in (f"▸ blocks.0–{LAYERS - 1} × {LAYERS}", f"▸ × {LAYERS}")  # as much as fits
    assert label.get_attribute("aria-expanded") == "false"
    label.click()
    await_attribute(folded, "folded", "")
    run_until(folded, "print(explorer.state.folded)", "()")
    assert label.get_attribute("aria-expanded") == "true"
    label.click()
    await_attribute(folded, "folded", 0)
    run_until(folded, "print(explorer.state.folded)", "(0,)")
    run(folded, DIFFER)
    run(folded, COMPARE)
    await_attribute(folded, "compared", "true")
    await_attribute(folded, "folded", "")
    assert labels.count() == 0
    run(folded, COMPARE_NO_MORE)
    await_attribute(folded, "folded", 0)
    assert flawless(folded)


def test_brackets_name_the_layers_of_a_folded_matrix_in_place_of_numbers(folded: Any) -> None:
    drawn = drawn_words(folded, ".remat-matrices")
    assert [text for text in drawn if text.isdigit()] == []
    assert f"blocks.0–{LAYERS - 1}" in drawn
    assert flawless(folded)


def hover(page: Any, matrix: int, column: int, row: int, columns: int, rows: int) -> str:
    """The tip over a cell of a folded matrix, which the pointer stays on."""
    page.locator(".remat-matrices").scroll_into_view_if_needed()
    area = page.locator(".remat-matrices .remat-canvas").nth(matrix).bounding_box()
    width = area["width"] - 44 - 6
    below = NAMES if width / rows >= 9 else NUMBERS  # R and U have as many columns as rows, and names where they fit
    height = area["height"] - 28 - below
    x, y = (column + 0.5) * width / columns, (row + 0.5) * height / rows
    page.mouse.move(area["x"] + 44 + x, area["y"] + 28 + y)
    tip = page.locator(".remat-matrices .remat-tip")
    tip.filter(has_text="stage").wait_for()
    return tip.inner_text()


def test_the_tip_says_in_which_copies_a_cell_is_filled_and_a_click_selects_one_of_them(folded: Any) -> None:
    run(folded, DIFFER)
    await_attribute(folded, "stage", 0)
    graph = transformer(LAYERS)
    (blocks,) = repeated_blocks(graph)
    operations, values = (
        np.setdiff1d(np.arange(count), rows[1:])  # without those of all copies but the first
        for count, rows in ((graph.n, blocks.operations), (len(graph.values), blocks.values))
    )
    names = [graph.operations[k].name for k in operations]
    gelu, down, head = (names.index(name) for name in ("blocks.0.gelu", "blocks.0.down backward", "head"))
    kept = values.tolist().index(graph.outputs(int(operations[gelu]))[0])
    said = hover(folded, 1, kept, head, len(values), len(operations))
    assert f"blocks.0.gelu (16 B), one of {LAYERS} alike" in said
    assert f"kept from the stage before in {LAYERS - 2} of {LAYERS}: not in 4, 9" in said
    said = hover(folded, 0, gelu, down, len(operations), len(operations))
    assert f"recomputed in 2 of {LAYERS}: 4, 9" in said
    assert f"and those of {LAYERS - 1} copies" in said
    folded.mouse.down()
    folded.mouse.up()
    again = next(k for k, node in enumerate(graph.operations) if node.name == "blocks.4.down backward")
    await_attribute(folded, "stage", again)
    folded.wait_for_function("() => document.querySelector('.remat-live').textContent.includes('blocks.4.gelu')")
    for chosen in ("", "0"):  # what is unfolded under the pointer is no longer what the tip says
        hover(folded, 0, gelu, down, len(operations), len(operations))
        folded.locator(".remat-matrices").focus()
        folded.keyboard.press("f")
        await_attribute(folded, "folded", chosen)
        assert not folded.locator(".remat-matrices .remat-tip").is_visible()
    assert flawless(folded)


def cell(page: Any, stage: int, value: int) -> tuple[float, float]:
    """The middle of a cell of S of 17 stages and values, whose columns carry names."""
    area = page.locator(".remat-canvas").nth(1).bounding_box()
    foot = int(attribute(page, "foot"))  # as high as the longest name
    width, height = area["width"] - 44 - 6, area["height"] - 10 - foot
    return area["x"] + 44 + (value + 0.5) * width / 17, area["y"] + 10 + (stage + 0.5) * height / 17


def test_cells_are_kept_and_dropped_by_click_drag_and_keys(notebook: LastingNotebook) -> None:
    page = show_in(notebook, "rx.Explorer(graph=rx.linear(8), budget=8, improve=False, sweep=False)")

    said = partial(await_status, page)

    def panel(name: str) -> None:
        page.locator(".remat-panel.edit").get_by_role("button", name=name, exact=True).click()

    choose_picture(page, "Matrices")
    page.locator(".remat-matrices .remat-edit").click()
    await_attribute(page, "editing", "true")
    assert page.locator(".remat-edit").get_attribute("aria-pressed") == "true"
    panel("Keep everything")
    said("overhead +0.0 %, predicted peak 10 B, 2 B above the budget of 8 B")

    page.mouse.move(*cell(page, 9, 2))
    page.locator(".remat-tip", has_text="click: drop it up to its next use").wait_for()
    page.mouse.move(*cell(page, 2, 12))
    page.locator(".remat-tip", has_text="not computed before stage 12").wait_for()
    page.mouse.click(*cell(page, 2, 12))
    said("'v12' is computed in stage 12 first")
    page.mouse.click(*cell(page, 9, 2))
    said("overhead +5.9 %, predicted peak 9 B")
    page.mouse.click(*cell(page, 9, 2))
    said("overhead +0.0 %")
    page.mouse.move(*cell(page, 8, 2))
    page.mouse.down()
    page.mouse.move(*cell(page, 12, 3), steps=4)
    page.mouse.up()
    said("overhead +11.8 %, predicted peak 8 B, within the budget of 8 B")
    page.locator(".remat-matrices").focus()
    for key, text in (("u", "+0.0 %"), ("Shift+U", "+11.8 %"), ("Control+z", "+0.0 %"), ("Control+y", "+11.8 %")):
        page.keyboard.press(key)
        said(f"overhead {text}")
    page.keyboard.press("Home")
    for _ in range(9):
        page.keyboard.press("ArrowDown")
    page.wait_for_selector(".remat-matrices[data-stage='9'][data-value='2']")
    page.keyboard.press("Enter")
    said("overhead +5.9 %")
    for theme in ("Dark", "Light"):  # over the budget, where red is used, and pale cells are kept in vain
        choose_theme(page, theme)
        page.wait_for_timeout(500)
        assert violations(page) == [], theme
    panel("Judge")
    said("1 B above the budget of 8 B. The panel says what could go.")
    assert page.locator(".remat-status").evaluate("said => said.scrollWidth <= said.clientWidth")  # nothing is cut
    panel("Undo")
    said("overhead +11.8 %")
    panel("Judge")
    said("Right: cost 19, peak 8 B.")
    panel("Reveal")
    await_attribute(page, "compared", "true")
    page.locator(".remat-panel.compare", has_text="by hand").wait_for()
    choose_tab(page, "Edit")
    panel("Stop")
    await_attribute(page, "editing", "false")
    await_idle(page)
    assert flawless(page)


def test_kinds_are_toggled_and_colour_the_matrix(notebook: LastingNotebook) -> None:
    chain_with_choices().save(str(notebook.root / "choices.json"))
    page = show_in(
        notebook, 'rx.Explorer(graph=rx.Graph.load("choices.json"), budget=3600, improve=False, sweep=False)'
    )
    await_attribute(page, "rows", 6)
    choose_picture(page, "Matrices")
    edit = page.locator(".remat-edit")
    assert edit.is_disabled()
    assert "several implementations" in edit.get_attribute("aria-label")
    click(page, "Find the best")
    await_status(page, "Proven best")
    row = page.locator(".remat-implementations")
    row.get_by_role("button", name="masks").focus()
    page.keyboard.press("Space")
    page.wait_for_selector(".remat-implementations .remat-kind-masks:not(.mod-active)")
    await_idle(page)
    await_status(page, "overhead +21.4 %")  # of the answer, not of what is found on the way
    row.get_by_role("button", name="masks").click()
    await_status(page, "Solved before")
    assert "+7.1 %" in status(page)
    assert LIGHT["masks"] not in page.evaluate(COLOURS, 0)
    row.get_by_role("button", name="implementation", exact=True).click()
    await_attribute(page, "colouring", "implementation")
    page.wait_for_function(SHOWN, arg=[0, [LIGHT["masks"]]])
    choose_picture(page, "Layers")
    page.wait_for_function("() => document.querySelectorAll('.remat-panel.case svg').length === 3")
    bars = page.locator(".remat-panel.case svg").nth(1)
    assert bars.locator("rect").count() > 0
    assert all(bars.locator("text.name").all_text_contents())
    assert bars.locator("text.name").count() > 0
    choose_tab(page, "Ways")
    page.wait_for_selector(".remat-panel.ways")
    assert heights(page)[0][1] < 711, heights(page)  # a browser rounds to half a pixel
    assert flawless(page)


MAP = ".remat-map"
FRAME = f"{MAP} .remat-canvas"
# Colours of the map's canvas in columns and rows of the drawn area, from the top left.
SAMPLE = """(points) => {
    const canvas = document.querySelector('.remat-map canvas'), context = canvas.getContext('2d');
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.width / ratio - 72, canvas.height / ratio - 42];
    return points.map(([x, y]) => {
        const at = [(64 + x * width) * ratio, (10 + y * height) * ratio];
        return [...context.getImageData(...at.map(Math.round), 1, 1).data].slice(0, 3);
    });
}"""
FILLS = """() => {
    const {left, top, width, height} = document.querySelector('.remat-explorer').getBoundingClientRect();
    return left === 0 && top === 0 && width === innerWidth && height === innerHeight;
}"""
SAY = (
    "s = explorer.state; print('value', s.value, 'stage', s.stage, 'at', s.computation, s.playing, s.scene, s.picture)"
)
MODEL = "explorer.state.picture = 'model'; explorer.state.computation = 19"
PRESENT = """from remat_explorer.explorer import Scene
explorer.present([Scene('First: {keep_all}', '100%', 'model'), Scene('Second', picture='matrices', at=5)])"""


@pytest.fixture(scope="module")
def eight(notebook: LastingNotebook) -> Any:
    return show_in(notebook, "rx.Explorer(graph=rx.linear(8), budget=4, improve=False, sweep=False)")


@pytest.fixture
def mapped(eight: Any) -> Any:
    choose_picture(eight, "Memory")
    await_attribute(eight, "rectangles", 26, "map")
    return eight


def test_the_map_has_its_colours_in_both_themes(mapped: Any) -> None:
    kept, again = "first[2] > 150 && first[0] < 150", "last[0] > 200 && last[2] < 200"  # blue, and orange at the end
    sampled = f"const [first, last] = ({SAMPLE})([[0.02, 0.9], [0.97, 0.9]])"
    mapped.wait_for_function(f"() => {{ {sampled}; return {kept} && {again}; }}")
    ground = f"([least, most]) => (([red]) => least < red && red < most)(({SAMPLE})([[0.02, 0.1]])[0])"
    for theme, reds in (("Light", [200, 256]), ("Dark", [-1, 80]), ("Light", [200, 256])):
        choose_theme(mapped, theme)
        mapped.wait_for_function(ground, arg=reds)


def test_the_pointer_hears_what_is_there_and_a_click_selects_it_everywhere(mapped: Any) -> None:
    mapped.locator(FRAME).focus()
    mapped.keyboard.press("Home")
    box = mapped.locator(FRAME).bounding_box()
    x = box["x"] + 64 + 0.14 * (box["width"] - 72)  # v2 lies at the bottom in stages 2 and 3
    y = box["y"] + 10 + 0.9 * (box["height"] - 42)
    mapped.mouse.move(x, y)
    mapped.wait_for_selector(f"{MAP} .remat-tip:has-text('at offset')")
    name = mapped.locator(f"{MAP} .remat-tip b").inner_text()
    mapped.mouse.click(x, y)
    reached = "({stage, value}) => stage > 0 && 'v' + value === name"
    mapped.wait_for_function(f"(name) => ({reached})(document.querySelector('{MAP}').dataset)", arg=name)
    stage, value = (attribute(mapped, part, "map") for part in ("stage", "value"))
    mapped.wait_for_selector(f'.remat-matrices[data-stage="{stage}"][data-value="{value}"]', state="attached")
    mapped.wait_for_selector(f'.remat-panel.explain .head b:text-is("v{value}")')


def test_the_model_is_shown_from_python_a_click_selects_and_the_step_plays(eight: Any) -> None:
    errors: list[str] = []
    eight.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    choose_picture(eight, "Matrices")
    assert not eight.locator(".remat-model").is_visible()
    run(eight, MODEL)
    await_attribute(eight, "computation", 19, "model")
    eight.wait_for_function("() => document.querySelector('.remat-model canvas').width > 400")
    # ground, stage, lines with names, cursor
    eight.wait_for_function(f"() => ({PIXELS})('.remat-model-canvas').every((colours) => colours >= 2)")
    stage = int(attribute(eight, "stage", "model"))
    assert eight.inner_text(".remat-step-said .stage").startswith(f"Stage {stage} computes ")

    eight.locator(".remat-model").scroll_into_view_if_needed()
    canvas = eight.locator(".remat-model-canvas").bounding_box()
    before = attribute(eight, "value", "model")
    eight.mouse.click(canvas["x"] + 0.4 * canvas["width"], canvas["y"] + 0.2 * canvas["height"])
    eight.wait_for_selector(f'.remat-model:not([data-value="{before}"])')
    eight.locator(".remat-model-tip").filter(has_text="operation ").wait_for()
    clicked = int(attribute(eight, "value", "model"))
    eight.keyboard.press("ArrowRight")
    await_attribute(eight, "value", clicked + 1, "model")
    eight.keyboard.press("PageDown")
    await_attribute(eight, "stage", stage + 1, "model")
    run_until(eight, SAY, f"value {clicked + 1} stage {stage + 1} ")
    run(eight, MODEL)
    await_attribute(eight, "computation", 19, "model")
    eight.locator(".remat-model").focus()
    eight.keyboard.press(".")
    await_attribute(eight, "computation", 20, "model")
    run_until(eight, SAY, f"stage {attribute(eight, 'stage', 'model')} at 20 False")
    run(eight, "explorer.state.speed = 4; explorer.play()")
    await_attribute(eight, "computation", 25, "model")
    run_until(eight, SAY, "stage 16 at 25 False")
    assert [error for error in errors if "favicon" not in error] == []
    assert flawless(eight)


def test_the_explorer_fills_the_window_and_follows_keys_and_python(eight: Any) -> None:
    run(eight, f"explorer.state.picture = 'overview'\n{PRESENT}")
    assert at_scene(eight, 0, "First: 10 B")
    eight.wait_for_function(FILLS)
    assert not eight.is_visible(".remat-first")
    eight.keyboard.press("PageDown")
    assert at_scene(eight, 1, "Second")
    await_attribute(eight, "stage", 5)
    eight.keyboard.press("Escape")
    eight.wait_for_selector(".remat-explorer:not(.remat-presenting)")
    assert eight.is_visible(".remat-controls")
    run_until(eight, SAY, "False -1 overview")
    run(eight, "explorer.state.more = True")  # as it may be already
    eight.get_by_role("button", name="Present").click()  # the scenes that there are
    assert at_scene(eight, 0, "First: 10 B")
    eight.wait_for_function("() => document.fullscreenElement !== null")
    eight.keyboard.press("Escape")
    eight.wait_for_selector(".remat-explorer:not(.remat-presenting)")
    eight.wait_for_function("() => document.fullscreenElement === null")
    assert flawless(eight)

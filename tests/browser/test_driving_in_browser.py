"""What a person meets first and drives by mouse and keyboard, seeing or not: fields, budget, curve, tabs, focus."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remat_explorer.figures.palette import palette
from tests.browser.explorer_page import (
    AXE,
    COLOURS,
    DRAG,
    FITS,
    ORANGE,
    PREDICTED,
    TABS,
    VIOLATIONS,
    attribute,
    await_idle,
    await_status,
    choose_picture,
    choose_tab,
    choose_theme,
    click,
    flawless,
    open_more,
    show_again,
    show_in,
    status,
    violations,
)
from tests.browser.lab import LastingNotebook, run, run_cell

pytestmark = pytest.mark.browser

# What the slider is told of its ends, of the budget and of the points.
CURVE = """import json
curve = next(w for w in __import__("ipywidgets").Widget.widgets.values() if type(w).__name__ == "CurveSlider")
print(json.dumps([curve.low, curve.high, [point[:2] for point in curve.curve["points"]]]))"""
# The overhead that the report speaks of, in percent.
OVERHEAD = "() => parseFloat(document.querySelector('.remat-status').textContent.split('overhead +')[1])"
SOLVED = "() => /^(Optimal|Feasible) /.test(document.querySelector('.remat-status').textContent)"
FOCUSED = "() => document.activeElement.innerText || document.activeElement.ariaLabel || document.activeElement.title"
PANELS = (*TABS, "Plan", "Ways", "Solver", "Fit", "Edit", "Terms")
# The contrast of the ring around each control, when it has the focus, with the ground that it is drawn on.
FAINT = """async () => {
    const {Color, getContrast} = axe.commons.color;
    const colour = (text) => { const found = new Color(); found.parseString(text); return found; };
    const ground = (element) => {
        for (let at = element.parentElement; at; at = at.parentElement) {
            const found = colour(getComputedStyle(at).backgroundColor);
            if (found.alpha === 1 && at.offsetHeight >= element.offsetHeight) return found; // no bar under a thumb
        }
        return colour('white');
    };
    const faint = [];
    let seen = 0;
    for (const control of document.querySelectorAll('.remat-explorer :is(button, select, input, [tabindex="0"])')) {
        if (control.disabled || control.offsetParent === null) continue;
        control.focus({focusVisible: true, preventScroll: true});
        if (document.activeElement !== control) continue;
        await new Promise(requestAnimationFrame);
        const {outlineColor, outlineStyle, outlineWidth} = getComputedStyle(control);
        const contrast = getContrast(ground(control), colour(outlineColor));
        seen += 1;
        if (outlineStyle === 'none' || parseFloat(outlineWidth) < 1 || contrast < 3)
            faint.push(`${outlineStyle} ${outlineWidth} ${contrast.toFixed(1)}: ${control.outerHTML.slice(0, 120)}`);
    }
    return [seen, faint];
}"""
BOXES = """(names) => Object.fromEntries(names.map(
    (name) => [name, document.querySelector(name).getBoundingClientRect().toJSON()]))"""
HURRIED = """import remat_explorer as rx
e = rx.Explorer(graph=rx.linear(8), budget=4, improve=False, sweep=False)
e.wait()
e.state.picture = "plots"
display(e)
for strategy in ("chen-sqrt-n", "optimal", "checkpoint-all"):
    e.state.strategy, e.state.budget = strategy, 10
    e.solve()
    e.wait()"""
LOST = """from ipywidgets.widgets.widget import _instances
figure = next(w for w in _instances.values() if type(w).__name__ == "LiveFigure")
figure._send = lambda *given, **named: None
e.state.strategy, e.state.budget = "optimal", 5
e.solve()
e.wait()"""
PARTS = [".remat-explorer", ".remat-twice", ".remat-side", ".remat-canvas", ".remat-map", ".remat-tip"]


def test_the_plots_show_what_came_early_and_what_was_lost_and_come_anew(notebook: LastingNotebook) -> None:
    page = notebook.begin(HURRIED)
    run_cell(page, 0)
    page.wait_for_function(PREDICTED, arg=10, timeout=60_000)
    run(page, LOST)
    page.wait_for_function(PREDICTED, arg=5, timeout=60_000)
    page.evaluate("document.querySelector('.remat-plots .js-plotly-plot').remove()")  # as if it had never been loaded
    page.wait_for_function(PREDICTED, arg=5, timeout=60_000)
    assert flawless(page)


def test_another_model_a_dragged_budget_and_a_point_of_the_curve(notebook: LastingNotebook) -> None:
    page = show_in(notebook, 'rx.Explorer("mlp", batch=64)')
    page.locator(".remat-controls select").first.select_option("residual_net")
    page.wait_for_selector('.remat-matrices[data-rows="68"]', timeout=60_000)
    await_idle(page)
    page.wait_for_function("() => document.querySelector('.remat-curve').dataset.points > 5", timeout=60_000)

    slider = page.locator(".remat-curve").bounding_box()
    height = slider["y"] + slider["height"] / 2
    before = int(attribute(page, "drawn"))
    page.mouse.move(slider["x"] + 0.9 * slider["width"], height)
    page.mouse.down()
    page.mouse.move(slider["x"] + 0.89 * slider["width"], height, steps=6)
    await_status(page, "Best known within")
    with_much = page.evaluate(OVERHEAD)
    page.mouse.move(slider["x"] + 0.1 * slider["width"], height, steps=6)
    page.wait_for_function(f"(least) => ({OVERHEAD})() > least", arg=with_much)  # less memory costs more
    page.mouse.up()
    assert int(attribute(page, "drawn")) > before

    await_idle(page)
    choose_picture(page, "Matrices")
    for share in (0.9, 0.05, 0.95):  # the curve comes to the page, and comes anew with what the sweep finds
        page.wait_for_function(f"(share) => ({DRAG})(share)[0] > 0 || void ({DRAG})(0.5)", arg=share, timeout=120_000)
        assert palette("light").over not in page.evaluate(COLOURS, 2)  # which is of the budget that is dragged
    thumb = page.locator(".remat-curve input")
    dragged_to = thumb.input_value()
    page.set_viewport_size({"width": 1200, "height": 800})  # the slider is drawn anew, as with what the sweep finds
    page.wait_for_timeout(500)
    assert thumb.input_value() == dragged_to
    page.set_viewport_size({"width": 1280, "height": 800})
    thumb.evaluate("slider => slider.dispatchEvent(new Event('change', {bubbles: true}))")
    await_idle(page)
    field = page.locator(".remat-controls").get_by_label("Budget", exact=True)
    for end in (-1, 0):  # of the curve; the drag has left the budget at neither
        before = field.input_value()
        for _ in range(10):  # what the sweep finds moves the axes, and a point is missed then
            page.mouse.click(*places(page)[end])
            page.wait_for_timeout(500)
            if status(page).startswith("Chosen: ") and field.input_value() != before:
                break
        assert status(page).startswith("Chosen: ")
        assert field.input_value() != before
    thumb.focus()
    page.keyboard.press("PageUp")  # the next point
    await_status(page, "Best known within")
    assert flawless(page)


def places(page: Any) -> list[tuple[float, float]]:
    """Where the points of the curve are on the page, from the least memory on."""
    low, high, points = json.loads(run(page, CURVE))
    box, most = page.locator(".remat-curve").bounding_box(), 1.12 * max(1.0, *(overhead for _, overhead in points))
    across, down = box["width"] - 56, box["height"] - 26
    return sorted(
        (box["x"] + 44 + (peak - low) / (high - low) * across, box["y"] + 9 + (1 - overhead / most) * down)
        for peak, overhead in points
    )


@pytest.fixture(scope="module")
def tight(notebook: LastingNotebook) -> Any:
    return show_in(
        notebook, 'rx.Explorer("residual_net", batch=8, budget="60%", improve=False, sweep=False, time_limit=5)'
    )


def boxes(page: Any) -> dict[str, dict[str, float]]:
    return page.evaluate(BOXES, PARTS)


def test_more_is_open_in_the_next_explorer_if_it_was_left_open_and_says_why_a_strategy_is_off(tight: Any) -> None:
    open_more(tight)
    show_again(tight)
    tight.wait_for_selector(".remat-more", state="visible")
    entry = tight.locator(".remat-more option:has-text('griewank')")
    tight.wait_for_selector(".remat-more option:disabled", state="attached")
    assert entry.is_disabled()
    assert "is no chain" in entry.get_attribute("title")
    partly = tight.locator(".remat-more option:has-text('rotor')")
    assert partly.is_enabled()
    assert "falls into" in partly.get_attribute("title")
    assert tight.locator(".remat-more option:has-text('keep everything')").is_enabled()
    click(tight, "⋯")
    tight.wait_for_selector(".remat-more", state="hidden")
    show_again(tight)
    tight.wait_for_timeout(1000)
    assert not tight.locator(".remat-more").is_visible()


def test_plots_fill_their_cell_beside_the_panel_or_above_it(tight: Any) -> None:
    for width, height in ((1920, 1080), (1000, 800), (1280, 800)):
        tight.set_viewport_size({"width": width, "height": height})
        tight.wait_for_function(FITS)
        found = boxes(tight)
        assert found[".remat-canvas"]["height"] == pytest.approx(min(max(200, 0.32 * height), 460), abs=1)
        if width >= 1280:  # of which JupyterLab leaves the explorer 1,112 and more
            assert found[".remat-side"]["left"] >= found[".remat-plots"]["right"]
            assert found[".remat-side"]["right"] == pytest.approx(found[".remat-explorer"]["right"], abs=6)
        else:
            assert found[".remat-side"]["top"] >= found[".remat-plots"]["bottom"]
            assert found[".remat-plots"]["width"] == pytest.approx(found[".remat-explorer"]["width"], abs=6)


def test_the_pointer_finds_the_recomputation_beside_it_and_the_tip_covers_no_cells(tight: Any) -> None:
    tight.locator(".remat-matrices").evaluate("root => root.scrollIntoView({block: 'center'})")
    x, y = tight.evaluate(ORANGE, -4)
    tight.mouse.move(x, y)
    tight.wait_for_selector(".remat-tip:has-text('recomputed')", state="visible")
    found = boxes(tight)
    assert found[".remat-tip"]["top"] >= found[".remat-canvas"]["bottom"]
    tight.mouse.move(x, y - 20)
    tight.wait_for_selector(".remat-tip:has-text('not computed')", state="visible")
    tight.mouse.click(x, y)
    tight.wait_for_selector(".remat-panel .reason.recomputed")
    assert flawless(tight)


def test_the_keyboard_alone_sets_a_budget_solves_and_opens_every_tab(tight: Any) -> None:
    tight.locator(".remat-controls select").first.focus()
    reached: list[str] = []
    for _ in range(60):
        tight.keyboard.press("Tab")
        name = tight.evaluate(FOCUSED).strip()
        reached.append(name)
        if name == "Memory budget":
            tight.keyboard.press("ArrowLeft")
            await_status(tight, "Best known within")
        if name.startswith("Compare"):
            break
    for control in ("Find the best", "Run it", "Memory budget", "Matrices", "search", "Why", "Peak"):
        assert any(control in name for name in reached), (control, reached)
    tight.keyboard.press("Enter")
    tight.wait_for_selector(".remat-panel:has-text('Compare with this')")
    tight.locator(".remat-controls").get_by_role("button", name="Find the best").focus()
    tight.keyboard.press("Enter")
    tight.wait_for_function(SOLVED, timeout=90_000)
    await_idle(tight)
    assert flawless(tight)


@pytest.fixture(scope="module")
def whole(notebook: LastingNotebook) -> Any:
    page = show_in(notebook, 'rx.Explorer("mlp", batch=64, implementations="exact", sweep=False)')
    open_more(page)
    page.evaluate(AXE)
    return page


def test_the_explorer_has_no_serious_finding_of_axe_in_any_panel_and_theme(whole: Any) -> None:
    assert "label" in " ".join(whole.evaluate(VIOLATIONS, "body"))  # JupyterLab's own: the rules are there
    found = set(violations(whole))
    for name in PANELS:
        choose_tab(whole, name)
        selected = "[role=tab][aria-selected=true]" if name in TABS else "option:checked"
        whole.wait_for_selector(f".remat-tabs {selected}:text-is('{name}')", state="attached")
        found |= set(violations(whole))
    for picture in ("Memory", "Model", "Layers", "Plots", "Matrices"):
        choose_picture(whole, picture)
        whole.wait_for_timeout(500)
        found |= set(violations(whole))
    choose_theme(whole, "Dark")
    whole.wait_for_timeout(500)
    assert sorted(found | set(violations(whole))) == []


def test_the_focus_is_seen_in_both_themes(whole: Any) -> None:
    for theme in ("Dark", "Light"):
        choose_theme(whole, theme)
        seen, faint = whole.evaluate(FAINT)
        assert seen > 25
        assert faint == [], theme


def test_fields_have_the_names_that_stand_over_them(whole: Any) -> None:
    for name in ("Model", "Batch", "Image", "Device", "Costs", "Implementations", "Strategy", "Options", "Solver"):
        assert whole.locator(".remat-controls").get_by_label(name, exact=True).count() == 1, name
    assert whole.get_by_label("Limit (s)", exact=True).input_value() == "60"
    assert whole.locator(".remat-controls").get_by_label("Budget", exact=True).count() == 1
    assert whole.get_by_role("slider", name="Stage").count() == 1
    whole.get_by_label("Batch", exact=True).fill("32")
    whole.get_by_label("Batch", exact=True).press("Enter")
    whole.wait_for_selector('.remat-status[data-busy="loading"]')

"""What a person meets first and drives by mouse and keyboard, seeing or not: fields, budget, curve, tabs, focus."""

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
    await_attribute,
    await_idle,
    await_status,
    choose_picture,
    choose_tab,
    choose_theme,
    click,
    drawn_words,
    flawless,
    open_more,
    show_again,
    show_in,
    status,
    story,
    violations,
)
from tests.browser.lab import LastingNotebook, run, run_cell

pytestmark = pytest.mark.browser

# What the slider is told of its ends, of the budget and of the points.
CURVE = """import json
curve = next(view.slider for view in explorer._views if hasattr(view, "slider"))
print(json.dumps([curve.low, curve.high, [point[:2] for point in curve.curve["points"]]]))"""
# The overhead that the report speaks of, in percent.
OVERHEAD = "() => parseFloat(document.querySelector('.remat-status').textContent.split('overhead +')[1])"
SOLVED = "() => /^(Proven best|Found, not)/.test(document.querySelector('.remat-status').textContent)"
FOCUSED = """() => ['innerText', 'ariaLabel', 'title'].map((name) => document.activeElement[name]).find(Boolean)
    ?? document.activeElement.labels?.[0]?.innerText ?? ''"""
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
# The contrast of the arrow of the list of models with its ground.
ARROW = """() => {
    const {Color, getContrast} = axe.commons.color;
    const colour = (text) => { const found = new Color(); found.parseString(text); return found; };
    const style = getComputedStyle(document.querySelector('.remat-controls select'));
    const [, ink] = decodeURIComponent(style.backgroundImage).match(/fill=['"](#\\w{6})/) ?? [null, '#000000'];
    return getContrast(colour(style.backgroundColor), colour(ink));
}"""
# What a person can press or fill, as long as it is seen; the slider under the curve is the curve itself.
CONTROLS = """[...document.querySelectorAll('.remat-explorer :is(button, select, input, summary)')].filter(
    (control) => control.checkVisibility() && !control.closest('.remat-curve'))"""
TOUCHES = """(a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1"""
# Controls that lie upon one another or beyond the explorer's edge, or whose words are cut.
FAULTS = f"""() => {{
    const touches = {TOUCHES}, controls = {CONTROLS};
    const box = (element) => element.getBoundingClientRect(), whole = box(document.querySelector('.remat-explorer'));
    const said = (control) => control.innerText || control.title || control.outerHTML.slice(0, 80);
    return [
        ...controls.flatMap((one, i) => controls.slice(i + 1)
            .filter((other) => touches(box(one), box(other))).map((other) => [said(one), 'on', said(other)])),
        ...controls.filter((one) => box(one).left < whole.left - 1 || box(one).right > whole.right + 1)
            .map((one) => [said(one), 'beyond the edge']),
        ...controls.filter((one) => one.tagName === 'BUTTON' && one.scrollWidth > one.clientWidth + 1)
            .map((one) => [said(one), 'cut']),
    ];
}}"""
# Controls under the tips that are shown.
COVERED = f"""() => {{
    const touches = {TOUCHES}, box = (element) => element.getBoundingClientRect();
    const tips = [...document.querySelectorAll('.remat-explorer .remat-tip')].filter((tip) => tip.checkVisibility());
    return {CONTROLS}.filter((control) => tips.some((tip) => touches(box(tip), box(control))))
        .map((control) => control.innerText || control.title);
}}"""
# Of the first screen: tab stops before the picture, words and numbers in sight, legends, and how many pixels of
# controls there are before the picture, besides story and curve.
COUNTS = """() => {
    const root = document.querySelector('.remat-explorer'), pictures = root.querySelector('.remat-pictures');
    const before = (element) => element.compareDocumentPosition(pictures) & Node.DOCUMENT_POSITION_FOLLOWING;
    const stops = [...root.querySelectorAll('button, select, input, summary, [tabindex]')].filter((element) =>
        before(element) && element.tabIndex >= 0 && !element.disabled && element.checkVisibility());
    const texts = [...root.querySelectorAll('select')].filter((field) => field.checkVisibility())
        .map((field) => field.selectedOptions[0]?.text ?? '');
    texts.push(...[...root.querySelectorAll('input[type=text]')].filter((field) => field.checkVisibility())
        .map((field) => field.value || field.placeholder));
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode, range = document.createRange();
        range.selectNodeContents(node);
        const {left, top, width, height} = range.getBoundingClientRect();
        const seen = document.elementFromPoint(left + width / 2, top + height / 2);
        const isSeen = width > 1 && height > 1 && node.parentElement.contains(seen);
        if (isSeen) texts.push(node.textContent);
    }
    const said = texts.join(' ');
    const legends = [...root.querySelectorAll('[class*=legend]')].filter((one) => one.checkVisibility())
        .map((one) => one.innerText).filter(Boolean);
    const height = ['.remat-controls', '.remat-scrubber', '.remat-implementations', '.remat-tour'].map(
        (name) => root.querySelector(name)?.offsetHeight ?? 0).reduce((sum, more) => sum + more);
    return [stops.map((stop) => stop.innerText || stop.title || stop.ariaLabel), said.match(/[\\p{L}_]{2,}/gu) ?? [],
        said.match(/(?<![\\p{L}\\d._])\\d[\\d.,]*/gu) ?? [], legends, height];
}"""
# How many pixels are drawn upon R, and upon the memory map.
INKED = """() => ['.remat-matrices', '.remat-map'].map((part) => {
    const canvas = document.querySelector(`${part} canvas:nth-of-type(2)`);
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return data.filter((alpha, i) => i % 4 === 3 && alpha > 0).length;
})"""
# Whether the handle of the curve is at a share of the axis: its ring is there, and nothing else has its colour.
HANDLE = """(share) => {
    const root = document.querySelector('.remat-curve'), canvas = root.querySelector('canvas');
    const context = canvas.getContext('2d'), ratio = canvas.width / root.clientWidth;
    context.fillStyle = getComputedStyle(root).getPropertyValue('--handle').trim();
    const ink = context.fillStyle, at = 44 + share * (root.clientWidth - 56);
    const wanted = [1, 3, 5].map((i) => parseInt(ink.slice(i, i + 2), 16));
    const {data, width} = context.getImageData(0, 0, canvas.width, canvas.height);
    const places = [];
    for (let i = 0; i < data.length; i += 4)
        if (wanted.every((part, c) => Math.abs(data[i + c] - part) < 2) && data[i + 3] === 255)
            places.push(((i / 4) % width) / ratio);
    return places.length > 20 && places.every((x) => Math.abs(x - at) < 10);
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
PARTS = [".remat-explorer", ".remat-twice", ".remat-side", ".remat-matrices", ".remat-canvas", ".remat-map"]


def test_the_plots_show_what_came_early_and_what_was_lost_and_come_anew(notebook: LastingNotebook) -> None:
    page = notebook.begin(HURRIED)
    run_cell(page, 0)
    page.wait_for_function(PREDICTED, arg=10)
    run(page, LOST)
    page.wait_for_function(PREDICTED, arg=5)
    page.evaluate("document.querySelector('.remat-plots .js-plotly-plot').remove()")  # as if it had never been loaded
    page.wait_for_function(PREDICTED, arg=5)
    assert flawless(page)


def test_another_model_a_dragged_budget_and_a_point_of_the_curve(notebook: LastingNotebook) -> None:
    page = show_in(notebook, 'rx.Explorer("mlp", batch=64)')
    run(page, "explorer.state.hint, explorer.state.panel = 3, 'execution'")
    page.wait_for_selector(".remat-tour:has-text('3 of 6')")
    page.wait_for_selector(".remat-panel.execution")
    page.locator(".remat-controls select").first.select_option("residual_net")
    page.wait_for_selector(".remat-tour", state="hidden")  # the hints were of the other model
    page.wait_for_selector(".remat-tabs [aria-selected=true]:text-is('Why')")  # nothing of this one was run
    page.wait_for_selector('.remat-matrices[data-rows="68"]')
    await_idle(page)
    page.wait_for_function("() => document.querySelector('.remat-curve').dataset.points > 5")
    run(page, "explorer.state.hint = 4")  # which asks for a click on what is orange
    page.wait_for_selector(".remat-tour:has-text('4 of 6')")

    slider, pictures = (page.locator(part).bounding_box() for part in (".remat-curve", ".remat-pictures"))
    height = slider["y"] + slider["height"] / 2
    before = int(attribute(page, "drawn"))
    page.mouse.move(slider["x"] + 0.9 * slider["width"], height)
    page.mouse.down()
    page.mouse.move(slider["x"] + 0.89 * slider["width"], height, steps=6)
    await_status(page, "Best known within")
    with_much = page.evaluate(OVERHEAD)
    page.mouse.move(slider["x"] + 0.1 * slider["width"], height, steps=6)
    page.wait_for_function(f"(least) => ({OVERHEAD})() > least", arg=with_much)  # less memory costs more
    top = page.locator(".remat-pictures").bounding_box()["y"]
    page.mouse.up()
    assert int(attribute(page, "drawn")) > before
    assert top == pictures["y"]  # nothing jumps
    assert page.locator(".remat-tour:has-text('4 of 6')").count() == 1  # nobody has clicked what is orange

    await_idle(page)
    choose_picture(page, "Matrices")
    for share in (0.9, 0.05, 0.95):  # the curve comes to the page, and comes anew with what the sweep finds
        page.wait_for_function(f"(share) => ({DRAG})(share)[0] > 0 || void ({DRAG})(0.5)", arg=share)
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
    across, down = box["width"] - 56, box["height"] - 30
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


def test_pictures_and_panels_stand_side_by_side_and_nothing_covers_or_cuts_a_control(tight: Any) -> None:
    for width, height in ((1920, 1080), (700, 900), (900, 800), (1280, 800)):
        tight.set_viewport_size({"width": width, "height": height})
        tight.wait_for_function(
            f"(width) => ({BOXES})(['.remat-explorer'])['.remat-explorer'].right < width", arg=width
        )
        tight.wait_for_timeout(300)
        found = boxes(tight)
        edges = ("top", "bottom") if width < 900 else ("left", "right")  # below each other where it is narrow
        for first, second in ((".remat-matrices", ".remat-map"), (".remat-twice", ".remat-side")):
            assert found[second][edges[0]] >= found[first][edges[1]], (width, second)
        if width >= 1280:
            assert found[".remat-explorer"]["height"] < height - 89, width  # JupyterLab's own bars
        assert tight.evaluate(FAULTS) == [], width
    choose_picture(tight, "Plots")
    tight.wait_for_function(FITS)
    choose_picture(tight, "Overview")


def test_the_first_screen_is_a_sentence_a_curve_a_picture_and_few_controls(tight: Any) -> None:
    tight.locator(".remat-explorer").evaluate("root => root.scrollIntoView()")
    stops, words, numbers, legends, controls = tight.evaluate(COUNTS)
    assert 0 < len(stops) <= 20, " | ".join(stops)
    assert 0 < len(words) <= 120, " ".join(words)
    assert 0 < len(numbers) <= 30, " ".join(numbers)
    assert legends == []
    assert 0 < controls <= 100
    drawn = drawn_words(tight, ".remat-explorer")
    assert {"best found", "proven best", "stage: one new operation each", "keep everything"} <= set(drawn)
    numbered = [text for text in drawn if any(map(str.isdigit, text))]
    assert 0 < len(numbered) <= 36, " | ".join(numbered)


def test_the_legend_of_other_methods_is_covered_by_nothing(tight: Any) -> None:
    run(tight, "explorer.state.methods = True\nexplorer.state.picture = 'plots'")
    legend = tight.locator(".remat-stacking", has_text="keep everything")
    legend.wait_for()
    box = legend.bounding_box()
    for share in (0.02, 0.5, 0.98):
        place = [box["x"] + share * box["width"], box["y"] + box["height"] / 2]
        assert legend.evaluate("(legend, place) => legend.contains(document.elementFromPoint(...place))", place), share
    run(tight, "explorer.state.methods, explorer.state.picture = False, 'overview'")
    tight.wait_for_selector(".remat-map", state="visible")


BUSY = """explorer.state.busy = "solving"
explorer.state.say("Solving within what is left: " + "a bound and a schedule; " * 30 + "soon")"""


def test_the_explorer_is_as_high_while_something_goes_on_which_its_tooltip_says_in_full(tight: Any) -> None:
    before, said = boxes(tight), status(tight)
    run(tight, BUSY)
    tight.wait_for_selector(".remat-story .spinner")
    assert boxes(tight) == before
    report = tight.locator(".remat-status")
    assert report.evaluate("report => report.scrollWidth > report.clientWidth")
    assert report.get_attribute("title") == report.inner_text()
    assert tight.evaluate(FAULTS) == []  # Cancel is in sight
    run(tight, f"explorer.state.busy = ''\nexplorer.state.say({said!r})")
    await_idle(tight)
    assert boxes(tight) == before
    run(
        tight, "explorer.state.say('no file ' + 'a/very/long/path' * 120, 'warning')"
    )  # which takes no more than three lines
    warning = tight.locator(".remat-story .said")
    warning.wait_for()
    assert warning.bounding_box()["height"] <= 60.5
    assert warning.evaluate("one => one.scrollWidth <= one.clientWidth && one.scrollHeight > one.clientHeight")
    assert violations(tight, ".remat-story") == []
    run(tight, f"explorer.state.say({said!r})")
    warning.wait_for(state="detached")


def test_the_search_finds_what_is_computed_again(tight: Any) -> None:
    again = int(run(tight, "print(len(explorer.state.schedule.repeated_operations))"))
    assert again > 0
    field = tight.get_by_role("textbox", name="Search", exact=True)
    field.fill("recomputed")
    tight.wait_for_selector(f".remat-count:has-text('of {again}')")  # what is selected is one of them
    field.fill("")
    tight.wait_for_selector(".remat-count", state="hidden")


def test_the_pointer_finds_the_recomputation_beside_it_and_the_tip_covers_no_cells_and_no_control(tight: Any) -> None:
    tight.locator(".remat-explorer").evaluate("root => root.scrollIntoView()")
    x, y = tight.evaluate(ORANGE, -4)
    tight.mouse.move(x, y)
    tight.wait_for_selector(".remat-tip:has-text('recomputed')", state="visible")
    assert tight.evaluate(COVERED) == []
    assert tight.locator(".remat-tip:visible").bounding_box()["y"] >= boxes(tight)[".remat-canvas"]["bottom"]
    tight.mouse.move(x, y - 20)
    tight.wait_for_selector(".remat-tip:has-text('not computed')", state="visible")
    tight.mouse.click(x, y)
    tight.wait_for_selector(".remat-panel .reason.recomputed")
    area = tight.locator(".remat-map .remat-canvas").bounding_box()
    for share in (0.2, 0.9):  # over what always stays, at the foot of the map
        tight.mouse.move(area["x"] + 64 + share * (area["width"] - 72), area["y"] + area["height"] - 45)
        tight.wait_for_selector(".remat-map .remat-tip", state="visible")
        assert tight.evaluate(COVERED) == [], share
    tight.mouse.move(*places(tight)[0])
    tight.wait_for_selector(".remat-curve .remat-tip", state="visible")
    assert tight.evaluate(COVERED) == []
    tight.mouse.move(0, 0)
    before = tight.evaluate(INKED)
    tight.locator(".remat-twice tr[data-value]").last.hover()  # what is pointed at in the list is seen in both pictures
    tight.wait_for_function(f"(before) => ({INKED})().every((count, i) => count > before[i])", arg=before)
    assert flawless(tight)


def test_where_nothing_fits_the_handle_is_at_the_budget_and_the_remedy_is_in_sight(tight: Any) -> None:
    least = int(run(tight, "print(explorer.state.smallest.known_feasible)"))
    for budget in (least // 4, 4 * least):
        run(tight, f"explorer.state.budget = {budget}")
        await_attribute(tight, "value", budget, "curve")
        low, high, _ = json.loads(run(tight, CURVE))
        assert low <= budget <= high
        assert tight.evaluate(HANDLE, (budget - low) / (high - low))
    run(tight, f"explorer.state.budget = {least // 4}")
    assert "fits into" in story(tight)
    remedy = tight.locator(".remat-story .sentence button")
    remedy.wait_for()
    assert tight.evaluate(FAULTS) == []
    click(tight, "Find the best")  # known to be impossible: nothing is searched for
    await_idle(tight, 3)
    assert "known that fits" in story(tight) or "Nothing fits" in story(tight)
    remedy.click()
    remedy.wait_for(state="detached")
    await_idle(tight)
    assert int(attribute(tight, "value", "curve")) <= least
    assert "costs" in story(tight)
    run(tight, "explorer.state.set_budget('60%')")


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
        if name == "Why":
            break
    for control in ("Find the best", "Run it", "Memory budget", "Overview", "Search", "Why"):
        assert any(control in name for name in reached), (control, reached)
    for _ in range(2):
        tight.keyboard.press("ArrowRight")
    tight.wait_for_selector(".remat-panel:has-text('Compare with this')")
    tight.locator(".remat-controls").get_by_role("button", name="Find the best").focus()
    tight.keyboard.press("Enter")
    tight.wait_for_function(SOLVED)
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
        found |= set(violations(whole, ".remat-panel"))
    for picture in ("Memory", "Model", "Layers", "Plots", "Matrices"):
        choose_picture(whole, picture)
        whole.wait_for_timeout(200)
        found |= set(violations(whole, ".remat-pictures"))
    choose_theme(whole, "Dark")
    whole.wait_for_timeout(500)
    assert sorted(found | set(violations(whole))) == []


def test_the_focus_is_seen_in_both_themes(whole: Any) -> None:
    for theme in ("Dark", "Light"):
        choose_theme(whole, theme)
        seen, faint = whole.evaluate(FAINT)
        assert seen > 25
        assert faint == [], theme


def test_the_arrow_of_a_list_is_seen_on_dark_ground(whole: Any) -> None:
    choose_theme(whole, "Dark")
    assert whole.evaluate(ARROW) >= 3
    choose_theme(whole, "Light")


def test_fields_have_the_names_that_stand_over_them(whole: Any) -> None:
    for name in ("Model", "Batch", "Image", "Device", "Costs", "Implementations", "Strategy", "Options", "Solver"):
        assert whole.locator(".remat-controls").get_by_label(name, exact=True).count() == 1, name
    assert whole.get_by_label("Model", exact=True).input_value() == "mlp"
    assert whole.get_by_label("Limit (s)", exact=True).input_value() == "60"
    assert whole.locator(".remat-controls").get_by_label("Budget", exact=True).count() == 1
    assert whole.get_by_role("slider", name="Stage").count() == 1
    whole.get_by_label("Batch", exact=True).fill("32")
    whole.get_by_label("Batch", exact=True).press("Enter")
    whole.wait_for_selector('.remat-status[data-busy="loading"]')


SENDING = """explorer.state.transfers = "25 GB/s"
explorer.state.more = True"""


def test_the_bandwidth_stands_beside_the_budget_where_values_may_be_sent_and_is_named(tight: Any) -> None:
    slider = tight.locator(".remat-bandwidth")
    assert not slider.is_visible()
    run(tight, SENDING)
    slider.wait_for(state="visible")
    assert slider.get_by_role("slider").get_attribute("aria-label") == "Bandwidth to the host and back"
    assert tight.get_by_label("Send away").input_value() == "25 GB/s"
    assert violations(tight) == []
    run(tight, "explorer.state.transfers = None\nexplorer.state.more = False")
    slider.wait_for(state="hidden")

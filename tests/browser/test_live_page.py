"""The live page as a person opens it: a file in a browser, with no kernel and no network."""

from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.explanations import lives_of
from remat_explorer.explorer import Scene, State
from remat_explorer.explorer.live_page import live_page
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.solvers import checkpoint_all
from tests.browser.explorer_page import (
    DRAG,
    ORANGE,
    PIXELS,
    at_scene,
    attribute,
    await_attribute,
    drawn_words,
    flawless,
    open_page,
    requested,
    stage,
    violations,
)
from tests.core.repeated_graphs import transformer
from tests.explorer.driven import captured, explorer_of, measurement, runs_of, settled
from tests.hostile_names import hostile

pytestmark = pytest.mark.browser

CHAIN = rx.linear(8)
# Goes elsewhere, and the page writes where it was before it hears of that.
REMEMBERED_MEANWHILE = """() => {
    const before = location.hash;
    location.hash = '#budget=60%&stage=9&value=3';
    history.replaceState(null, '', before);
}"""
AT_REST = """(computation) => {
    const {dataset} = document.querySelector('.remat-model');
    return dataset.computation === String(computation) && dataset.moving === 'false';
}"""
CANVASES = "() => [...document.querySelectorAll('.remat-model canvas')].map((canvas) => canvas.toDataURL())"
# Every state that the playhead or the tanks go through while `press` is pressed, by the pictures of their canvases.
MOVED = """async (key) => {
    const canvases = ['.remat-step canvas', '[data-layer=playhead]'].map((part) => document.querySelector(part));
    const seen = new Set();
    document.querySelector('.remat-model').dispatchEvent(new KeyboardEvent('keydown', {key}));
    for (const end = performance.now() + 1500; performance.now() < end;) {
        await new Promise(requestAnimationFrame);
        seen.add(canvases.map((canvas) => canvas.toDataURL()).join());
    }
    return seen.size;
}"""
BARS = """() => [...document.querySelectorAll('#panel .life rect')].map(
    (bar) => [bar.x.baseVal.value, bar.width.baseVal.value])"""


@pytest.fixture(scope="module")
def frontier() -> rx.Frontier:
    return rx.sweep(CHAIN, budgets=[3, 4, 5, 6, 8, 10], strategies=["optimal", "griewank"])


@pytest.fixture(scope="module")
def solved() -> rx.Solution:
    return rx.solve(CHAIN, 4)


@pytest.fixture(scope="module")
def saved(frontier: rx.Frontier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rx.save_page(frontier, tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture(scope="module")
def only(saved: Path, solved: rx.Solution) -> Path:
    return rx.save_page(solved, saved.with_name("only.html"))


@pytest.fixture
def page(file_page: Any) -> Any:
    return file_page


def shown(page: Any, point: int, stage: int, value: int) -> bool:
    page.wait_for_selector(f'body[data-shown="{point} {stage} {value}"]')
    return True


def go(page: Any, where: str) -> None:
    page.evaluate(f"location.hash = '{where}'")


def sentence(page: Any) -> str:
    return page.inner_text("#story .sentence")


def told(page: Any, words: str) -> bool:
    """Whether the story comes to say that, with what is known below it."""
    page.locator("#story", has_text=words).wait_for()
    return True


def look_at(page: Any, picture: str) -> None:
    page.locator(".pictures").get_by_role("button", name=picture, exact=True).click()


def matrices(page: Any, key: str) -> None:
    page.locator(".remat-matrices").focus()
    page.keyboard.press(key)


def test_everything_is_drawn_and_nothing_is_asked_for(saved: Path, page: Any) -> None:
    requests = requested(page)
    open_page(page, saved)
    page.wait_for_function(f"() => ({PIXELS})('#memory')[0] > 3")
    assert page.is_visible("#matrices")  # beside the map, without U
    assert min(page.evaluate(PIXELS, "#matrices")[:2]) > 3
    look_at(page, "Matrices")
    page.wait_for_function(f"() => Math.min(...({PIXELS})('#matrices')) > 3")
    assert not page.is_visible("#memory")
    look_at(page, "Model")
    page.wait_for_function(f"() => ({PIXELS})('#model')[0] > 3")
    assert page.evaluate("() => 'Plotly' in window") is False  # nobody has looked at the plots
    look_at(page, "Plots")
    page.wait_for_selector("#figure .scatterlayer path")
    assert page.locator("#figure path.xy2, #figure .scatterlayer path").count() > 3
    assert page.locator(".remat-edit").count() == 0
    assert "Recomputed here" in page.inner_text("#panel")  # the first look
    assert requests == [saved.as_uri()]
    assert flawless(page)


def test_the_longest_number_beside_the_curve_is_whole(saved: Path, page: Any) -> None:
    open_page(page, saved)
    assert "+165\u2009%" in drawn_words(page, "#curve")
    cut = """() => {
        const canvas = document.querySelector('#curve canvas'), context = canvas.getContext('2d');
        return [[0, 1], [1, 40]].map(([left, columns]) => context.getImageData(left, 0, columns, canvas.height).data
            .filter((alpha, i) => i % 4 === 3 && alpha > 0).length);
    }"""
    edge, beside = page.evaluate(cut)
    assert edge == 0 < beside


def test_the_story_is_that_of_the_schedule_on_the_screen(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=10")
    assert sentence(page) == "This step needs 10 B. In 10 B everything can be kept: nothing runs twice."
    assert "Nothing runs twice" in page.inner_text("#twice")
    go(page, "#budget=4")
    assert told(page, "In 4 B it costs 53 % more: ")
    assert told(page, "proven best")
    assert told(page, "uses 4 of 4 B")
    page.locator("#twice tr[data-value]").first.wait_for()
    go(page, "#budget=6")
    assert told(page, "In 6 B it costs ")
    page.get_by_text("Report").click()
    assert "Best known within 6 B: overhead +23.5 %, proven best" in page.inner_text("#story")


def test_it_opens_at_the_budget_the_stage_and_the_value_that_were_exported(page: Any, tmp_path: Path) -> None:
    explorer = explorer_of(graph=CHAIN, budget=4)
    explorer.state.frontier = rx.sweep(CHAIN, budgets=[3, 4, 6, 8, 10], strategies=["optimal"])
    explorer.state.budget = 6
    explorer.select(stage=3, value=2)
    path = explorer.export("page", tmp_path / "page.html")
    settled(explorer)
    explorer.close()
    open_page(page, path)
    assert shown(page, 2, 3, 2)
    assert told(page, "In 6 B it costs ")
    assert page.evaluate("() => location.hash") == "#budget=60.000%25&stage=3&value=2"
    page.goto("about:blank")
    open_page(page, path, "#budget=4&stage=7&value=1")  # an address goes before
    assert shown(page, 1, 7, 1)


def test_a_budget_in_the_address_is_never_read_as_a_smaller_one(page: Any, tmp_path: Path) -> None:
    curve = rx.sweep(captured("mobilenet_v1"), budgets=["60%", "100%"], strategies=["checkpoint-all", "chen-sqrt-n"])
    lowest = curve.scheduled()[0][1]
    open_page(page, rx.save_page(curve, tmp_path / "page.html"), f"#budget={lowest}&stage=0&value=0")
    assert shown(page, 0, 0, 0)
    hashes = set()
    for _ in range(3):
        page.reload()
        page.wait_for_selector("body[data-shown='0 0 0']")
        assert not page.get_by_role("button", name="Use ").count()  # it fits still
        hashes.add(page.evaluate("() => location.hash"))
    assert len(hashes) == 1


def test_what_runs_twice_is_pointed_at_in_every_picture_and_selects(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=4&stage=0&value=8")
    row = page.locator("#twice tr[data-value]").first
    value, at = row.get_attribute("data-value"), row.get_attribute("data-stage")
    pictures = ["#matrices canvas:nth-child(2)", "#memory canvas:nth-child(2)"]
    drawn = "(places) => places.map((place) => document.querySelector(place).toDataURL())"
    before = page.evaluate(drawn, pictures)
    row.hover()
    page.wait_for_function(
        f"([places, before]) => ({drawn})(places).every((now, i) => now !== before[i])", arg=[pictures, before]
    )
    row.locator(".link").click()
    await_attribute(page, "stage", at)
    page.wait_for_selector(f'#twice tr.selected[data-value="{value}"][aria-current="true"]')
    assert page.locator("#twice tr.selected").count() == 1


def test_the_address_says_where_to_look_and_follows(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=60%&stage=9&value=3")
    assert shown(page, 3, 9, 3)
    assert told(page, "In 6 B it costs ")
    matrices(page, "ArrowDown")
    matrices(page, "ArrowRight")
    assert shown(page, 3, 10, 4)
    page.wait_for_function("() => location.hash === '#budget=60.000%25&stage=10&value=4'")
    go(page, "#budget=4&stage=2&value=0")
    assert shown(page, 1, 2, 0)
    page.evaluate(REMEMBERED_MEANWHILE)
    assert shown(page, 3, 9, 3)


def test_a_value_is_in_memory_at_the_statements_of_the_point(saved: Path, frontier: rx.Frontier, page: Any) -> None:
    open_page(page, saved)
    schedules = [schedule for schedule, _ in frontier.scheduled()]
    for point, budget in ((0, 3), (len(schedules) - 1, 10)):
        go(page, f"#budget={budget}&stage=0&value=3")
        assert shown(page, point, 0, 3)
        lives = lives_of(Plan.of(schedules[point])).of_value[3]
        assert page.evaluate(BARS) == [[life.first, life.last - life.first + 1] for life in lives]
        assert f"(statements {lives[0].first} to {lives[0].last})" in page.text_content("#panel")  # of the bar


# Presses the space bar in the matrices as soon as a stage before the last ones is shown.
PAUSE = """() => new Promise((resolve) => {
    const matrices = document.querySelector('.remat-matrices');
    const watch = setInterval(() => {
        if (matrices.dataset.stage >= 14) return;
        clearInterval(watch);
        matrices.dispatchEvent(new KeyboardEvent('keydown', {key: ' ', bubbles: true}));
        resolve();
    }, 5);
})"""


def test_stages_play_at_their_speed_to_the_end_begin_again_and_stop_where_asked(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=100%&stage=2&value=0")
    bar = page.locator(".remat-stage-bar")
    bar.get_by_role("button", name="Play the stages").click()
    bar.get_by_label("Speed").select_option("4")
    await_attribute(page, "stage", 16)
    bar.get_by_role("button", name="Play the stages").click()  # it has stopped at the last one
    page.evaluate(PAUSE)
    bar.get_by_role("button", name="Play the stages").wait_for()
    here = stage(page)
    page.wait_for_timeout(600)  # two would have followed
    assert stage(page) == here < 16


def test_a_dragged_budget_is_drawn_before_the_page_is(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=100%&stage=0&value=0")
    for share in (0.05, 0.5, 0.05):
        drawings, canvases = page.evaluate(DRAG, share)
        assert drawings == 1
        assert canvases > 6  # the picture before fades
    assert "In 3 B it costs 165 % more: " in sentence(page)
    assert shown(page, 0, 0, 0)
    page.wait_for_function("() => document.querySelectorAll('.remat-matrices canvas').length === 6")
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(DRAG, 0.5) == [1, 6]


def test_the_memory_map_follows_selects_and_compares_moments_and_peaks(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=100%&stage=3&value=3")
    await_attribute(page, "rectangles", 17, "map")  # beside R and S
    look_at(page, "Memory")
    assert page.evaluate(PIXELS, "#memory")[0] > 3
    go(page, "#budget=40%&stage=8&value=3")
    await_attribute(page, "rectangles", 26, "map")
    assert "one block of 4 B, proven least" in page.inner_text("#memory")
    page.locator(".remat-map [role=application]").focus()
    page.keyboard.press("p")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector('.remat-moments p:has-text("3 B at stage 8, 4 B at stage 9.")')
    assert page.locator(".remat-moments .total td").all_inner_texts() == ["all", "–", "3 B", "1 B"]
    page.locator(".remat-moments button", has_text="v9").click()
    assert shown(page, 1, 9, 9)
    page.get_by_role("button", name="Compare the peak").click()
    page.wait_for_selector('.remat-moments p:has-text("10 B at the peak of keeping everything, 4 B at the peak here.")')
    page.get_by_role("button", name="Stop comparing").click()
    page.wait_for_selector(".remat-moments", state="hidden")
    go(page, "#budget=40%&stage=3&value=0")
    await_attribute(page, "stage", 3, "map")
    page.locator(".remat-map [role=application]").focus()
    seen = set()
    for key in ("ArrowDown",) * 3 + ("ArrowUp",) * 3:
        page.keyboard.press(key)
        page.wait_for_timeout(50)
        seen.add(attribute(page, "value", "map"))
    assert seen >= {"2", "3"}  # what stage 3 has in memory
    assert "Stage 3. v" in page.locator(".remat-map .remat-live").inner_text()
    assert flawless(page)


def test_matrices_and_map_share_a_zoom_and_what_changes_while_one_is_hidden(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=40%&stage=8&value=3")
    look_at(page, "Matrices")
    matrices(page, "+")
    zoom = attribute(page, "zoom")
    assert zoom
    look_at(page, "Memory")
    await_attribute(page, "zoom", zoom, "map")
    page.locator(".remat-map").get_by_role("button", name="Show every stage").click()
    await_attribute(page, "zoom", "", "map")
    go(page, "#budget=80%&stage=5&value=3")
    await_attribute(page, "stage", 5, "map")
    look_at(page, "Overview")
    page.wait_for_selector('.remat-matrices[data-stage="5"][data-zoom=""]')
    assert flawless(page)


def test_where_nothing_fits_the_page_says_so_and_keeps_its_picture(page: Any, tmp_path: Path) -> None:
    open_page(page, rx.save_page(rx.solve(CHAIN, 6), tmp_path / "page.html"), "#budget=4&stage=5&value=3")
    assert shown(page, 0, 5, 3)
    assert "No schedule on this page fits into 4 B. The least on this page is 6 B." in sentence(page)
    page.locator("#story .chip.error", has_text="uses 6 of 4 B").wait_for()
    assert attribute(page, "rows") == "17"
    page.get_by_role("button", name="Use 6 B").click()
    assert told(page, "In 6 B it costs ")
    open_page(page, rx.save_page(rx.solve(CHAIN, 2), tmp_path / "nothing.html"))
    assert "Nothing fits into 2 B. The least on this page is 10 B." in sentence(page)


def test_names_the_timeline_and_the_curve_select(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=40%&stage=12&value=0")
    named = page.locator("#panel .reason span.link[data-stage]").first
    stage = named.get_attribute("data-stage")
    named.click()
    await_attribute(page, "stage", stage)
    look_at(page, "Plots")
    page.wait_for_selector("#figure .scatterlayer path")
    click_mark(page, page.locator("#figure .subplot.xy .point").last)
    page.locator("#story .sentence", has_not_text="In 4 B").wait_for()
    box = page.locator("#figure .nsewdrag[data-subplot=x2y2]").bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.8 * box["height"], steps=3)
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 0.8 * box["height"])
    page.wait_for_selector(f'.remat-matrices:not([data-stage="{stage}"])', state="attached")
    look_at(page, "Overview")
    box = page.locator(".remat-curve").bounding_box()
    page.mouse.click(box["x"] + 44, box["y"] + 13)  # its dearest point
    assert told(page, "In 3 B it costs ")


def click_mark(page: Any, mark: Any) -> None:
    """Click a point of the curve as a person does, whose pointer comes from beside it."""
    box = mark.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x - 2, y, steps=3)
    page.wait_for_selector("#figure .hovertext")  # plotly has noticed
    page.mouse.click(x, y)


def test_points_of_other_methods_lead_to_the_best_for_their_memory(saved: Path, only: Path, page: Any) -> None:
    open_page(page, saved, "#budget=4&stage=3&value=3")
    on_curve = page.locator(".remat-curve")
    few = int(on_curve.get_attribute("data-points"))
    look_at(page, "Plots")
    page.wait_for_selector("#figure .subplot.xy .point")
    best = page.locator("#figure .subplot.xy .point").count()
    points = "(count) => document.querySelectorAll('#figure .subplot.xy .point').length === count"
    button = page.get_by_role("button", name="Other methods")
    button.click()
    page.wait_for_function(points, arg=best + 6)
    assert button.get_attribute("aria-pressed") == "true"
    traces = page.evaluate("() => document.querySelector('#figure').data.map((trace) => [trace.name, trace.x])")
    assert dict(traces)["griewank"] == [3, 4, 5, 6, 7, 8, 9, 10]
    click_mark(page, page.locator("#figure .subplot.xy .trace.scatter").last.locator(".point").nth(2))
    assert told(page, "In 5 B it costs ")
    assert told(page, "proven best")
    assert int(on_curve.get_attribute("data-points")) == few + 6
    button.click()
    page.wait_for_function(points, arg=best)
    assert int(on_curve.get_attribute("data-points")) == few
    assert flawless(page)
    open_page(page, only)
    assert not button.is_visible()
    assert told(page, "not run")


# What becomes of the run that draws itself, however late one looks.
RUNS = """() => {
    const figure = document.querySelector('#figure');
    window.runs = [];
    const tell = () => window.runs.at(-1) === figure.dataset.run || window.runs.push(figure.dataset.run);
    new MutationObserver(tell).observe(figure, {attributes: true, attributeFilter: ['data-run']});
}"""


def test_what_was_measured_is_said_of_its_own_schedule_alone_and_draws_itself(
    solved: rx.Solution, page: Any, tmp_path: Path
) -> None:
    found = measurement(State(graph=solved.graph, schedule=solved.schedule))
    path = rx.save_page(solved, tmp_path / "page.html", measurement=found)
    open_page(page, path)
    assert told(page, "measured 4 B, gradients equal")
    page.get_by_text("Report").click()
    assert "4 B predicted, 4 B measured; gradients equal bit for bit" in page.inner_text("#story")
    page.evaluate(RUNS)
    page.get_by_role("button", name="Draw the run").click()
    page.wait_for_function("() => window.runs.join() === 'drawing,drawn'")
    page.goto("about:blank")
    open_page(page, path, "#budget=10&stage=2&value=0")  # another point, of which nothing was measured
    assert shown(page, 1, 2, 0)
    assert told(page, "not run")
    assert "measured" not in page.text_content("#story")
    page.evaluate(RUNS)
    page.get_by_role("button", name="Show the one that was run").click()
    page.wait_for_function("() => window.runs.includes('drawing')")
    assert told(page, "In 4 B it costs ")
    assert told(page, "measured 4 B")
    assert flawless(page)


def test_the_page_has_no_serious_finding_of_axe(saved: Path, page: Any) -> None:
    inks = set()
    for scheme, colour in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(17, 17, 17)")):
        page.emulate_media(color_scheme=scheme)
        open_page(page, saved, "#budget=50%")
        for picture in (
            ("Overview", "Matrices", "Model", "Memory", "Plots") if scheme == "light" else ("Model", "Plots")
        ):
            look_at(page, picture)
            page.wait_for_timeout(200)
            if picture == "Memory":
                page.get_by_role("button", name="Compare the peak").click()
            elif picture == "Plots":
                page.wait_for_selector("#figure .scatterlayer path")
            assert violations(page, "body") == []
        page.wait_for_function("(colour) => getComputedStyle(document.body).backgroundColor === colour", arg=colour)
        inks.add(page.evaluate("() => document.querySelector('#figure')._fullLayout.font.color"))
    assert len(inks) == 2


def test_names_of_any_kind_are_text(page: Any, tmp_path: Path) -> None:
    open_page(page, rx.save_page(rx.solve(hostile(rx.linear(4)), 4), tmp_path / "page.html"))
    for _ in range(3):
        matrices(page, "ArrowRight")
        page.wait_for_timeout(150)
    assert page.evaluate("() => window.ran === undefined")
    assert flawless(page)


def open_model(page: Any, path: Path, where: str) -> None:
    open_page(page, path, where)
    look_at(page, "Model")
    page.wait_for_selector(".remat-model[data-computation]")
    page.locator(".remat-model").focus()


def at_rest(page: Any, computation: int) -> bool:
    page.wait_for_function(AT_REST, arg=computation)
    return True


def test_captions_and_levels_of_the_step_are_those_of_the_plan(solved: rx.Solution, only: Path, page: Any) -> None:
    plan: Any = solved.plan
    plain, computed = Plan.of(checkpoint_all(CHAIN)), set()
    kept = runs_of(plain)
    open_model(page, only, "#budget=40%&stage=0")
    for computation, i in enumerate(runs_of(plan)):
        statement = plan.statements[i]
        computed.add(statement.operation)
        assert at_rest(page, computation)
        assert page.inner_text("[data-tank=schedule] b") == format_bytes(int(plan.timeline.during[i]))
        bytes_ = int(plain.timeline.during[kept[len(computed) - 1]])
        over = f", {format_bytes(bytes_ - 4)} over" if bytes_ > 4 else ""
        assert page.inner_text("[data-tank=plain] b") == format_bytes(bytes_) + over
        again = "" if statement.first else ", again"
        assert f"Computation {computation + 1} of 26: v{statement.operation}{again}" in page.inner_text(".now")
        page.keyboard.press(".")
    assert flawless(page)


def test_a_stage_is_told_in_words_and_shown_at_its_end(solved: rx.Solution, only: Path, page: Any) -> None:
    plan: Any = solved.plan
    runs = [plan.statements[i] for i in runs_of(plan)]
    *names, _ = (f"v{run.operation}" for run in runs if run.stage == 13)
    last = max(i for i, run in enumerate(runs) if run.stage == 13)
    open_model(page, only, "#budget=40%&stage=13")
    assert at_rest(page, last)
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    assert page.inner_text(".remat-step-said .stage") == f"Stage 13 computes {listed} again ({len(names)} B), then v13"
    page.get_by_role("button", name="Previous computation").click()
    assert at_rest(page, last - 1)
    assert attribute(page, "stage", "model") == "13"
    page.get_by_label("The computation that the step has come to").fill("9")
    assert at_rest(page, 9)
    await_attribute(page, "stage", 9)
    page.get_by_role("button", name="Next stage").click()
    await_attribute(page, "stage", 10, "model")


def test_the_step_plays_computation_by_computation_and_ends_at_the_last(only: Path, page: Any) -> None:
    open_model(page, only, "#budget=40%&stage=14")
    noting = "setInterval(() => seen.add(document.querySelector('.now').innerText), 20)"
    page.evaluate(f"() => {{ window.seen = new Set(); {noting}; }}")
    page.keyboard.press(" ")
    assert at_rest(page, 25)
    assert page.evaluate("() => seen.size") >= 3
    page.get_by_role("button", name="Play the stages").wait_for()
    page.locator(".remat-model").focus()
    page.keyboard.press(" ")
    await_attribute(page, "stage", 1, "model")  # from the beginning


def test_without_motion_the_states_are_the_same_and_nothing_lies_between_them(only: Path, page: Any) -> None:
    open_model(page, only, "#budget=40%&stage=16")
    last = int(attribute(page, "computation", "model"))
    pictures: list[list[Any]] = []
    for motion in ("no-preference", "reduce"):
        page.emulate_media(reduced_motion=motion)
        for key, computation in ((",", last - 1), (",", last - 2), (".", last - 1)):
            page.keyboard.press(key)
            assert at_rest(page, computation)
        page.wait_for_timeout(800)
        pictures.append(page.evaluate(CANVASES))
        states = page.evaluate(MOVED, ".")
        assert states > 4 if motion == "no-preference" else states <= 2
        assert page.evaluate(CANVASES) != pictures[-1]
    assert pictures[0] == pictures[1]


def test_repeated_blocks_fold_and_unfold_in_every_picture(page: Any, tmp_path: Path) -> None:
    curve = rx.sweep(transformer(13), budgets=["100%"], strategies=["checkpoint-all"])  # 421 operations
    open_page(page, rx.save_page(curve, tmp_path / "page.html"))
    look_at(page, "Matrices")
    await_attribute(page, "folded", 0)
    page.locator(".remat-folds .remat-fold").nth(1).click()
    await_attribute(page, "folded", "")
    matrices(page, "Shift+F")
    await_attribute(page, "folded", 0)
    matrices(page, "Shift+F")
    await_attribute(page, "folded", "")
    matrices(page, "Home")
    for _ in range(3):
        page.keyboard.press("ArrowDown")  # into the first copy
    page.keyboard.press("f")
    await_attribute(page, "folded", 0)
    look_at(page, "Model")
    await_attribute(page, "folded", 0, "model")
    model = page.locator(".remat-model-canvas").bounding_box()
    page.mouse.click(model["x"] + model["width"] / 2, model["y"] + 0.3 * model["height"])  # on the block
    await_attribute(page, "folded", "", "model")
    page.locator(".remat-model .folds button").click()
    await_attribute(page, "folded", 0, "model")
    look_at(page, "Memory")
    await_attribute(page, "folded", 0, "map")
    described = page.locator(".remat-map .remat-canvas").get_attribute("aria-label")
    assert "not folded, because each copy of a block has its own bytes" in described
    assert violations(page, "body") == []
    assert flawless(page)


def test_scenes_go_by_keys_and_end(solved: rx.Solution, page: Any, tmp_path: Path) -> None:
    script = [
        Scene("All of it: {keep_all}", "100%", "model", at=3),
        Scene("{peak} alone", "4", "matrices", at="recomputation"),
        Scene("It plays", picture="model", play=True),
    ]

    open_page(page, live_page(solved, scenes=script).save(tmp_path / "page.html"), "#budget=4&stage=5&value=2")
    page.get_by_role("button", name="Present").click()
    assert at_scene(page, 0, "All of it: 10 B")
    assert page.is_visible("#model")
    await_attribute(page, "stage", 3, "model")
    assert told(page, "In 10 B everything can be kept")
    for other in ("h1", "#curve", "#bar", "#twice", "#panel"):  # the story, one picture, its caption, nothing else
        assert not page.is_visible(other)
    assert page.evaluate("() => parseFloat(getComputedStyle(document.querySelector('.caption')).fontSize)") >= 20
    assert violations(page, "body") == []
    page.keyboard.press("PageDown")
    assert at_scene(page, 1, "4 B alone")
    assert page.is_visible("#matrices")
    assert not page.is_visible("#memory")
    page.wait_for_function(ORANGE, arg=2)
    page.mouse.move(*page.evaluate(ORANGE, 2))
    page.wait_for_selector(".remat-tip:has-text('recomputed')", state="visible")
    page.keyboard.press("ArrowRight")
    assert at_scene(page, 2, "It plays")
    await_attribute(page, "stage", 1, "model")
    page.keyboard.press("PageDown")
    assert at_scene(page, 2, "It plays")
    page.keyboard.press("PageUp")
    assert at_scene(page, 1, "4 B alone")
    before = stage(page)
    matrices(page, "ArrowUp")  # which is the matrices' own key
    await_attribute(page, "stage", before - 1)
    assert at_scene(page, 1, "4 B alone")
    page.keyboard.press("Escape")
    page.wait_for_selector("body:not(.remat-presenting)")
    assert page.is_visible("h1")
    assert shown(page, 0, 5, 2)  # as it was before
    assert page.is_visible("#memory")
    assert flawless(page)


def test_a_plan_that_sends_is_drawn_with_what_is_on_the_host_and_its_lanes(page: Any, tmp_path: Path) -> None:
    found = rx.solve(CHAIN, 4, strategy="offload", transfers=rx.Transfers(1.0, 1.0), time_limit=2)
    assert found.plan is not None
    open_page(page, rx.save_page(found, tmp_path / "page.html"))
    assert "travel to the host" in page.inner_text("#story")
    assert "travels" in page.inner_text("#twice").lower()
    indigo = """(place) => [...document.querySelectorAll(`${place} canvas:first-child`)].map((canvas) => {
        const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        let count = 0;
        for (let i = 0; i < data.length; i += 4) count += data[i] === 0x4B && data[i + 1] === 0x22;
        return count;
    })"""
    page.wait_for_function(f"() => ({indigo})('#memory')[0] > 0")
    assert min(page.evaluate(indigo, "#matrices")[:2]) > 0
    assert violations(page, "body") == []
    look_at(page, "Model")
    page.wait_for_function(f"() => ({PIXELS})('#model')[0] > 3")
    assert flawless(page)

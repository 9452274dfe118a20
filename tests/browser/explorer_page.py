"""An explorer in a page, and a page without a kernel: bring it there, read it, press its buttons, look for faults."""

from pathlib import Path
from typing import Any

from axe_playwright_python.base import AXE_FILE_PATH

from tests.browser.lab import THEME, LastingNotebook, run_cell

CELL = "import remat_explorer as rx\nexplorer = {}\nexplorer"
ON_SCREEN = """() => {
    const [matrices, curve] = ['.remat-matrices', '.remat-curve'].map((part) => document.querySelector(part));
    return matrices?.dataset.rows > 0 && curve?.dataset.points > 0;
}"""
TABS = ("Why", "Peak", "Compare", "Run")  # the other panels are in a list
AXE = AXE_FILE_PATH.read_text("utf-8")
VIOLATIONS = """async (place) => {
    const found = await axe.run(place, {resultTypes: ['violations']});
    return found.violations.filter((rule) => ['serious', 'critical'].includes(rule.impact)).flatMap((rule) =>
        rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 200)}`));
}"""
# The colours of a matrix: of R, S or U.
COLOURS = """(number) => {
    const canvas = document.querySelectorAll('.remat-canvas canvas:first-child')[number];
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    for (let i = 0; i < pixels.length; i += 4)
        colours.add('#' + [0, 1, 2].map((c) => pixels[i + c].toString(16).padStart(2, '0')).join('').toUpperCase());
    return [...colours];
}"""
# How many colours the canvases within a place have.
PIXELS = """(place) => [...document.querySelectorAll(`${place} canvas:first-child`)].map((canvas) => {
    if (!canvas.clientWidth) return 3;
    if (canvas.width * canvas.height === 0) return 0;
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size;
})"""
PAINTED = f"() => ({PIXELS})('.remat-matrices .remat-canvas').every((colours) => colours >= 3)"
# A line of the plots that is on the screen.
LINE_OF = """(sought) => document.querySelector('.js-plotly-plot')?._fullData?.find(
    ({name, visible, y}) => name === sought && visible === true && y && Math.max(...y) > 0)"""
PREDICTED = f"(height) => Math.max(...(({LINE_OF})('predicted')?.y ?? [])) === height"
# Whether the plots fill their place.
FITS = """() => {
    const [place, drawn] = ['.remat-figure', '.remat-figure .main-svg'].map(
        (name) => document.querySelector(name)?.getBoundingClientRect());
    return drawn && Math.abs(place.width - drawn.width) < 2 && Math.abs(place.height - drawn.height) < 2;
}"""
# Drags the budget to a share of the slider: how often the matrices were drawn at once, and on how many canvases.
DRAG = """(share) => {
    const [slider, root] = ['.remat-curve input', '.remat-matrices'].map(
        (part) => document.querySelector(part));
    const drawn = root.dataset.drawn;
    slider.value = Number(slider.min) + share * (slider.max - slider.min);
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    return [root.dataset.drawn - drawn, root.querySelectorAll('canvas').length];
}"""
# A place on the page in the uppermost recomputed cell of R, or above it, by a number of pixels of the canvas.
ORANGE = """(down) => {
    const canvas = document.querySelector('.remat-canvas canvas:first-child'), box = canvas.getBoundingClientRect();
    const {data, width, height} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < data.length; i += 4)
        if (data[i] === 0xD5 && data[i + 1] === 0x5E && data[i + 2] === 0) {
            const [x, y] = [(i / 4) % width, Math.floor(i / 4 / width)];
            return [box.left + (x + 2) * box.width / width, box.top + (y + down) * box.height / height];
        }
}"""

# From now on each canvas knows the words that are drawn on it; and these words, of the canvases that are in sight.
KEEP_WORDS = """() => {
    if (window.drawnWords) return;
    window.drawnWords = new Map();
    const {fillText, clearRect} = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.clearRect = function (...given) {
        window.drawnWords.set(this.canvas, []);
        return clearRect.apply(this, given);
    };
    CanvasRenderingContext2D.prototype.fillText = function (text, ...given) {
        window.drawnWords.get(this.canvas)?.push(String(text));
        return fillText.call(this, text, ...given);
    };
}"""
DRAWN_WORDS = """(place) => [...window.drawnWords].flatMap(([canvas, words]) =>
    canvas.isConnected && canvas.checkVisibility() && canvas.closest(place) ? words : [])"""


def drawn_words(page: Any, place: str) -> list[str]:
    """The words that are drawn on the canvases within a place, which are drawn again for that."""
    page.evaluate(KEEP_WORDS)
    size = page.viewport_size
    for width in (size["width"] - 40, size["width"]):
        page.set_viewport_size({"width": width, "height": size["height"]})
        page.wait_for_timeout(500)
    return page.evaluate(DRAWN_WORDS, place)


def status(page: Any) -> str:
    """The report on the last thing that was done, which may be folded away."""
    return page.locator(".remat-status").text_content()


def await_status(page: Any, text: str, seconds: float = 60) -> None:
    page.locator(".remat-status", has_text=text).wait_for(state="attached", timeout=1000 * seconds)


def story(page: Any) -> str:
    return page.locator(".remat-story .sentence").inner_text()


def await_idle(page: Any, seconds: float = 60) -> None:
    page.wait_for_selector('.remat-status[data-busy=""]', state="attached", timeout=1000 * seconds)


def await_attribute(page: Any, name: str, value: Any, widget: str = "matrices") -> None:
    page.wait_for_selector(f'.remat-{widget}[data-{name}="{value}"]', state="attached")


def attribute(page: Any, name: str, widget: str = "matrices") -> str:
    return page.locator(f".remat-{widget}").get_attribute(f"data-{name}")


def stage(page: Any) -> int:
    return int(attribute(page, "stage"))


def click(page: Any, name: str) -> None:
    page.locator(".remat-controls").get_by_role("button", name=name).click()


def at_scene(page: Any, scene: int, caption: str) -> bool:
    await_attribute(page, "scene", scene, "presenter")
    page.locator(".remat-presenter .caption").filter(has_text=caption).wait_for()
    return True


def choose_tab(page: Any, name: str) -> None:
    tabs = page.locator(".remat-tabs")
    if name in TABS:
        tabs.get_by_role("tab", name=name, exact=True).click()
    else:
        tabs.locator("select").select_option(label=name)


def choose_picture(page: Any, name: str) -> None:
    page.locator(".remat-scrubber").get_by_role("tab", name=name, exact=True).click()


def choose_theme(page: Any, theme: str) -> None:
    page.evaluate(THEME, theme)
    await_attribute(page, "theme", theme.lower())


def open_more(page: Any) -> None:
    """Show the fields beyond model, batch and budget, which the browser may remember to be open."""
    more = page.locator(".remat-controls").get_by_role("button", name="⋯")
    if not page.locator(".remat-more").is_visible():
        more.click()
    page.wait_for_selector(".remat-more", state="visible")


def violations(page: Any, place: str = ".remat-explorer") -> list[str]:
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE)
    return page.evaluate(VIOLATIONS, place)


HEIGHTS = """() => [document.querySelector('.remat-explorer'), ...document.querySelectorAll('.remat-explorer > *')].map(
    (part) => [part.getAttribute('class'), part.getBoundingClientRect().height])"""


def heights(page: Any) -> list[tuple[str, float]]:
    """How high the explorer is, and each of its rows."""
    return [(classes.split()[-1], height) for classes, height in page.evaluate(HEIGHTS)]


def flawless(page: Any) -> bool:
    """Whether the page asked nobody outside for anything, and nothing failed in it."""
    assert page.leaks == [], page.leaks
    assert page.failures == [], page.failures
    return True


def show_in(notebook: LastingNotebook, explorer: str, *cells: str) -> Any:
    """The page of a notebook that is open already, with the explorer as it comes there, and more cells to run."""
    page = notebook.begin(CELL.format(explorer), *cells)
    show_again(page)
    return page


def show_again(page: Any) -> None:
    """Run the first cell, and wait for matrices and curve."""
    run_cell(page, 0)
    page.wait_for_function(ON_SCREEN)
    await_idle(page)
    page.keyboard.press("Escape")


def open_page(page: Any, path: Path, where: str = "") -> None:
    page.goto(path.as_uri() + where)
    page.wait_for_selector("body[data-ready][data-shown]")
    page.wait_for_selector('.remat-matrices[data-rows]:not([data-rows="0"])', state="attached")


def requested(page: Any) -> list[str]:
    """The addresses that a page will ask for from now on, but for those within it."""
    requests: list[str] = []
    inner = ("data:", "blob:")
    page.context.on("request", lambda asked: None if asked.url.startswith(inner) else requests.append(asked.url))
    return requests

"""How fast the explorer is: from the kernel to the screen, in JupyterLab in headless Chromium.

    python benchmarks/interface.py
    python benchmarks/interface.py --cases vgg16 densenet161    (measures these again, and keeps the others)
    python benchmarks/interface.py --cases first gpt2 --first-cell    (of these what a first cell takes, and a drag)

Medians in milliseconds, between the clock of the kernel when it changes the state (or of the page's event when the
budget is dragged, or the pointer moves) and that of the page when the canvas, the tip or the label is drawn. "350" is
a chain whose graph has about 350 operations; "choices" are implementations, whose colours R then has. Targets: stage
cursor 5 ms, a new matrix 15 ms, budget drag 16 ms, hovering over a matrix 5 ms (over the plots 100 ms, since plotly
waits up to 50 ms before it looks), the cursor of the memory map 16 ms and all of the map 50 ms (both from the key to
the end of drawing), first paint 5 s after the cell is run (and then the first schedule, without a target, as the model
is captured and measured), and four times that for DenseNet-161; memory after all interactions at most 10 % above that
after the first tenth of them. "first" is `rx.Explorer()`, as notebook 01 has it. "Next look" is the time from running
the cell in a new kernel, once the model has been explored on this machine, to the cells of the matrices and the
trade-off curve on the screen: 2 s. "Cold" is the same with an empty cache folder, nothing compiled: to the sentence
that says what is going on, 0.5 s after the page has the explorer's controls, and to the matrices. "CPU" is what kernel,
server and browser together have used by then, in seconds, which others on the machine hardly change: 4 s cold and 1.5 s
otherwise. "Drag, page" is the CPU time of the page's main thread for each step of a drag, from the pointer's event on,
what the kernel answers and JupyterLab itself included: 16 ms up to 600 operations. "Run it" is the time from the button
to the measured curve: 5 s. What misses its target is marked with *.
"stolen" is the share of the processor time this machine wanted that others on the same host took meanwhile. Thousands
of operations: benchmarks/folding.py.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from report import RESULTS, publish

sys.path.insert(0, str(Path(__file__).parents[1]))
from playwright.sync_api import sync_playwright

from remat_explorer.cli.terminal import find_chromium
from tests.browser.lab import browse, open_notebook, run, run_cell, serve, write_notebook

KEPT = RESULTS / "interface.json"
CASES = {
    "first": "rx.Explorer()",
    "350": 'rx.Explorer(graph=rx.linear(174), strategy="checkpoint-all")',
    "vgg16": 'rx.Explorer("vgg16")',
    "densenet161": 'rx.Explorer("densenet161", measured_costs=False)',
    "gpt2": 'rx.Explorer("gpt2", measured_costs=False)',
    "llama3_8b": 'rx.Explorer("llama3_8b", measured_costs=False)',
    "vgg16-choices": 'rx.Explorer("vgg16", implementations="all", measured_costs=False)',
}
COLOURED = 'explorer.state.colouring = "implementation" if explorer.state.graph.has_choices else "computation"'
TARGETS = {
    "cursor": 5.0,
    "matrix": 15.0,
    "drag": 16.0,
    "hover": 5.0,
    "plots": 100.0,
    "map cursor": 16.0,
    "map": 50.0,
    "paint": 5000.0,
    "schedule": math.inf,
    "look": 2000.0,
    "look CPU": 1.5,
    "cold": math.inf,
    "cold said": 500.0,
    "cold CPU": 4.0,
    "drag page": 16.0,
    "run it": 5000.0,
}
PAUSE = 0.5  # seconds between two changes: the plots, which are drawn last, are done before the next one
SLACK = {"densenet161": 4.0}
SHIPPED = "first"  # whose graph and schedules come with the package
FREE = {"cold CPU": set(CASES) - {SHIPPED}, "drag page": {"densenet161", "llama3_8b"}}  # cases without a target
SCREEN = """() => {
    const matrices = document.querySelector('.remat-matrices');
    return matrices && Number(matrices.dataset.rows) > 0 && matrices.querySelector('canvas').width > 0;
}"""
CONTROLS = "() => document.querySelector('.remat-controls button') !== null"
PLOTLY = "() => document.querySelectorAll('.js-plotly-plot .subplot.xy .scatterlayer .trace').length > 2"
CURVE = "() => Number(document.querySelector('.remat-curve')?.dataset.points) > 0"
SAID = "() => document.querySelector('.remat-status')?.textContent.length > 0"
# Milliseconds from now to the frames that show controls, words, matrices and curve, by the page's own clock.
SEEN = f"""() => {{
    const begun = performance.now();
    const parts = {{controls: {CONTROLS}, said: {SAID}, screen: {SCREEN}, curve: {CURVE}}};
    window.seen = {{}};
    const look = () => {{
        for (const [name, isThere] of Object.entries(parts))
            if (!(name in window.seen) && isThere()) window.seen[name] = performance.now() - begun;
        if (Object.keys(window.seen).length < 4) requestAnimationFrame(look);
    }};
    look();
}}"""
# Kernels of pages that were left go on with what they improve; a restarted kernel would not.
END_KERNELS = """async () => {
    const headers = {"X-XSRFToken": document.cookie.match(/_xsrf=([^;]+)/)[1]};
    for (const kernel of await (await fetch("/api/kernels")).json())
        await fetch(`/api/kernels/${kernel.id}`, {method: "DELETE", headers});
}"""
IDLE = "() => document.querySelector('.remat-status[data-busy=\"\"]') !== null"
# Every drawing on a canvas of the matrices leaves its time, by what it drew; so do tips and labels.
WATCH = """() => {
    window.drawn = {cursor: [], matrix: [], hover: [], plots: [], pointer: [], keys: []};
    const prototype = CanvasRenderingContext2D.prototype;
    const now = () => performance.timeOrigin + performance.now();
    const moved = (event) => window.drawn.pointer.push(performance.timeOrigin + event.timeStamp);
    document.addEventListener('pointermove', moved, true);
    const pressed = (event) => window.drawn.keys.push(performance.timeOrigin + event.timeStamp);
    document.addEventListener('keydown', pressed, true);
    const tips = new MutationObserver(() => window.drawn.hover.push(now()));
    tips.observe(document.querySelector('.remat-tip'), {childList: true});
    for (const [method, kind] of [['strokeRect', 'cursor'], ['putImageData', 'matrix']]) {
        const plain = prototype[method];
        prototype[method] = function (...given) {
            const result = plain.apply(this, given);
            if (this.canvas.closest('.remat-matrices') || kind === 'matrix') window.drawn[kind].push(now());
            return result;
        };
    }
}"""
WATCH_PLOTS = """() => document.querySelector('.js-plotly-plot').on('plotly_hover', () =>
    window.drawn.plots.push(performance.timeOrigin + performance.now()))"""
MOVE = """import json, time
stamps = []
for number in range({repeats}):
    stamps.append(1000 * time.time())
    explorer.state.stage = (7 * number + 1) % explorer.state.schedule.stages
    time.sleep({pause})
print("STAMPS" + json.dumps(stamps))"""
SWITCH = """from remat_explorer.explorer.controllers.screen import show_schedule
points = explorer.state.frontier.nondominated()
chosen = [points[0], points[len(points) // 2]]
plans = [solution.plan for solution in chosen]  # made ahead, as the sweep does
stamps = []
for number in range({repeats}):
    solution = chosen[number % 2]
    stamps.append(1000 * time.time())
    show_schedule(explorer.state, solution.schedule, solution)
    time.sleep({pause})
print("STAMPS" + json.dumps(stamps))"""
INTERACT = """import random, resource
draw = random.Random(0)
for _ in range({count}):
    choice = draw.randrange(3)
    if choice == 0:
        explorer.state.stage = draw.randrange(explorer.state.schedule.stages)
    elif choice == 1:
        explorer.state.value = draw.randrange(len(explorer.state.graph.values))
    else:
        explorer.state.budget = int(explorer.state.checkpoint_all_peak * draw.uniform(0.7, 1.0))
    time.sleep(0.01)
import psutil
print("STAMPS" + json.dumps([psutil.Process().memory_info().rss]))"""


# The memory map's own time, from a key to what is drawn for it: a step of the cursor, and other colours for everything.
MAP_KEYS = """async (repeats) => {
    const root = document.querySelector('.remat-map'), frame = root.querySelector('.remat-canvas');
    const press = (key) => frame.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
    const found = {'map cursor': [], map: []};
    for (let i = 0; i < repeats; i++) {
        let begun = performance.now();
        const stage = root.dataset.stage;
        press(i % 10 === 9 ? 'Home' : 'ArrowRight');
        if (root.dataset.stage !== stage) found['map cursor'].push(performance.now() - begun);
        await new Promise((done) => setTimeout(done, 50));
        const drawn = root.dataset.drawn;
        begun = performance.now();
        press('c');
        while (root.dataset.drawn === drawn) await Promise.resolve();
        found.map.push(performance.now() - begun);
        await new Promise((done) => setTimeout(done, 150));
    }
    return found;
}"""
EMPTY_CACHE = """import os, tempfile
os.environ["REMAT_EXPLORER_CACHE"] = os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp()"""
MAPPED = "() => Number(document.querySelector('.remat-map').dataset.rectangles) > 0"


def stamps(page: Any, cell: int) -> list[float]:
    """The numbers that a cell printed."""
    text = page.locator(".jp-CodeCell").nth(cell).locator(".jp-OutputArea").inner_text()
    return json.loads(text[text.rindex("STAMPS") + len("STAMPS") :])


def delays(page: Any, begun: list[float], kind: str) -> list[float]:
    """Milliseconds from each beginning to the last drawing before the next one, where there was one."""
    drawn = page.evaluate(f"window.drawn.{kind}")
    found = []
    for begin, end in zip(begun, [*begun[1:], begun[-1] + 2000], strict=True):
        within = [moment for moment in drawn if begin <= moment < end]
        if within:
            found.append(within[0] - begin)
    return found


def drag(page: Any, repeats: int) -> list[float]:
    """Milliseconds from the pointer's movement on the budget to the matrices that show the best schedule for it."""
    slider = page.locator(".remat-curve").first
    slider.scroll_into_view_if_needed()
    box, found = slider.bounding_box(), []
    height = box["y"] + 0.25 * box["height"]
    page.mouse.move(box["x"] + 0.9 * box["width"], height)
    page.mouse.down()
    for number in range(repeats):
        place = 0.3 + 0.6 * ((number * 7) % repeats) / repeats
        page.evaluate("window.drawn.matrix = []; window.drawn.pointer = []")
        page.mouse.move(box["x"] + place * box["width"], height)
        page.wait_for_timeout(400)
        moved, drawn = page.evaluate("[window.drawn.pointer, window.drawn.matrix]")
        if moved and drawn:
            found.append(drawn[0] - moved[0])
    page.mouse.up()
    return found


def hover(page: Any, kind: str, place: str, repeats: int) -> list[float]:
    """Milliseconds from a movement of the pointer over ``place`` to the words about what is there."""
    box = page.locator(place).first.bounding_box()
    page.evaluate(f"window.drawn.{kind} = []; window.drawn.pointer = []")
    for number in range(repeats):
        across, down = (0.25 + 0.6 * ((number * step) % repeats) / repeats for step in (7, 11))
        page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
        page.wait_for_timeout(150)
    return delays(page, page.evaluate("window.drawn.pointer"), kind)


def memory_map(page: Any, repeats: int) -> dict[str, list[float]]:
    """Milliseconds that the memory map takes for its cursor and for all of it; the matrices are back afterwards."""
    page.locator(".remat-scrubber").get_by_role("tab", name="Memory").click()
    page.wait_for_function(MAPPED, timeout=60_000)
    page.wait_for_timeout(3000)  # until a better placement has come, if there is one
    found = page.evaluate(MAP_KEYS, repeats)
    page.locator(".remat-scrubber").get_by_role("tab", name="Overview").click()
    page.wait_for_timeout(500)
    return found


def heap(page: Any) -> float:
    """Bytes of the page's JavaScript heap after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    return session.send("Runtime.getHeapUsage")["usedSize"]


def stolen(before: Any) -> float:
    """Share of processor time since then that this machine wanted and did not get."""
    spent = {name: end - begin for name, begin, end in zip(before._fields, before, psutil.cpu_times(), strict=True)}
    wanted = sum(seconds for name, seconds in spent.items() if name not in ("idle", "iowait"))
    return spent.get("steal", 0.0) / max(wanted, 1e-9)


def measure(page: Any, address: str, root: Path, case: str, options: argparse.Namespace) -> dict[str, Any]:
    """Every latency of one explorer."""
    few = {"repeats": options.repeats, "pause": PAUSE}
    cells = [
        "None",  # JupyterLab may drop what is run while the session is still attaching
        f"import remat_explorer as rx\nexplorer = {CASES[case]}\nexplorer",
        f"explorer.wait(), explorer.wait_for_sweep(120)\n{COLOURED}",
        MOVE.format(**few),
        SWITCH.format(**few),
        INTERACT.format(count=options.interactions // 10),
        INTERACT.format(count=options.interactions - options.interactions // 10),
    ]
    before = psutil.cpu_times()
    write_notebook(root / f"{case}.ipynb", cells)
    open_notebook(page, address, f"{case}.ipynb")
    run_cell(page, 0)
    begun = time.monotonic()
    page.locator(".jp-CodeCell .cm-content").nth(1).click()
    page.keyboard.press("Control+Enter")
    result: dict[str, Any] = {"operations": 0}
    for kind, ready in (("paint", CONTROLS), ("schedule", SCREEN)):
        page.wait_for_function(ready, timeout=120_000)
        result[kind] = [1000 * (time.monotonic() - begun)]
    page.wait_for_function(IDLE, timeout=120_000)
    run_cell(page, 2, 180)
    page.evaluate(WATCH)
    for kind, cell in (("cursor", 3), ("matrix", 4)):
        page.evaluate(f"window.drawn.{kind} = []")
        run_cell(page, cell, 180)
        result[kind] = delays(page, stamps(page, cell), kind)
    result["operations"] = int(page.locator(".remat-matrices").get_attribute("data-rows"))
    result["drag"] = drag(page, options.repeats)
    result["hover"] = hover(page, "hover", ".remat-canvas", options.repeats)
    page.locator(".remat-scrubber").get_by_role("tab", name="Plots").click()
    page.wait_for_function(PLOTLY, timeout=60_000)
    page.evaluate(WATCH_PLOTS)
    result["plots"] = hover(page, "plots", ".js-plotly-plot .subplot.x2y2", options.repeats)
    result |= memory_map(page, options.repeats)
    memory = []
    for cell in (5, 6):
        run_cell(page, cell, 600)
        page.wait_for_timeout(3000)  # until the page has drawn what came
        memory.append({"kernel": stamps(page, cell)[0], "page": heap(page)})
    result["memory"] = memory
    result["drag page"] = drag_page(page, options.repeats)
    result |= look(page, address, root, case)
    result["stolen"] = stolen(before)
    result["failures"], result["outside requests"] = list(page.failures), list(page.leaks)
    return result


def used() -> float:
    """Seconds of CPU time that everything has used that this program has started: server, kernels, browser."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:2])
    return total


def first_cell(page: Any, address: str, root: Path, case: str, is_cold: bool) -> tuple[dict[str, float], float]:
    """What is seen when, in milliseconds from running the cell in a new kernel, and CPU seconds up to the matrices."""
    page.evaluate(END_KERNELS)
    name = f"{case}-{'cold' if is_cold else 'again'}-{time.monotonic_ns()}.ipynb"
    cells = [EMPTY_CACHE if is_cold else "None", f"import remat_explorer as rx\nexplorer = {CASES[case]}\nexplorer"]
    write_notebook(root / name, cells)
    open_notebook(page, address, name)
    run_cell(page, 0)
    page.locator(".jp-CodeCell .cm-content").nth(1).click()
    page.wait_for_timeout(2000)  # until the page has come to rest
    page.evaluate(SEEN)
    before = used()
    page.keyboard.press("Control+Enter")
    page.wait_for_function("() => window.seen.screen", timeout=300_000)
    spent = used() - before
    if is_cold:
        page.wait_for_timeout(1000)
    else:
        page.wait_for_function("() => window.seen.curve", timeout=120_000)
        page.wait_for_function(IDLE, timeout=120_000)
    return page.evaluate("window.seen"), spent


def look(page: Any, address: str, root: Path, case: str, repeats: int = 3) -> dict[str, Any]:
    """First cells of what was explored before, and of what nobody has explored, on this machine."""
    again = [first_cell(page, address, root, case, False) for _ in range(repeats)]
    load = psutil.getloadavg()[0]
    found: dict[str, Any] = {"load": load, "look": [max(seen["screen"], seen["curve"]) for seen, _ in again]}
    found["look CPU"] = [spent for _, spent in again]
    cold = [first_cell(page, address, root, case, True) for _ in range(repeats)]
    found["cold"] = [seen["screen"] for seen, _ in cold]
    found["cold said"] = [seen["said"] - seen["controls"] for seen, _ in cold]
    found["cold curve"] = [seen.get("curve") for seen, _ in cold]  # none where it came later
    found["cold CPU"] = [spent for _, spent in cold]
    page.evaluate(END_KERNELS)
    return found


def drag_page(page: Any, repeats: int) -> list[float]:
    """Milliseconds of CPU time of the page's main thread for each step of a drag along the curve."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    box, found = page.locator(".remat-curve").bounding_box(), []
    height = box["y"] + 0.25 * box["height"]

    def busy() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(1000 * metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    page.mouse.move(box["x"] + 0.9 * box["width"], height)
    page.mouse.down()
    page.wait_for_timeout(1000)
    for number in range(repeats):
        before = busy()
        page.mouse.move(box["x"] + (0.3 + 0.6 * ((number * 7) % repeats) / repeats) * box["width"], height)
        page.wait_for_timeout(100)
        found.append(busy() - before)
    page.mouse.up()
    return found


def measure_first_cell(page: Any, address: str, root: Path, case: str, options: argparse.Namespace) -> dict[str, Any]:
    """What a first cell takes, and a drag."""
    write_notebook(root / "begin.ipynb", ["None", f"import remat_explorer as rx\nexplorer = {CASES[case]}\nexplorer"])
    open_notebook(page, address, "begin.ipynb")
    run_cell(page, 0)
    run_cell(page, 1)
    page.wait_for_function(f"() => ({SCREEN})() && ({CURVE})()", timeout=300_000)
    page.wait_for_function(IDLE, timeout=300_000)
    run(page, "explorer.wait_for_sweep(120)")
    page.wait_for_timeout(2000)
    found: dict[str, Any] = {"drag page": drag_page(page, options.repeats)}
    if case == SHIPPED:
        page.wait_for_function(IDLE, timeout=60_000)
        begun = time.monotonic()
        page.locator(".remat-controls").get_by_role("button", name="Run it").click()
        page.locator(".remat-story .chip", has_text="measured").first.wait_for(timeout=120_000)
        found["run it"] = [1000 * (time.monotonic() - begun)]
    return found | look(page, address, root, case)


def row(case: str, result: dict[str, Any]) -> list[str]:
    """The table's row."""
    cells = [case, str(result["operations"])]
    for kind, target in TARGETS.items():
        median = statistics.median(result[kind]) if result.get(kind) else float("nan")
        is_met = math.isnan(median) or median <= target * SLACK.get(case, 1.0) or case in FREE.get(kind, ())
        cells.append("" if math.isnan(median) else f"{median:.1f}{'' if is_met else '*'}")
    first, last = result["memory"]
    for part in ("kernel", "page"):
        growth = last[part] / first[part] - 1
        cells.append(f"{100 * growth:+.1f} %{'' if growth <= 0.1 else '*'}")
    load = f"{result['load']:.1f}" if "load" in result else ""
    return [*cells, f"{100 * result['stolen']:.1f} %", load]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), help="others stay as they were")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--first-cell", action="store_true", help="measure first cell and drag alone")
    parser.add_argument("--interactions", type=int, default=1000)
    options = parser.parse_args()
    chromium = find_chromium() or sys.exit("no browser was found")
    details = json.loads(KEPT.read_text())["details"] if KEPT.exists() else {}
    with tempfile.TemporaryDirectory() as place, serve(Path(place)) as address, sync_playwright() as playwright:
        for case in options.cases:
            with browse(playwright, Path(place) / f"profile-{case}", chromium) as page:
                if options.first_cell:
                    details[case] |= measure_first_cell(page, address, Path(place) / "root", case, options)
                else:
                    details[case] = measure(page, address, Path(place) / "root", case, options)
            print(" ".join(row(case, details[case])), details[case]["failures"], flush=True)
    rows = [row(case, details[case]) for case in CASES if case in details]
    columns = [
        "explorer",
        "n",
        "cursor",
        "matrix",
        "budget drag",
        "hover",
        "hover plots",
        "map cursor",
        "map",
        "first paint",
        "first schedule",
        "next look",
        "next look, CPU s",
        "cold",
        "cold, sentence",
        "cold, CPU s",
        "drag, page",
        "run it",
        "kernel memory",
        "page memory",
        "stolen",
        "load",
    ]
    publish("interface", columns, rows, details, repeats=options.repeats, interactions=options.interactions)


if __name__ == "__main__":
    main()

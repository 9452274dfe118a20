"""Pictures of the explorer in JupyterLab, in several sizes, light and dark, to be looked at one by one.

    python benchmarks/screenshots.py FOLDER
    python benchmarks/screenshots.py FOLDER --cases vgg16 comparing --sizes 1280x800 --themes light

Each case is brought about once; its page is given every size and theme then.

The picture of docs/explorer.md, docs/explorer.png, is that of the case "executed", 1280x800, light; docs/folding.png
is R and S of the case "folded-matrices" in the same size.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from playwright.sync_api import sync_playwright

from remat_explorer.cli.terminal import find_chromium
from tests.browser.explorer_page import choose_theme
from tests.browser.lab import browse, open_notebook, run_cell, serve, write_notebook

BEGIN = "import remat_explorer as rx\nexplorer = {}\nexplorer"
READY = "explorer.wait(120), explorer.wait_for_sweep(120)"
SOLVE = f"explorer.solve()\n{READY}\nexplorer.select(stage=explorer.state.schedule.stages * 2 // 3)"
SMALL = 'rx.Explorer("residual_net", batch=16, budget="62%")'
SENDS = 'rx.Explorer("residual_net", batch=16, budget="55%", transfers="5 GB/s", time_limit=15)'
MEASURED = 'rx.Explorer("residual_net", batch=64, budget="65%", measured_costs=True)'
CHOICES = 'rx.Explorer("residual_net", batch=16, budget="55%", implementations="all")'
CONVOLUTION = 'explorer.select(operation="blocks.1.convolution2 gradient of weight")\nexplorer.state.panel = "ways"'
UNET = 'rx.Explorer("unet", batch=8, measured_costs=False, budget="66%")'
DENSENET = 'rx.Explorer("densenet161", batch=16, measured_costs=False, budget="55%", time_limit=20)'
GPT2 = 'rx.Explorer("gpt2", measured_costs=False, budget="75%")'
MODEL = 'explorer.state.picture = "model"'
AGAIN = "[i for i, (_, k, _) in enumerate(runs) if k in [other for _, other, _ in runs[:i]]]"
PEAK = "line = explorer.state.plan.timeline\nexplorer.select(stage=int(line.stage[line.peak_statement]))"
DRAW = (  # slowly enough to be in the middle of it
    "run = next(w for w in explorer.children if hasattr(w, 'moments'))\n"
    "explorer.state.drawings += 1\nwith run.hold_sync():\n    run.duration = 6.0\n    run.drawings += 1"
)
RUNS = "runs = explorer.state.schedule.sequence"


def at_share(share: float) -> str:
    """A cell that brings the step to a share of its computations."""
    return f"{RUNS}\nexplorer.state.computation = int({share} * len(runs))"


CASES: dict[str, list[str]] = {
    "first": ["rx.Explorer()"],
    "mlp": ['rx.Explorer("mlp", budget="80%")', SOLVE],
    "vgg16": ['rx.Explorer("vgg16", batch=32, image=224, measured_costs=False, budget="75%")', SOLVE],
    "densenet161": [DENSENET, SOLVE],
    "model": [
        UNET,
        SOLVE,
        MODEL,
    ],
    "step-forward": [UNET, SOLVE, MODEL, at_share(0.2)],
    "step-full": [UNET, SOLVE, MODEL, PEAK],
    "step-again": [UNET, SOLVE, MODEL, f"{RUNS}\nexplorer.state.computation = {AGAIN}[0]"],
    "step-playing": [UNET, SOLVE, MODEL, at_share(0.6) + "\nexplorer.play()"],
    "step-large": [DENSENET, SOLVE, MODEL, at_share(0.7)],
    "zoomed": [
        DENSENET,
        SOLVE,
        'explorer.select(stage=1075)\nexplorer.state.zoom = (1040, 1110, 20, 90)\nexplorer.state.search = "conv2d"',
    ],
    "peak": [SMALL, SOLVE, 'explorer.state.panel = "peak"'],
    "solver": [SMALL, SOLVE, 'explorer.state.panel = "solver"'],
    "fit": [
        'explorer = rx.Explorer("llama3.2_1b", measured_costs=False, sweep=False)\nexplorer',
        f'{READY}\nexplorer.fit("24 GB", optimizer="adamw")\nexplorer.wait_for_fit(120)',
    ],
    "plan": [SMALL, SOLVE, 'explorer.state.panel = "plan"'],
    "memory": [SMALL, SOLVE, 'explorer.state.picture = "memory"'],
    "folded": [GPT2, SOLVE],
    "folded-matrices": [GPT2, SOLVE, 'explorer.state.picture = "matrices"'],
    "folded-model": [GPT2, SOLVE, MODEL],
    "folded-part": [GPT2, SOLVE, "explorer.unfold()\nexplorer.state.zoom = (0, 120, 0, 120)\nexplorer.fold()"],
    "memory-gpt2": [
        GPT2,
        SOLVE,
        'explorer.state.picture = "memory"\nexplorer.state.map_colours = "layer"',
    ],
    "moments": [SMALL, SOLVE, 'explorer.state.picture = "memory"\nexplorer.state.moment = 12'],
    "comparing": [
        SMALL,
        SOLVE,
        'other = rx.solve(explorer.state.graph, "75%", "linearized-greedy")\n'
        'explorer.compare(other)\nexplorer.state.panel = "compare"',
    ],
    "editing": [
        SMALL,
        f'{READY}\nexplorer.edit("everything")\nexplorer.drop(40, "blocks.0.norm1 batch_norm + relu [0]")\n'
        'explorer.state.panel = "edit"',
    ],
    "executed": [MEASURED, SOLVE, f'explorer.execute()\n{READY}\nexplorer.state.panel = "execution"'],
    "drawing": [SMALL, SOLVE, f"explorer.execute()\n{READY}", DRAW],
    "presented-first": [SMALL, SOLVE, "explorer.present()"],
    "presented-recomputation": [SMALL, SOLVE, "explorer.present()\nexplorer.state.scene = 3"],
    "presented-proof": [
        SMALL,
        SOLVE,
        f"explorer.present()\nexplorer.state.scene = 1\n{READY}\nexplorer.state.scene = 5\n{READY}",
    ],
    "implementations": [CHOICES, SOLVE, 'explorer.state.colouring = "implementation"', CONVOLUTION],
    "layers": [CHOICES, SOLVE, 'explorer.state.picture = "case"'],
    "sends": [SENDS, SOLVE],
    "infeasible": [SMALL, f"{READY}\nexplorer.state.budget = explorer.state.smallest.lower_bound * 9 // 10\n{SOLVE}"],
    "error": [SMALL, f"{READY}\nexplorer.state.image = 3\n{READY}"],
}
SIZES = {"1280x800": (1280, 800), "1440x900": (1440, 900), "1920x1080": (1920, 1080)}
OTHER_SIZES = {"700x900": (700, 900), "1280x700": (1280, 700), "900x800": (900, 800), "2560x1440": (2560, 1440)}


def bring_about(page: Any, address: str, root: Path, case: str) -> None:
    """Bring the explorer into the state of ``case``."""
    first, *rest = CASES[case]
    write_notebook(root / f"{case}.ipynb", [BEGIN.format(first), READY, *rest])
    open_notebook(page, address, f"{case}.ipynb")
    for number in range(2 + len(rest)):
        run_cell(page, number, 300)
    if (errors := page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']")).count():
        raise RuntimeError(f"{case}: {errors.first.inner_text()}")
    if page.locator(".remat-presenting").count() == 0:
        page.keyboard.press("Escape")


def photograph(page: Any, size: tuple[int, int], path: Path) -> None:
    """The page in a size, with the view on the explorer."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.wait_for_timeout(1000)
    page.locator(".remat-explorer").evaluate("root => root.scrollIntoView({block: 'start'})")
    page.wait_for_timeout(700)
    page.screenshot(path=path)
    print(path, page.locator(".remat-explorer").bounding_box(), page.leaks, page.failures, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--sizes", nargs="+", choices=[*SIZES, *OTHER_SIZES], default=list(SIZES))
    parser.add_argument("--themes", nargs="+", choices=["light", "dark"], default=["light", "dark"])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    chromium = find_chromium() or sys.exit("no browser was found")
    with tempfile.TemporaryDirectory() as place, serve(Path(place)) as address, sync_playwright() as playwright:
        for case in options.cases:
            with browse(playwright, Path(place) / f"profile-{case}", chromium) as page:
                bring_about(page, address, Path(place) / "root", case)
                for theme in options.themes:
                    choose_theme(page, theme.capitalize())
                    for size in options.sizes:
                        pixels = (SIZES | OTHER_SIZES)[size]
                        photograph(page, pixels, options.folder / f"{case}-{size}-{theme}.png")
                page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")


if __name__ == "__main__":
    main()

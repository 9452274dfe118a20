"""The three live parts of the demo as pages that need nothing but a browser: `python -m tools.website.demo_pages`.

They lie in docs/live, in the order of the demo, and `make demo` opens them. Nothing is measured on them, so the last
scene of the U-Net, which runs it, is left out.
"""

from __future__ import annotations

from pathlib import Path

import remat_explorer as rx
from remat_explorer.explorer.live_page import live_page
from remat_explorer.explorer.presentations import PRESENTATIONS

FOLDER = Path(__file__).parents[2] / "docs" / "live"
SECONDS = 20  # of the search for each budget
BUDGETS = {"checkmate-figure-1": ["30%", "40%", "60%", "80%", "100%"], "unet": ["65%", "70%", "75%", "85%", "100%"]}
NAMES = {"checkmate-figure-1": "2-thirty-two-layers.html", "unet": "3-unet.html"}


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    chain = rx.sweep(rx.linear(8))
    live_page(chain, begin=(5, 10, 6)).save(FOLDER / "1-chain.html")
    for name, budgets in BUDGETS.items():
        shown = PRESENTATIONS[name]
        sizes = {key: shown.settings[key] for key in ("batch", "image")}
        curve = rx.sweep(rx.models.load(shown.model, **sizes).graph, budgets, time_limit=SECONDS)
        scenes = [scene for scene in shown.scenes if not scene.execute]
        live_page(curve, scenes=scenes).save(FOLDER / NAMES[name])


if __name__ == "__main__":
    main()

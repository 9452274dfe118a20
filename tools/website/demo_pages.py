"""The three live parts of the demo as pages that need nothing but a browser: `python -m tools.website.demo_pages`.

They lie in docs/live, in the order of the demo, and `make demo` opens them. Nothing is measured on them, so the last
scene of the U-Net, which runs it, is left out. Each says by what it was made, so that a test finds a stale one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import remat_explorer as rx
from remat_explorer.explorer.live_page import HERE, STYLES, LivePage, live_page, page_script
from remat_explorer.explorer.presentations import PRESENTATIONS

FOLDER = Path(__file__).parents[2] / "docs" / "live"
SECONDS = 20  # of the search for each budget
BUDGETS = {"checkmate-figure-1": ["30%", "40%", "60%", "80%", "100%"], "unet": ["65%", "70%", "75%", "85%", "100%"]}
NAMES = {"checkmate-figure-1": "2-thirty-two-layers.html", "unet": "3-unet.html"}
MADE_BY = (*STYLES, "live_page.html", "live_page.py", "recording.py", "recorded_points.py", "presentations.py")


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    chain = rx.sweep(rx.linear(8))
    stamped(live_page(chain, begin=(5, 10, 6))).save(FOLDER / "1-chain.html")
    for name, budgets in BUDGETS.items():
        shown = PRESENTATIONS[name]
        sizes = {key: shown.settings[key] for key in ("batch", "image")}
        curve = rx.sweep(rx.models.load(shown.model, **sizes).graph, budgets, time_limit=SECONDS)
        scenes = [scene for scene in shown.scenes if not scene.execute]
        stamped(live_page(curve, scenes=scenes)).save(FOLDER / NAMES[name])


def stamped(page: LivePage) -> LivePage:
    """The page with the digest of what it was made by."""
    return LivePage(page.title, page.text.replace("<!doctype html>", f"<!doctype html>{stamp()}", 1))


def stamp() -> str:
    """A comment with the SHA-256 of the pages' script, styles and text, and of the Python that fills them."""
    sources = [page_script(), *((HERE / name).read_text("utf-8") for name in MADE_BY)]
    settings = repr((SECONDS, BUDGETS, NAMES))
    return f"<!-- made by {hashlib.sha256(chr(0).join([*sources, settings]).encode()).hexdigest()} -->"


def stale() -> list[str]:
    """The pages that other code has made than today's, by name."""
    return [path.name for path in sorted(FOLDER.glob("*.html")) if stamp() not in path.read_text("utf-8")[:200]]


if __name__ == "__main__":
    main()

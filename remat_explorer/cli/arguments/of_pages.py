"""Options of the commands that serve the explorer."""

from __future__ import annotations

import argparse

from remat_explorer.cli.arguments.types import count, minutes, port


def app_options(child: argparse.ArgumentParser) -> None:
    files = "model files to choose from, besides the models by name; choosing one runs it"
    child.add_argument("files", nargs="*", metavar="FILE.py:FUNCTION", help=files)
    child.add_argument("--port", type=port, default=8866, help="port, or the next free one (default: 8866)")
    child.add_argument(
        "--theme", choices=("light", "dark"), default="light", help="colours of the page (default: light)"
    )
    child.add_argument("--no-browser", action="store_true", help="only print the address")
    child.add_argument("--without-token", action="store_true", help="let everybody on this machine open the page")
    names = "serve under this name, too, such as that of a proxy; may be repeated (default: this machine's own)"
    child.add_argument("--allow-host", action="append", default=[], metavar="NAME", help=names)
    anything = "let people at the page run any model file of this machine"
    child.add_argument("--allow-model-files", action="store_true", help=anything)
    child.add_argument("--allow-saving", action="store_true", help="let people at the page save files in this folder")
    paths = "let people at the page open solution files by their path"
    child.add_argument("--allow-paths", action="store_true", help=paths)
    pages = "pages that may be open at a time; each takes 370 to 600 MB (default: 4)"
    child.add_argument("--max-kernels", type=count, default=4, metavar="N", help=pages)
    idle = "end kernels that nobody has used for this time; 0 for never (default: 120)"
    child.add_argument("--idle-minutes", type=minutes, default=120.0, metavar="MINUTES", help=idle)


def lab_options(child: argparse.ArgumentParser) -> None:
    child.add_argument("notebook", nargs="?", help="default: notebooks/01_explorer.ipynb, or a new one")
    child.add_argument("--port", type=port, default=8888)
    child.add_argument("--no-browser", action="store_true", help="only print the address")

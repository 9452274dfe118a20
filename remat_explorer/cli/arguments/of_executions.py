"""Options of the commands that execute a schedule or report one."""

from __future__ import annotations

import argparse

from remat_explorer.cli.arguments.types import count, few


def run_options(child: argparse.ArgumentParser) -> None:
    execution_options(child)
    child.add_argument("--hard-cap", action="store_true", help="refuse more memory than the budget (CUDA: enforced)")
    child.add_argument("--trace", metavar="TRACE.json", help="write the run as a trace for ui.perfetto.dev")
    child.add_argument("--snapshot", metavar="FILE", help="write PyTorch's memory snapshot of the run (CUDA)")


def report_options(child: argparse.ArgumentParser) -> None:
    child.add_argument("-o", "--output", required=True, metavar="REPORT.html", help="file to write")
    points = "add a trade-off curve of N budgets (default: 12)"
    child.add_argument("--execute", action="store_true", help="measure costs, execute the schedule, and validate it")
    execution_options(child)
    child.add_argument("--sweep", nargs="?", type=count, const=12, default=0, metavar="N", help=points)
    alive = "instead of the report, a page on which the curve of --sweep can be explored without Python"
    child.add_argument("--interactive", action="store_true", help=alive)
    child.add_argument("--no-source", action="store_true", help="leave the lines of the model's code out of that page")
    child.add_argument("--open", action="store_true", help="open the file in a browser")


def execution_options(child: argparse.ArgumentParser) -> None:
    child.add_argument("--device", default="auto", help="where to execute: auto, cpu or cuda (default: auto)")
    child.add_argument("--repeats", type=few, default=3, help="timed repeats, median shown (default: 3)")
    child.add_argument("--refresh", action="store_true", help="measure costs again instead of taking cached ones")

"""Options of the commands that search: for a schedule, a curve, a batch, or a budget."""

from __future__ import annotations

import argparse

from remat_explorer.cli.arguments.types import count, few, overhead, seconds
from remat_explorer.cli.strategy_options import named_value


def solver_options(*children: argparse.ArgumentParser) -> None:
    for child in children:
        child.add_argument("--budget", required=True, help='bytes, "1.5 GiB", "60%%" or "smallest"')
        child.add_argument(
            "--budget-means",
            choices=("requested", "reserved"),
            default="requested",
            help="bytes of tensors and workspace (default), or what PyTorch's allocator takes for them on a GPU",
        )
        child.add_argument(
            "--strategy", help="a name that `strategies` lists (default: optimal, or monet to choose implementations)"
        )
        child.add_argument(
            "--option",
            dest="strategy_options",
            type=named_value,
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="option of the strategy, as `strategies` lists them; may be repeated",
        )
        child.add_argument(
            "--time-limit", type=seconds, default=60.0, metavar="SECONDS", help="for the search (default: 60)"
        )
        child.add_argument("--solver", default="highs", help="highs, cbc or gurobi (default: highs)")
        child.add_argument(
            "--threads", type=few, help="threads of the solver (default: 2 for optimal on two cores, else 1)"
        )
        child.add_argument("--no-cache", action="store_true", help="solve anew, and keep no answer for the next time")


def sweep_options(child: argparse.ArgumentParser) -> None:
    child.add_argument("-o", "--output", metavar="SWEEP.json", help="write the points with their schedules")
    child.add_argument("--budgets", default="12", help='how many, or a list: "60%%,70%%,8 GiB" (default: 12)')
    child.add_argument(
        "--strategies", help="names with commas (default: optimal, or monet where there are implementations to choose)"
    )
    child.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS", help="for each point (default: by the size of the graph)"
    )
    child.add_argument("--workers", type=few, metavar="N", help="processes (default: as many as there are cores)")
    child.add_argument("--solver", default="highs", help="highs, cbc or gurobi (default: highs)")
    child.add_argument("--threads", type=few, default=1, help="threads of each worker's solver (default: 1)")
    child.add_argument("--no-cache", action="store_true", help="search anew, and keep no point for the next time")


def ablation_options(child: argparse.ArgumentParser) -> None:
    child.add_argument("-o", "--output", metavar="ABLATION.json", help="write the points with their schedules")
    child.add_argument("--figure", metavar="FIGURE.html", help="write the curves as a page")
    child.add_argument("--budgets", default="5", help='how many, or a list: "80%%,65%%,8 GiB" (default: 5)')
    child.add_argument(
        "--kinds", dest="implementations", metavar="KINDS", help="exact, all (default), or names with commas"
    )
    child.add_argument(
        "--time-limit", type=seconds, default=10.0, metavar="SECONDS", help="for each point (default: 10)"
    )
    child.add_argument("--solver", default="highs", help="highs, cbc or gurobi (default: highs)")
    child.add_argument("--threads", type=few, help="threads of the solver (default: 2 on two cores)")
    child.add_argument("--no-cache", action="store_true", help="search anew, and keep no point for the next time")


def max_batch_options(child: argparse.ArgumentParser) -> None:
    limit = 'cost beyond keeping everything: "one extra forward" (default), "10%%", a ratio such as 1.3, or none'
    child.add_argument(
        "--memory", required=True, help='what the step must fit into: bytes, "16 GB" (16 * 10 ** 9) or "16 GiB"'
    )
    child.add_argument("--overhead-limit", default="one extra forward", metavar="LIMIT", help=limit)
    child.add_argument("--vary", choices=("batch", "image"), default="batch", help="what to enlarge (default: batch)")
    child.add_argument("--step", type=count, help="image sides are multiples of this (default: 32)")
    child.add_argument("--larger", metavar="GRAPH.json", help="the graph file at a larger batch, to measure what grows")
    child.add_argument(
        "--batches", type=count, nargs=2, metavar="N", help="batch sizes of the two graph files (default: 1 2)"
    )
    child.add_argument(
        "--time-limit", type=seconds, default=60.0, metavar="SECONDS", help="for the search (default: 60)"
    )
    child.add_argument("--solver", default="highs", help="highs or cbc (default: highs)")
    child.add_argument("-o", "--output", metavar="SOLUTION.json", help="write the schedule")


def fit_options(child: argparse.ArgumentParser) -> None:
    child.add_argument("--memory", required=True, help='memory of the device: bytes, "24 GB" or "24 GiB"')
    child.add_argument("--optimizer", default="adamw", metavar="NAME", help="sgd, adam, adam8bit, … (default: adamw)")
    copies = "keep a float32 copy of parameters in half precision, and states in float32"
    child.add_argument("--master-weights", action="store_true", help=copies)
    child.add_argument("--full-gradients", action="store_true", help="keep gradients in float32")
    child.add_argument(
        "--time-limit",
        type=seconds,
        default=12.0,
        metavar="SECONDS",
        help="for the search, after the capture (default: 12)",
    )
    child.add_argument("-o", "--output", metavar="SOLUTION.json", help="write the schedule")
    child.add_argument(
        "--graph", metavar="GRAPH.json", help="write the graph of the step, with what the optimizer keeps"
    )


def minimum_budget_options(child: argparse.ArgumentParser) -> None:
    limit = "find the least memory for at most this cost beyond keeping everything, such as 10%% (default: any)"
    child.add_argument("--overhead", type=overhead, metavar="SHARE", help=limit)
    child.add_argument("-o", "--output", metavar="SOLUTION.json", help="write the schedule")
    child.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS", help="for the search (default: 10, or 60 with --overhead)"
    )

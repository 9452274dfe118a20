"""The options of the commands, and how numbers are written in them; argparse says which option a message is about."""

from __future__ import annotations

import argparse
import math

from remat_explorer.cli.solve_progress import named_value
from remat_explorer.errors import shown


def count(text: str) -> int:
    """A whole number of at least 1."""
    return _whole(text, 2**31 - 1)


def few(text: str) -> int:
    """A whole number from 1 to 1024: of threads, processes or repeats."""
    return _whole(text, 1024)


def port(text: str) -> int:
    """A number of a TCP port."""
    return _whole(text, 65535)


def seconds(text: str) -> float:
    """A time of at least 0; "inf" is one."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number >= 0:  # nor is what is not a number
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number of seconds")
    return number


def minutes(text: str) -> float:
    """A time of at least 0, and not for ever."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number of minutes; 0 is for never")
    return number


def _whole(text: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text[-4000:]) < 1:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a whole number of at least 1")
    if len(text.lstrip("0")) > len(str(most)) or int(text[-4000:]) > most:
        raise argparse.ArgumentTypeError(f"{shown(text)} is more than {most}")
    return int(text[-4000:])


def overhead(text: str) -> float:
    """A share of at least 0, or so many percent.

    >>> overhead("10%"), overhead("0.1")
    (0.1, 0.1)
    """
    number, percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = math.nan
    if rest or not 0 <= share < math.inf:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no overhead; write 10% or 0.1 for a tenth")
    return share


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


def model_options(*children: argparse.ArgumentParser) -> None:
    for child in children:
        graph_too = child.prog.endswith(("show", "solve", "sweep", "ablation", "max-batch", "minimum-budget", "report"))
        child.add_argument("model", metavar="MODEL|GRAPH.json" if graph_too else "MODEL")
        child.add_argument("--batch", type=count, help="batch size (default: the model's own)")
        child.add_argument("--image", type=count, help="side of the square input image in pixels")
        child.add_argument("--sequence", type=count, help="tokens of an example (default: the published number)")
        child.add_argument("--layers", type=count, help="blocks of the model (default: the published number)")
        either = argparse.BooleanOptionalAction
        child.add_argument("--tied", action=either, help="the embedding is the head's weight (default: as published)")
        child.add_argument("--precision", metavar="NAME", help="float32 (default), bfloat16 or autocast")


def cost_options(*children: argparse.ArgumentParser) -> None:
    for child in children:
        of_costs = "device whose published rates give costs: A100, A100-roofline, … (default: cpu)"
        child.add_argument("--costs", metavar="DEVICE", help=of_costs)


def capture_options(*children: argparse.ArgumentParser) -> None:
    either = argparse.BooleanOptionalAction
    for child in children:
        child.add_argument("--optimizer", metavar="NAME", help="count the state of sgd, momentum or adam as resident")
        child.add_argument(
            "--contract", action=either, help="join operations where nothing is lost (policy: not by default)"
        )
        child.add_argument(
            "--split-convolution-backward", action=either, help="separate a convolution's input gradient (default)"
        )


def implementation_options(*children: argparse.ArgumentParser) -> None:
    for child in children:
        child.add_argument(
            "--implementations",
            metavar="KINDS",
            help="alternatives to choose among: exact (bit-equal), all, or kinds with commas (default: none)",
        )


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


def solver_options(*children: argparse.ArgumentParser) -> None:
    for child in children:
        child.add_argument("--budget", required=True, help='bytes, "1.5 GiB", "60%%", "smallest", "40%% of the way"')
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


def transfer_options(*children: argparse.ArgumentParser) -> None:
    for child in children:
        rate = 'also copy values to the host: "25 GB/s", "25 GB/s out, 20 GB/s back", or a link: pcie4, nvme, …'
        child.add_argument("--offload", metavar="BANDWIDTH", help=rate)
        child.add_argument("--host-memory", metavar="BYTES", help="the host's room for copies (default: any)")


def sweep_options(child: argparse.ArgumentParser) -> None:
    child.add_argument("-o", "--output", metavar="SWEEP.json", help="write the points with their schedules")
    child.add_argument("--budgets", default="12", help='how many, or a list: "smallest,40%% of the way" (default: 12)')
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

"""Commands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

import remat_explorer as rx
from remat_explorer.cli.ablation import ablation
from remat_explorer.cli.app import app
from remat_explorer.cli.cache import CACHED, cache
from remat_explorer.cli.capture import capture
from remat_explorer.cli.doctor import doctor
from remat_explorer.cli.fit import fit
from remat_explorer.cli.lab import lab
from remat_explorer.cli.max_batch import max_batch
from remat_explorer.cli.minimum_budget import minimum_budget
from remat_explorer.cli.models import models
from remat_explorer.cli.output import BAD_INPUT
from remat_explorer.cli.papers import papers
from remat_explorer.cli.policy import policy
from remat_explorer.cli.report import report
from remat_explorer.cli.run import run
from remat_explorer.cli.shell.argument_types import count, few, minutes, overhead, port, seconds
from remat_explorer.cli.shell.streams import tell
from remat_explorer.cli.show import show
from remat_explorer.cli.solve import solve
from remat_explorer.cli.strategies import strategies
from remat_explorer.cli.strategy_options import named_value
from remat_explorer.cli.sweep import sweep

EXAMPLES = """examples:
  remat-explorer models
  remat-explorer strategies
  remat-explorer capture vgg16 --batch 32 -o vgg16.json
  remat-explorer capture vgg16 --costs A100 --optimizer adam -o vgg16.json
  remat-explorer capture gpt2 --device cuda --costs H100 -o gpt2.json
  remat-explorer capture path/to/file.py:make_model -o graph.json
  remat-explorer show vgg16.json --top 5
  remat-explorer solve vgg16.json --budget 60% -o schedule.json
  remat-explorer solve unet --budget "1.5 GiB" --strategy checkmate-ilp --solver cbc --time-limit 120
  remat-explorer solve vgg16.json --budget 80% --strategy pytorch-budget --option activation_memory_budget=0.4
  remat-explorer solve residual_net --implementations exact --budget 60%
  remat-explorer sweep unet --budgets 12 -o curve.json
  remat-explorer ablation residual_net --budgets "80%,65%" --kinds masks,pooling
  remat-explorer max-batch resnet50 --memory "16 GB" --overhead-limit "one extra forward"
  remat-explorer max-batch vgg16 --vary image --batch 8 --memory "16 GB"
  remat-explorer fit llama3_8b --memory "80 GB" --optimizer adamw --costs A100 -o plan.json
  remat-explorer minimum-budget vgg16.json
  remat-explorer minimum-budget residual_net --overhead 10% --implementations all
  remat-explorer policy gpt2 --batch 2 --sequence 64 --budget 80% -o policy.json
  remat-explorer policy --loader -o policy_loader.py
  remat-explorer run residual_net --batch 32 --budget 60% --device cpu
  remat-explorer report residual_net --batch 32 --budget 60% --execute --sweep -o report.html
  remat-explorer papers
  remat-explorer papers checkmate-figure-6 --full -o figure.html
  remat-explorer cache list
  remat-explorer doctor
  remat-explorer app --theme dark
  remat-explorer lab

A MODEL is a name that `models` lists, or path/to/file.py:function. The function takes no arguments and returns
(model, args), (model, args, kwargs) or (model, args, kwargs, loss), as remat_explorer.capture takes them.

A budget counts everything on the device, parameters included: bytes, "1.5 GiB", or a share of the checkpoint-all
peak such as 60%. Ctrl-C ends a solve with the best schedule so far. Exit codes: 0 done, 1 the execution contradicted
the prediction, 2 infeasible, 3 not solved to proven optimality in time or interrupted (the best schedule is still
written), 64 bad input, 69 something that is needed is missing (doctor), 130 interrupted before a schedule was
found."""


class _Parser(argparse.ArgumentParser):
    """argparse leaves with 2, which here means infeasible."""

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse `--option=--`, of which argparse makes an empty list, whatever the option is."""
        given = list(arg_strings)
        values = super()._get_values(action, arg_strings)
        if action.nargs is None and values == []:
            raise argparse.ArgumentError(action, f"{' '.join(given)!r} is no value")
        return values

    def error(self, message: str) -> NoReturn:
        tell(f"{self.format_usage()}{self.prog}: {message}")
        raise SystemExit(BAD_INPUT)


def make_parser() -> argparse.ArgumentParser:
    """The parser; what it parsed has the function of its command as ``command``.

    >>> make_parser().parse_args(["solve", "vgg16", "--budget", "60%"]).budget
    '60%'
    """
    layout = argparse.RawDescriptionHelpFormatter
    parser = _Parser(prog="remat-explorer", description=rx.__doc__, epilog=EXAMPLES, formatter_class=layout)
    parser.add_argument("--version", action="version", version=f"remat-explorer {rx.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], summary: str) -> argparse.ArgumentParser:
        child = commands.add_parser(name, help=summary, description=summary, epilog=EXAMPLES, formatter_class=layout)
        child.set_defaults(command=run)
        return child

    list_models = command("models", models, "List the models that can be captured by name.")
    list_strategies = command("strategies", strategies, "List the methods, what they can do, and their options.")
    to_capture = command("capture", capture, "Capture a model's training graph without allocating tensors.")
    to_show = command("show", show, "Show what a model or graph file holds: memory, heaviest values, costs.")
    to_solve = command("solve", solve, "Find the cheapest schedule of a model or graph file within a budget.")
    to_sweep = command("sweep", sweep, "Find the trade-off between memory and cost: many budgets, shared work.")
    to_ablate = command("ablation", ablation, "Find what each kind of alternative implementations is worth.")
    to_enlarge = command("max-batch", max_batch, "Find the largest batch, or image, that fits into a memory.")
    to_fit = command("fit", fit, "Say whether a training step fits into a memory, and how large it may be.")
    to_bound = command("minimum-budget", minimum_budget, "Find the smallest budget with a schedule, and what needs it.")
    to_advise = command("policy", policy, "Find the best checkpoints of PyTorch's own, for code that does not use us.")
    to_run = command("run", run, "Profile, solve, execute on the device, and compare with the prediction.")
    to_report = command("report", report, "Solve, and write one HTML file that shows everything about the answer.")
    of_papers = command("papers", papers, "List the papers' figures, tables and numbers, or regenerate one.")
    to_cache = command("cache", cache, "List or clear what is kept from earlier solves and profiles.")
    to_examine = command("doctor", doctor, "Say what is installed here and works: versions, devices, solvers, cache.")
    _app_options(command("app", app, "Serve the explorer alone, as a page of this machine, without code."))
    _lab_options(command("lab", lab, "Open JupyterLab on the explorer."))
    _model_options(
        to_capture, to_show, to_solve, to_sweep, to_ablate, to_enlarge, to_bound, to_advise, to_run, to_report
    )
    to_capture.add_argument("-o", "--output", required=True, metavar="GRAPH.json")
    whose = "whose kernels: cpu (default), cuda (a device need not be there), or auto"
    to_capture.add_argument("--device", default="cpu", help=whose)
    to_show.add_argument("--top", type=count, default=10, metavar="N", help="rows of each list (default: 10)")
    _cost_options(to_capture, to_show, to_solve, to_sweep, to_ablate, to_enlarge, to_bound, to_advise, to_report)
    _capture_options(
        to_capture, to_show, to_solve, to_sweep, to_ablate, to_enlarge, to_bound, to_advise, to_run, to_report
    )
    _implementation_options(to_capture, to_show, to_solve, to_sweep, to_bound, to_run, to_report)
    for child in (to_enlarge, to_advise):
        child.set_defaults(implementations=None)
    _solver_options(to_solve, to_advise, to_run, to_report)
    _sweep_options(to_sweep)
    _ablation_options(to_ablate)
    _max_batch_options(to_enlarge)
    _minimum_budget_options(to_bound)
    _model_options(to_fit)
    _cost_options(to_fit)
    _fit_options(to_fit)
    loader = "print, or write, the program that reads a policy, which needs torch alone, and do nothing else"
    to_advise.add_argument("--loader", action="store_true", help=loader)
    _run_options(to_run)
    _report_options(to_report)
    _papers_options(of_papers)
    to_cache.add_argument("action", choices=("list", "clear"))
    to_cache.add_argument("kind", nargs="?", choices=tuple(CACHED), help="default: all")
    working = (
        to_capture,
        to_show,
        to_solve,
        to_sweep,
        to_ablate,
        to_enlarge,
        to_fit,
        to_bound,
        to_advise,
        to_run,
        to_report,
    )
    for child in (list_models, list_strategies, of_papers, *working, to_cache, to_examine):
        child.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _model_options(*children: argparse.ArgumentParser) -> None:
    for child in children:
        graph_too = child.prog.endswith(("show", "solve", "sweep", "ablation", "max-batch", "minimum-budget", "report"))
        advises = child.prog.endswith("policy")  # which may be asked for its loader alone
        child.add_argument(
            "model", metavar="MODEL|GRAPH.json" if graph_too else "MODEL", nargs="?" if advises else None
        )
        child.add_argument("--batch", type=count, help="batch size (default: the model's own)")
        child.add_argument("--image", type=count, help="side of the square input image in pixels")
        child.add_argument("--sequence", type=count, help="tokens of an example (default: as many as were published)")
        child.add_argument("--layers", type=count, help="blocks of the model (default: as many as were published)")
        either = argparse.BooleanOptionalAction
        child.add_argument("--tied", action=either, help="the embedding is the head's weight (default: as published)")
        child.add_argument("--precision", metavar="NAME", help="float32 (default), bfloat16 or autocast")


def _cost_options(*children: argparse.ArgumentParser) -> None:
    for child in children:
        of_costs = "whose published rates give costs: cpu, A100, A100-roofline, … (cpu)"
        child.add_argument("--costs", metavar="DEVICE", help=of_costs)


def _capture_options(*children: argparse.ArgumentParser) -> None:
    either = argparse.BooleanOptionalAction
    for child in children:
        child.add_argument("--optimizer", metavar="NAME", help="count the state of sgd, momentum or adam as resident")
        default = "" if child.prog.endswith("policy") else " (default)"
        child.add_argument("--contract", action=either, help=f"join operations where nothing is lost{default}")
        child.add_argument(
            "--split-convolution-backward", action=either, help="separate a convolution's input gradient (default)"
        )


def _implementation_options(*children: argparse.ArgumentParser) -> None:
    for child in children:
        child.add_argument(
            "--implementations",
            metavar="KINDS",
            help="alternatives to choose among: exact (bit-equal), all, or kinds with commas (default: none)",
        )


def _solver_options(*children: argparse.ArgumentParser) -> None:
    for child in children:
        if child.prog.endswith("report"):
            child.add_argument("-o", "--output", required=True, metavar="REPORT.html")
        else:
            written = ("POLICY.json", "policy") if child.prog.endswith("policy") else ("SOLUTION.json", "schedule")
            child.add_argument("-o", "--output", metavar=written[0], help=f"write the {written[1]}")
        child.add_argument(
            "--budget", required=not child.prog.endswith("policy"), help='bytes, "1.5 GiB", "60%%" or "smallest"'
        )
        child.add_argument(
            "--budget-means",
            choices=("requested", "reserved"),
            default="requested",
            help="bytes of tensors and workspace (default), or what PyTorch's allocator on a GPU takes for them",
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
            help="of the strategy, as `strategies` lists them; may be repeated",
        )
        child.add_argument("--time-limit", type=seconds, default=60.0, metavar="SECONDS", help="default: 60")
        child.add_argument("--solver", default="highs", help="highs, cbc or gurobi (default: highs)")
        child.add_argument("--threads", type=few, help="of the solver (default: 2 for optimal on two cores, else 1)")
        child.add_argument("--no-cache", action="store_true", help="solve anew, and keep no answer for the next time")


def _sweep_options(child: argparse.ArgumentParser) -> None:
    child.add_argument("-o", "--output", metavar="SWEEP.json", help="write the points with their schedules")
    child.add_argument("--budgets", default="12", help='how many, or a list: "60%%,70%%,8 GiB" (default: 12)')
    child.add_argument(
        "--strategies", help="with commas (default: optimal, or monet where there are implementations to choose)"
    )
    child.add_argument("--time-limit", type=seconds, metavar="SECONDS", help="of each point (default: seconds in all)")
    child.add_argument("--workers", type=few, metavar="N", help="processes (default: as many as there are cores)")
    child.add_argument("--solver", default="highs", help="highs, cbc or gurobi (default: highs)")
    child.add_argument("--threads", type=few, default=1, help="threads of each worker's solver (default: 1)")
    child.add_argument("--no-cache", action="store_true", help="search anew, and keep no point for the next time")


def _ablation_options(child: argparse.ArgumentParser) -> None:
    child.add_argument("-o", "--output", metavar="ABLATION.json", help="write the points with their schedules")
    child.add_argument("--figure", metavar="FIGURE.html", help="write the curves as a page")
    child.add_argument("--budgets", default="5", help='how many, or a list: "80%%,65%%,8 GiB" (default: 5)')
    child.add_argument("--kinds", dest="implementations", metavar="KINDS", help="exact, all (default), or with commas")
    child.add_argument(
        "--time-limit", type=seconds, default=10.0, metavar="SECONDS", help="of each point (default: 10)"
    )
    child.add_argument("--solver", default="highs", help="highs, cbc or gurobi (default: highs)")
    child.add_argument("--threads", type=few, help="of the solver (default: 2 where there are two cores)")
    child.add_argument("--no-cache", action="store_true", help="search anew, and keep no point for the next time")


def _max_batch_options(child: argparse.ArgumentParser) -> None:
    limit = 'cost beyond keeping everything: "one extra forward" (default), "10%%", a ratio such as 1.3, or none'
    child.add_argument("--memory", required=True, help='bytes, "16 GB" (10 ** 9 bytes each) or "16 GiB"')
    child.add_argument("--overhead-limit", default="one extra forward", metavar="LIMIT", help=limit)
    child.add_argument("--vary", choices=("batch", "image"), default="batch", help="what to enlarge (default: batch)")
    child.add_argument("--step", type=count, help="image sides are multiples of this (default: 32)")
    child.add_argument("--larger", metavar="GRAPH.json", help="the graph file at a larger batch, to measure what grows")
    child.add_argument("--batches", type=count, nargs=2, metavar="N", help="of the two graph files (default: 1 2)")
    child.add_argument("--time-limit", type=seconds, default=60.0, metavar="SECONDS", help="default: 60")
    child.add_argument("--solver", default="highs", help="highs or cbc (default: highs)")
    child.add_argument("-o", "--output", metavar="SOLUTION.json", help="write the schedule")


def _fit_options(child: argparse.ArgumentParser) -> None:
    child.add_argument("--memory", required=True, help='of the device: bytes, "24 GB" or "24 GiB"')
    child.add_argument("--optimizer", default="adamw", metavar="NAME", help="sgd, adam, adamw, adam8bit, … (adamw)")
    copies = "keep a float32 copy of parameters in half precision, and states in float32"
    child.add_argument("--master-weights", action="store_true", help=copies)
    child.add_argument("--full-gradients", action="store_true", help="keep gradients in float32")
    child.add_argument("--time-limit", type=seconds, default=12.0, metavar="SECONDS", help="after the capture (12)")
    child.add_argument("-o", "--output", metavar="SOLUTION.json", help="write the schedule")
    child.add_argument(
        "--graph", metavar="GRAPH.json", help="write the graph of the step, with what the optimizer keeps"
    )


def _report_options(child: argparse.ArgumentParser) -> None:
    points = "add a trade-off curve of N budgets (default: 12)"
    child.add_argument("--execute", action="store_true", help="measure costs, execute the schedule, and validate it")
    _execution_options(child)
    child.add_argument("--sweep", nargs="?", type=count, const=12, default=0, metavar="N", help=points)
    alive = "a page in which the curve of --sweep is explored without Python, in place of the report"
    child.add_argument("--interactive", action="store_true", help=alive)
    child.add_argument("--no-source", action="store_true", help="leave the lines of the model's code out of that page")
    child.add_argument("--open", action="store_true", help="open it in a browser")


def _execution_options(child: argparse.ArgumentParser) -> None:
    child.add_argument("--device", default="auto", help="where to execute: auto, cpu or cuda (default: auto)")
    child.add_argument("--repeats", type=few, default=3, help="timed repeats, median shown (default: 3)")
    child.add_argument("--refresh", action="store_true", help="measure costs again instead of taking cached ones")


def _minimum_budget_options(child: argparse.ArgumentParser) -> None:
    limit = "the least memory at a cost of at most so much beyond keeping everything, such as 10%%, instead of any cost"
    child.add_argument("--overhead", type=overhead, metavar="SHARE", help=limit)
    child.add_argument("-o", "--output", metavar="SOLUTION.json", help="write the schedule")
    child.add_argument(
        "--time-limit", type=seconds, metavar="SECONDS", help="default: 10, or 60 where the overhead is limited"
    )


def _run_options(child: argparse.ArgumentParser) -> None:
    _execution_options(child)
    child.add_argument("--hard-cap", action="store_true", help="refuse more memory than the budget (CUDA: enforced)")
    child.add_argument("--trace", metavar="TRACE.json", help="write the run as a trace for ui.perfetto.dev")
    child.add_argument("--snapshot", metavar="FILE", help="write PyTorch's memory snapshot of the run (CUDA)")


def _papers_options(child: argparse.ArgumentParser) -> None:
    child.add_argument("item", nargs="?", metavar="ITEM", help="such as checkmate-figure-6 (default: list them)")
    child.add_argument(
        "--full", action="store_true", help="the papers' settings, for minutes to hours (default: seconds)"
    )
    child.add_argument("-o", "--output", metavar="FIGURE.html|.json", help="write figure and data")


def _app_options(child: argparse.ArgumentParser) -> None:
    files = "model files that may be chosen, besides the models by name; they are run when they are chosen"
    child.add_argument("files", nargs="*", metavar="FILE.py:FUNCTION", help=files)
    child.add_argument("--port", type=port, default=8866, help="or the next free one (default: 8866)")
    child.add_argument("--theme", choices=("light", "dark"), default="light", help="default: light")
    child.add_argument("--no-browser", action="store_true", help="print the URL only")
    child.add_argument("--without-token", action="store_true", help="let everybody on this machine open the page")
    names = "serve under this name, too, such as that of a proxy; may be repeated (default: this machine's own)"
    child.add_argument("--allow-host", action="append", default=[], metavar="NAME", help=names)
    anything = "let who is at the page run every model file below and above this folder"
    child.add_argument("--allow-model-files", action="store_true", help=anything)
    child.add_argument("--allow-saving", action="store_true", help="let who is at the page save files in this folder")
    paths = "let who is at the page open solution files by their path"
    child.add_argument("--allow-paths", action="store_true", help=paths)
    pages = "pages that may be open at a time; each takes 370 to 600 MB (default: 4)"
    child.add_argument("--max-kernels", type=count, default=4, metavar="N", help=pages)
    idle = "end what nobody uses after this time; 0 for never (default: 120)"
    child.add_argument("--idle-minutes", type=minutes, default=120.0, metavar="MINUTES", help=idle)


def _lab_options(child: argparse.ArgumentParser) -> None:
    child.add_argument("notebook", nargs="?", help="default: notebooks/01_explorer.ipynb, or a new one")
    child.add_argument("--port", type=port, default=8888)
    child.add_argument("--no-browser", action="store_true", help="print the URL only")

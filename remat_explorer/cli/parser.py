"""Commands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

import remat_explorer as rx
from remat_explorer.cli.capacity import fit, max_batch, minimum_budget
from remat_explorer.cli.execution import AskForLoader, policy, report, run
from remat_explorer.cli.graphs import capture, models, show, strategies
from remat_explorer.cli.machine import CACHED, app, cache, doctor, lab
from remat_explorer.cli.options import (
    ablation_options,
    app_options,
    capture_options,
    cost_options,
    count,
    fit_options,
    implementation_options,
    lab_options,
    max_batch_options,
    minimum_budget_options,
    model_options,
    report_options,
    run_options,
    solver_options,
    sweep_options,
    transfer_options,
)
from remat_explorer.cli.output import BAD_INPUT
from remat_explorer.cli.solving import ablation, solve, sweep
from remat_explorer.cli.terminal import tell
from remat_explorer.plain_text import one_line

EXAMPLES = """examples:
  remat-explorer models
  remat-explorer strategies
  remat-explorer capture vgg16 --batch 32 -o vgg16.json
  remat-explorer capture vgg16 --costs A100 --optimizer adam -o vgg16.json
  remat-explorer capture gpt2 --device cuda --costs H100 -o gpt2.json
  remat-explorer capture path/to/file.py:make_model -o graph.json
  remat-explorer show vgg16.json --top 5
  remat-explorer solve vgg16.json --budget "40% of the way" -o schedule.json
  remat-explorer solve unet --budget "8 GiB"
  remat-explorer solve chain --budget 60% --strategy checkmate-ilp --solver cbc --time-limit 120
  remat-explorer solve vgg16.json --budget 80% --strategy pytorch-budget --option activation_memory_budget=0.4
  remat-explorer solve vgg16.json --budget 80% --offload "25 GB/s" --time-limit 20 -o plan.json
  remat-explorer solve residual_net --implementations exact --budget 60%
  remat-explorer sweep vgg16.json --budgets "smallest,40% of the way,100%" --time-limit 20 -o curve.json
  remat-explorer ablation segnet --batch 4 --image 128 --budgets "80%,65%" --kinds masks,pooling --time-limit 30
  remat-explorer max-batch residual_net --memory "256 MB" --overhead-limit "one extra forward"
  remat-explorer max-batch vgg16 --vary image --batch 8 --memory "16 GB"
  remat-explorer fit llama3_8b --memory "80 GB" --optimizer adamw --costs A100 -o plan.json
  remat-explorer minimum-budget vgg16.json
  remat-explorer minimum-budget residual_net --overhead 10% --implementations all
  remat-explorer policy gpt2 --batch 8 --sequence 512 --budget 80% -o policy.json
  remat-explorer policy --loader
  remat-explorer run residual_net --batch 32 --budget "40% of the way" --device cpu
  remat-explorer report residual_net --batch 32 --budget "40% of the way" --execute --sweep -o report.html
  remat-explorer cache list
  remat-explorer doctor
  remat-explorer app --theme dark
  remat-explorer lab

A MODEL is a name that `models` lists, or path/to/file.py:function. The function takes no arguments and returns
(model, args), (model, args, kwargs) or (model, args, kwargs, loss), as remat_explorer.capture takes them.

A budget counts everything on the device, parameters included: bytes, "1.5 GiB", "smallest" (with a known schedule),
"40% of the way" from there to the checkpoint-all peak, or 60% of that peak, if that is possible. Ctrl-C ends a solve
with the best schedule so far. Exit codes: 0 done, 1 the execution contradicted the prediction, 2 infeasible, 3 not
solved to proven optimality in time or interrupted (the best schedule is still written), 64 bad input, 69 something
necessary is missing (doctor), 130 interrupted before a schedule was found."""


COMMANDS = "name_of_command"
MOVED = {
    "papers": "'papers' is no command any more; in a checkout of the repository, type python -m reproduction, which "
    "lists the papers' items, or python -m reproduction ITEM, with the same options"
}
WHAT = "Optimal tensor rematerialization: capture a model, solve for a schedule, see it, execute it."


class CommandParser(argparse.ArgumentParser):
    """argparse leaves with 2, which here means infeasible."""

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse `--option=--`, of which argparse makes an empty list, whatever the option is."""
        given = list(arg_strings)
        values = super()._get_values(action, arg_strings)
        if action.nargs is None and values == []:
            raise argparse.ArgumentError(action, f"{' '.join(given)!r} is no value")
        return values

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Say of a command that has moved where it is."""
        if action.dest == COMMANDS and value in MOVED:
            raise argparse.ArgumentError(None, MOVED[value])
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        tell(f"{self.format_usage()}{self.prog}: {one_line(message)}")
        raise SystemExit(BAD_INPUT)


def make_parser() -> argparse.ArgumentParser:
    """The parser; what it parsed has the function of its command as ``command``.

    >>> make_parser().parse_args(["solve", "vgg16", "--budget", "60%"]).budget
    '60%'
    """
    layout = argparse.RawDescriptionHelpFormatter
    parser = CommandParser(prog="remat-explorer", description=WHAT, epilog=EXAMPLES, formatter_class=layout)
    parser.add_argument("--version", action="version", version=f"remat-explorer {rx.__version__}")
    commands = parser.add_subparsers(dest=COMMANDS, metavar="COMMAND", required=True)

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
    to_advise = command("policy", policy, "Find the best of PyTorch's own checkpoints, for code without this package.")
    to_run = command("run", run, "Profile, solve, execute on the device, and compare with the prediction.")
    to_report = command("report", report, "Solve, and write one HTML file that shows everything about the answer.")
    to_cache = command("cache", cache, "List or clear what is kept from earlier solves and profiles.")
    to_examine = command("doctor", doctor, "Say what is installed and works here: versions, devices, solvers, cache.")
    app_options(command("app", app, "Serve the explorer alone, as a page without code, on this machine."))
    lab_options(command("lab", lab, "Open JupyterLab on the explorer."))
    model_options(
        to_capture, to_show, to_solve, to_sweep, to_ablate, to_enlarge, to_bound, to_advise, to_run, to_report
    )
    to_capture.add_argument("-o", "--output", required=True, metavar="GRAPH.json", help="file to write")
    whose = "whose kernels: cpu (default), cuda (no device is needed), or auto"
    to_capture.add_argument("--device", default="cpu", help=whose)
    to_show.add_argument("--top", type=count, default=10, metavar="N", help="rows of each list (default: 10)")
    cost_options(to_capture, to_show, to_solve, to_sweep, to_ablate, to_enlarge, to_bound, to_advise, to_report)
    capture_options(
        to_capture, to_show, to_solve, to_sweep, to_ablate, to_enlarge, to_bound, to_advise, to_run, to_report
    )
    implementation_options(to_capture, to_show, to_solve, to_sweep, to_bound, to_run, to_report)
    for child in (to_enlarge, to_advise):
        child.set_defaults(implementations=None)
    to_advise.set_defaults(contract=False)  # each call of PyTorch is an operation, which may be saved
    solver_options(to_solve, to_advise, to_run, to_report)
    transfer_options(to_solve)
    for child in (to_solve, to_run):
        child.add_argument("-o", "--output", metavar="SOLUTION.json", help="write the schedule")
    to_advise.add_argument("-o", "--output", metavar="POLICY.json", help="write the policy")
    sweep_options(to_sweep)
    ablation_options(to_ablate)
    max_batch_options(to_enlarge)
    minimum_budget_options(to_bound)
    model_options(to_fit)
    cost_options(to_fit)
    fit_options(to_fit)
    loader = "only print the program that reads a policy, or write it with -o; it needs nothing but torch"
    to_advise.add_argument("--loader", action=AskForLoader, nargs=0, default=False, help=loader)
    run_options(to_run)
    report_options(to_report)
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
    for child in (list_models, list_strategies, *working, to_cache, to_examine):
        child.add_argument("--json", action="store_true", help="print one JSON object")
    return parser

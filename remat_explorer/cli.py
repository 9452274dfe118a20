"""The command line: the same road as the notebook's, from a shell.

Exit codes: 0 done; 1 the execution contradicted the prediction; 2 infeasible; 3 not solved to proven optimality in
time (the best schedule is still written); 64 bad input.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import remat_explorer as rx
from remat_explorer.errors import RematError
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds

if TYPE_CHECKING:
    from remat_explorer.models import LoadedModel

DONE, CONTRADICTED, INFEASIBLE, NOT_IN_TIME, BAD_INPUT = 0, 1, 2, 3, 64

EXAMPLES = """examples:
  remat-explorer models
  remat-explorer capture vgg16 --batch 32 -o vgg16.json
  remat-explorer solve vgg16.json --budget 60% -o schedule.json
  remat-explorer solve unet --budget "1.5 GiB" --strategy checkmate-ilp --solver cbc --time-limit 120
  remat-explorer run residual_net --batch 32 --budget 60% --device cpu
  remat-explorer lab

A budget counts everything on the device, parameters included: bytes, "1.5 GiB", or a share of the checkpoint-all
peak such as 60%. Exit codes: 0 done, 1 the execution contradicted the prediction, 2 infeasible, 3 not solved to
proven optimality in time (the best schedule is still written), 64 bad input."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        options = _parser().parse_args(arguments)
        return options.command(options)
    except RematError as error:
        print(f"remat-explorer: {error}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        print(f"remat-explorer: {error.strerror}: {error.filename!r}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("remat-explorer: interrupted", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    """argparse leaves with 2, which here means infeasible."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.format_usage()}{self.prog}: {message}", file=sys.stderr)
        raise SystemExit(BAD_INPUT)


def _parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    parser = _Parser(prog="remat-explorer", description=rx.__doc__, epilog=EXAMPLES, formatter_class=layout)
    parser.add_argument("--version", action="version", version=f"remat-explorer {rx.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], summary: str) -> argparse.ArgumentParser:
        child = commands.add_parser(name, help=summary, description=summary, epilog=EXAMPLES, formatter_class=layout)
        child.set_defaults(command=run)
        return child

    models = command("models", _models, "List the models that can be captured by name.")
    capture = command("capture", _capture, "Capture a model's training graph without allocating tensors.")
    solve = command("solve", _solve, "Find the cheapest schedule of a model or graph file within a budget.")
    run = command("run", _run, "Profile, solve, execute on the device, and compare with the prediction.")
    lab = command("lab", _lab, "Open JupyterLab on the explorer.")

    capture.add_argument("model", metavar="MODEL")
    capture.add_argument("-o", "--output", required=True, metavar="GRAPH.json")
    solve.add_argument("model", metavar="MODEL|GRAPH.json")
    solve.add_argument("-o", "--output", metavar="SOLUTION.json")
    run.add_argument("model", metavar="MODEL")
    run.add_argument("-o", "--output", metavar="SOLUTION.json")
    run.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    run.add_argument("--repeats", type=_count, default=3, help="timed repeats, median shown (default: 3)")
    for child in (capture, solve, run):
        child.add_argument("--batch", type=_count, help="batch size (default: the model's own)")
        child.add_argument("--image", type=_count, help="side of the square input image in pixels")
        child.add_argument("--sequence", type=_count, help="tokens of an example (default: as many as the model takes)")
    for child in (solve, run):
        child.add_argument("--budget", required=True, help='bytes, "1.5 GiB" or "60%%"')
        child.add_argument("--strategy", default="optimal", help="a method's name (default: optimal)")
        child.add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS", help="default: 60")
        child.add_argument("--solver", default="highs", help="highs or cbc (default: highs)")
    for child in (models, capture, solve, run):
        child.add_argument("--json", action="store_true", help="print one JSON object")
    lab.add_argument("notebook", nargs="?", help="default: notebooks/01_explorer.ipynb, or a new one")
    lab.add_argument("--port", type=_count, default=8888)
    lab.add_argument("--no-browser", action="store_true", help="print the URL only")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _show(options: argparse.Namespace, document: dict[str, Any], text: str) -> None:
    print(json.dumps(document) if options.json else text)


def _say(options: argparse.Namespace, text: str) -> None:
    """Progress for people, on a terminal only, over the line before."""
    if sys.stderr.isatty() and not options.json:
        print(f"\r\x1b[2K{text}", end="" if text else "\r", file=sys.stderr, flush=True)


def _models(options: argparse.Namespace) -> int:
    sizes = {name: rx.models.published_size(name) for name in rx.models.names()}
    width = max(map(len, sizes))
    lines = [f"{name:{width}}  {size}" for name, size in sizes.items()]
    listed = {name: dataclasses.asdict(size) for name, size in sizes.items()}
    _show(options, {"models": listed}, "\n".join(lines))
    return DONE


def _loaded(options: argparse.Namespace, device: str = "cpu") -> LoadedModel:
    return rx.models.load(options.model, options.batch, options.image, options.sequence, device)


def _graph(options: argparse.Namespace) -> rx.Graph:
    if options.model.endswith(".json") or os.path.sep in options.model or Path(options.model).is_file():
        return rx.Graph.load(options.model)
    return _loaded(options).graph


def _capture(options: argparse.Namespace) -> int:
    graph = _loaded(options).graph
    graph.save(options.output)
    document = {
        "graph": graph.name,
        "operations": graph.n,
        "values": len(graph.values),
        "resident_bytes": graph.resident_bytes,
        "sha256": graph.sha256,
        "output": options.output,
    }
    text = (
        f"{graph.name}: {graph.n} operations, {len(graph.values)} values, "
        f"{format_bytes(graph.resident_bytes)} resident; written to {options.output}"
    )
    _show(options, document, text)
    return DONE


def _solved(options: argparse.Namespace, graph: rx.Graph) -> rx.Solution:
    def on_progress(progress: Any) -> None:
        best = "" if progress.schedule is None else f", overhead {format_overhead(progress.schedule.overhead)}"
        _say(options, f"{progress.doing}{best}, {format_seconds(progress.seconds)}")

    solution = rx.solve(
        graph,
        budget=options.budget,
        strategy=options.strategy,
        time_limit=options.time_limit,
        solver=options.solver,
        on_progress=on_progress,
    )
    _say(options, "")
    if options.output and solution.schedule:
        solution.save(options.output)
    return solution


def _report_infeasible(options: argparse.Namespace, solution: rx.Solution) -> int:
    smallest = rx.minimum_budget(solution.graph)
    document = _summary(solution) | {
        "minimum_budget": {
            "lower_bound": smallest.lower_bound,
            "known_feasible": smallest.known_feasible,
            "operation": solution.graph.operations[smallest.operation].name,
        }
    }
    if solution.budget < smallest.known_feasible:
        reason = smallest.explain()
    else:
        reason = f"a schedule within this budget is known, but not by {solution.strategy!r}: try --strategy optimal"
    _show(options, document, f"{solution}\n{reason}")
    return INFEASIBLE


def _summary(solution: rx.Solution) -> dict[str, Any]:
    """The solution file without its matrices."""
    return {key: entry for key, entry in solution.to_document().items() if key not in ("format", "version", "R", "S")}


def _solve(options: argparse.Namespace) -> int:
    solution = _solved(options, _graph(options))
    if solution.status == "infeasible":
        return _report_infeasible(options, solution)
    lines = [str(solution)]
    if solution.lower_bound is not None and solution.cost is not None:
        lines.append(f"cost {solution.cost:.6g}, lower bound {solution.lower_bound:.6g}, peak {solution.peak} bytes")
    if options.output and solution.schedule:
        lines.append(f"written to {options.output}")
    _show(options, _summary(solution), "\n".join(lines))
    return DONE if solution.status == "optimal" else NOT_IN_TIME


def _run(options: argparse.Namespace) -> int:
    loaded = _loaded(options, options.device)

    def counting(what: str) -> Callable[[int, int], None]:
        return lambda done, total: _say(options, f"{what} {done} of {total}")

    graph = rx.profile(
        loaded.graph, loaded.module, loaded.args, device=options.device, on_progress=counting("profiling operation")
    )
    solution = _solved(options, graph)
    if solution.status == "infeasible":
        return _report_infeasible(options, solution)
    if solution.schedule is None:
        _show(options, _summary(solution), str(solution))
        return NOT_IN_TIME
    measured = rx.measure(
        solution,
        loaded.module,
        loaded.args,
        device=options.device,
        repeats=options.repeats,
        on_progress=counting("executing statement"),
    )
    _say(options, "")
    _show(options, _summary(solution) | {"measurement": measured.to_document()}, f"{solution}\n{measured}")
    return DONE if measured.within_budget and measured.gradients_equal else CONTRADICTED


def _lab(options: argparse.Namespace) -> int:
    from remat_explorer.lab import open_lab

    return open_lab(options.notebook, options.port, browser=not options.no_browser)


if __name__ == "__main__":
    sys.exit(main())

"""`rx.compile` beside the activation memory budget of torch.compile: peaks and the time of a step, with Inductor.

    python benchmarks/compiled.py
    python benchmarks/compiled.py reported:2:512 residual_net:8:32 --shares 0.25 0.5 0.75
    python benchmarks/compiled.py --again        # not only what the file of results does not have

A case is reported:BLOCKS:TOKENS, the model of pytorch issue 197838, or MODEL:BATCH:PIXELS of the zoo. A share is
PyTorch's setting; our budget is as far between two measured peaks: that of our smallest plan, compiled, and that of
plain torch.compile. The two numbers do not mean the same: PyTorch's bounds what is kept from forward to backward, by
its own estimate; ours is bytes of the whole step, parameters, inputs and gradients included.

Peaks are those of one step after a step that warms up, by one meter for all, and do not depend on what else the
machine does. Plain torch.compile, PyTorch's budget and ours are timed in turn; the median is given.

Gradients are compared with those of eager PyTorch. Other kernels round differently, and where that turns the sign of
what a ReLU reads, single precision cannot tell rounding from an error. So where gradients differ, model and inputs are
made double, the step is compiled and planned again at the same share, and the gradients of that are compared. Inductor
draws random numbers of its own, and which ones depends on what it fuses; so it is told to draw eager PyTorch's.
"""

from __future__ import annotations

import argparse
import copy
import functools
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from arena_executed import wrong
from report import kept, publish, write
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._functorch import config
from torch._inductor import config as inductor_config
from torch._inductor.compile_fx import compile_fx

import remat_explorer as rx
from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.models.decoder import reported_llama
from remat_explorer.quantities import format_bytes, format_overhead
from remat_explorer.runtime.compiled.partitioner import PlannedGraph

CASES = ["reported:2:512", "residual_net:8:32", "mobilenet_v1:4:64", "resnet18:4:64", "vgg16:4:32", "unet:1:64"]
SHARES = [round(i / 12, 3) for i in range(1, 13)]
COLUMNS = (
    "model", "share", "PyTorch: peak", "time", "gradients", "budget",
    "ours: peak", "time", "predicted cost", "planned", "gradients",
)  # fmt: skip
Step = Callable[[], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="MODEL:BATCH:SIZE")
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--again", action="store_true", help="measure again what the file of results has")
    parser.add_argument("--remark", default="", help="of the machine, such as that it was busy; kept with the results")
    options = parser.parse_args()
    known = {(row["case"], row["share"]): row for row in kept("compiled")}
    where = {"device": "CPU", "back end": "inductor", "remark": options.remark}
    inductor_config.fallback_random = True
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000  # a model, many ways
    for case in options.cases:
        for row in measured(case, [s for s in options.shares if options.again or (case, s) not in known], options):
            known[case, row["share"]] = row
            print(" | ".join(cells(row)), flush=True)
            write("compiled", COLUMNS, [cells(known[key]) for key in sorted(known)], in_order(known), **where)
    publish("compiled", COLUMNS, [cells(row) for row in in_order(known)], in_order(known), **where)
    cases = dict.fromkeys(case for case, _ in known)
    for case in cases:
        print(in_words(case, [row for row in in_order(known) if row["case"] == case]))
    said = [f"{case}: {what}" for case in cases for what in wrong([r for r in in_order(known) if r["case"] == case])]
    sys.exit("\n".join(said) or 0)


def in_words(case: str, rows: list[dict[str, Any]]) -> str:
    """What a case shows: budgets that are kept, peaks, and in how many rows gradients are not eager PyTorch's."""
    ours = [row for row in rows if row["ours"] is not None]
    ends = [format_bytes(end(row[of] for row in ours)) for of in ("ours", "torch") for end in (min, max)]
    differ = {of: sum(row.get(f"{of}_equal") is False for row in rows) for of in ("plain", "torch")}
    kept_ones = sum(row["within_budget"] for row in ours)
    return (
        f"{case}: {kept_ones} of {len(rows)} budgets kept, peaks {ends[0]} to {ends[1]} "
        f"(PyTorch's {ends[2]} to {ends[3]}); gradients differ in {sum(not row['equal'] for row in ours)} rows, "
        f"PyTorch's in {differ['torch']}, plain torch.compile's in {differ['plain']}"
    )


def in_order(known: dict[tuple[str, float], dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows by case and ascending share."""
    return [known[key] for key in sorted(known)]


@dataclass(frozen=True, eq=False)
class Case:
    """A model with its inputs, and what its step takes.

    Attributes:
        module: returns a loss.
        args: its inputs.
        time_limit: seconds for each plan.
        resident: bytes of parameters, buffers and inputs.
        least: the measured peak of our smallest plan, compiled, in bytes with the resident ones.
        most: the measured peak of plain torch.compile.
        plain: the step of plain torch.compile, compiled.
        expected: the gradients of eager PyTorch.
    """

    module: nn.Module
    args: tuple[torch.Tensor, ...]
    time_limit: float
    resident: int
    least: int
    most: int
    plain: Step
    expected: list[torch.Tensor]

    @classmethod
    def of(cls, name: str, time_limit: float, in_double: bool = False) -> Case:
        """Load a case, and measure its two peaks."""
        module, args = load(name)
        if in_double:
            module = module.double()
            args = tuple(arg.double() if arg.is_floating_point() else arg for arg in args)
        resident = sum(tensor.nbytes for tensor in [*module.parameters(), *module.buffers(), *args])
        torch._dynamo.reset()
        smallest = rx.compile(module, "smallest", backend="inductor", time_limit=time_limit)
        steps = [step_of(model, args) for model in (smallest, by_inductor(module))]
        least, most = (resident + peak_after_a_step(module, step) for step in steps)
        expected = gradients_of(module, step_of(module, args))
        return cls(module, args, time_limit, resident, least, most, steps[1], expected)

    def budget(self, share: float) -> int:
        """Ours, in bytes, which stands beside PyTorch's share."""
        return int(self.least + share * (self.most - self.least))

    def gradients(self, share: float, ours: Any) -> Iterator[tuple[str, Step, list[torch.Tensor]]]:
        """For plain torch.compile, PyTorch's budget and ours: its name, its step, and the gradients of a first step.

        ``ours`` is what `planned` gives; it is left out where there is no schedule for the graph that Inductor makes.
        """
        yield "plain", self.plain, gradients_of(self.module, self.plain)
        for name, model in {"torch": by_inductor(self.module), "ours": ours}.items():
            step = step_of(model, self.args)
            with config.patch(activation_memory_budget=share if name == "torch" else 1.0), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a budget that is not kept is in the row
                try:
                    found = gradients_of(self.module, step)
                except BackendCompilerFailed:
                    if name != "ours":
                        raise
                    return
            yield name, step, found

    def planned(self, share: float) -> Any:
        """The module compiled within our budget."""
        return rx.compile(self.module, self.budget(share), backend="inductor", time_limit=self.time_limit)


def measured(name: str, shares: list[float], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each share."""
    if not shares:
        return
    case = Case.of(name, options.time_limit)
    in_double = functools.cache(lambda: Case.of(name, options.time_limit, in_double=True))
    for share in shares:
        ours, budget = case.planned(share), case.budget(share)
        row: dict[str, Any] = {"case": name, "share": share, "budget": budget, "resident": case.resident}
        row["threads"] = torch.get_num_threads()
        runs: dict[str, Step] = {}
        found: dict[str, list[torch.Tensor]] = {}
        peaks: dict[str, int] = {}
        for of, step, gradients in case.gradients(share, ours):
            runs[of], found[of], peaks[of] = step, gradients, case.resident + peak_of(case.module, step)
        row["seconds"] = seconds_in_turn(case.module, runs, options.repeats)
        row |= {"plain": peaks["plain"], "torch": peaks["torch"]}
        row |= of_ours(ours.backend.graphs, peaks.get("ours"), budget)
        equal, row["compared_in"] = all_equal(found, case.expected), "single precision"
        if not all(equal.values()):
            double = in_double()
            found = {of: gradients for of, _, gradients in double.gradients(share, double.planned(share))}
            equal, row["compared_in"] = all_equal(found, double.expected), "double precision"
        yield row | {"plain_equal": equal["plain"], "torch_equal": equal["torch"], "equal": equal.get("ours")}


def all_equal(found: dict[str, list[torch.Tensor]], expected: list[torch.Tensor]) -> dict[str, bool]:
    """Whether gradients are those of eager PyTorch."""
    return {name: close(gradients, expected) for name, gradients in found.items()}


def of_ours(graphs: list[PlannedGraph], peak: int | None, budget: int) -> dict[str, Any]:
    """What a row says of our plan."""
    if peak is None:
        return {"ours": None}
    (planned,) = graphs
    return {
        "ours": peak,
        "within_budget": peak <= budget,
        "ours_overhead": planned.solution.overhead,
        "ours_gap": planned.gap,
        "status": str(planned.solution.status),
        "planned_for": planned.solution.budget,
        "predicted_peak": planned.predicted_peak,
        "fused_peak": planned.fused_peak,
        "trial_peak": planned.measured_peak,
        "turns": planned.turns,
    }


def load(case: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Module and inputs of a case; the module returns a loss."""
    name, first, second = case.split(":")
    if name == "reported":
        return reported_llama(int(first), int(second))
    loaded = rx.models.load(name, int(first), int(second))
    return loaded.module, loaded.args


def by_inductor(module: nn.Module) -> Any:
    """The module compiled by a back end of its own, so that no other one's code is taken for it."""

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        return compile_fx(graph, inputs, config_patches={"fx_graph_cache": False})

    return torch.compile(module, backend=backend, fullgraph=True, dynamic=False)


def step_of(model: Any, args: tuple[torch.Tensor, ...]) -> Step:
    """A step from the same random state every time."""

    def step() -> None:
        torch.manual_seed(1)
        model(*args).backward()

    return step


def gradients_of(module: nn.Module, step: Step) -> list[torch.Tensor]:
    """Gradients that a step leaves, from the same buffers every time."""
    buffers = copy.deepcopy(dict(module.named_buffers()))
    module.zero_grad()
    torch.manual_seed(1)
    step()
    for name, buffer in module.named_buffers():
        buffer.data.copy_(buffers[name])
    return [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]


def close(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    """Whether gradients are the same up to rounding: by a thousandth of the largest entry of each, in double 1e-9."""
    share, least = (1e-9, 1e-13) if found[0].dtype == torch.float64 else (1e-3, 1e-7)
    pairs = zip(found, expected, strict=True)
    return all((a - b).abs().max() <= share * b.abs().max() + least for a, b in pairs)


def peak_after_a_step(module: nn.Module, step: Step) -> int:
    """The peak of a second step, after one that compiles, of which a budget that is not kept is no news."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step()
    return peak_of(module, step)


def peak_of(module: nn.Module, step: Step) -> int:
    """The most bytes that a step takes beside what is there before it."""
    module.zero_grad()
    with memory_meter(torch.device("cpu")) as meter, meter.section():
        step()
    return meter.readings[-1].highest - meter.readings[-1].before


def seconds_in_turn(module: nn.Module, runs: dict[str, Step], repeats: int) -> dict[str, float]:
    """Median seconds of each step."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, step in runs.items():
            module.zero_grad()
            start = time.perf_counter()
            step()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def cells(row: dict[str, Any]) -> list[str]:
    """What the table shows; times are over those of plain torch.compile in the same row."""
    times = {name: format_overhead(row["seconds"][name] / row["seconds"]["plain"]) for name in row["seconds"]}
    in_double = " (double)" if "double" in row.get("compared_in", "") else ""
    said = {True: "equal" + in_double, False: "DIFFER" + in_double, None: ""}
    theirs = [row["case"], f"{row['share']:g}", format_bytes(row["torch"]), times["torch"], said[row["torch_equal"]]]
    theirs.append(format_bytes(row["budget"]))
    if row["ours"] is None:
        return [*theirs, "no schedule", "", "", "", ""]
    return [
        *theirs,
        format_bytes(row["ours"]) + ("" if row["within_budget"] else " ABOVE"),
        times["ours"],
        format_overhead(row["ours_overhead"]),
        f"{row['turns']} times",
        said[row["equal"]],
    ]


if __name__ == "__main__":
    main()

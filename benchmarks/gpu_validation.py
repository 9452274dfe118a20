"""Predicted against measured on a GPU, for every model of the zoo at a size of several GB, within ten minutes.

    python benchmarks/gpu_validation.py
    python benchmarks/gpu_validation.py resnet50 vgg16 --minutes 5
    python benchmarks/gpu_validation.py mlp --device cpu --tiny

For each model: 80, 60 and 40 % of what keeping everything takes, and the smallest feasible budget. Shown are the
predicted peak; requested bytes (what the prediction counts), allocated bytes (rounded up by the allocator) and
reserved bytes (taken from the driver, what nvidia-smi shows); overhead predicted and measured; results against plain
PyTorch, and its peak and time; and PyTorch's own ways to train in less memory. With --hard-cap the allocator itself
refuses more than the budget (and what fragmentation needs beyond one block, too).

Schedules are solved in processes of their own while the device measures. Results are written after each model, and with
--resume what is there is kept; when the time is over, what is missing is said.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import torch
from report import RESULTS, publish

import remat_explorer as rx
from remat_explorer.errors import RematError
from remat_explorer.graph.file import dump_graph
from remat_explorer.models import LoadedModel
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds

Size = tuple[int, int | None, int | None]  # batch, pixels, tokens
SIZES: dict[str, Size] = {
    "resnet50": (64, 224, None),
    "vgg16": (64, 224, None),
    "mobilenet_v1": (160, 224, None),
    "unet": (12, 416, None),
    "gpt2": (4, None, 1024),
    "googlenet": (128, 224, None),
    "mobilenet_v2": (112, 224, None),
    "bert": (8, None, 512),
    "unet_monet": (4, 416, None),
    "densenet121": (48, 224, None),
    "resnet18": (256, 224, None),
    "vgg19": (64, 224, None),
    "segnet": (12, 416, None),
    "fcn8": (12, 416, None),
    "vit": (48, 224, None),
    "linear32": (16, 224, None),
    "residual_net": (8192, 32, None),
    "chain": (2**18, None, None),
    "mlp": (2**18, None, None),
    "densenet161": (24, 224, None),
}
TINY: Size = (2, 64, 16)
SHARES = ("80%", "60%", "40%", "smallest")
PEER_BUDGETS = (1.0, 0.5, 0.1)
COLUMNS = (
    "model", "size", "budget", "status", "predicted", "requested", "error", "allocated", "reserved", "cost predicted",
    "measured", "results", "plain: peak", "time", "note",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(SIZES), help="default: all of the zoo")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--time-limit", type=float, default=8.0, help="seconds for each schedule")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="small batches, to try the script")
    parser.add_argument("--hard-cap", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--resume", action="store_true", help="keep the models that the results have")
    parser.add_argument("--name", default="gpu_validation", help="of the results file")
    options = parser.parse_args()
    validation = Validation(options)
    validation.run()


class Validation:
    """What has been measured so far, and how much time is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.end = time.monotonic() + 60 * options.minutes
        self.details: list[dict[str, Any]] = self._kept() if options.resume else []

    def _kept(self) -> list[dict[str, Any]]:
        path = RESULTS / f"{self.options.name}.json"
        return json.loads(path.read_text())["details"] if path.exists() else []

    def run(self) -> None:
        """Measure model after model; the schedules of the next one are solved meanwhile."""
        kept = {entry["model"] for entry in self.details}
        waiting = [name for name in self.options.models if name not in kept]
        workers = max(1, (os.cpu_count() or 2) - 1)
        with ProcessPoolExecutor(workers) as pool:
            prepared: Prepared | None = None
            while waiting or prepared:
                upcoming = self._prepare(waiting.pop(0), pool) if waiting and time.monotonic() < self.end else None
                if prepared is not None:
                    self.details.append(self._measure(prepared))
                    self._publish()
                prepared = upcoming
                if prepared is None and time.monotonic() >= self.end:
                    break
            pool.shutdown(cancel_futures=True)
        missing = [name for name in self.options.models if name not in {entry["model"] for entry in self.details}]
        print(f"not measured, for lack of time: {', '.join(missing)}" if missing else "every model was measured")

    def _prepare(self, name: str, pool: ProcessPoolExecutor) -> Prepared | None:
        begin = time.monotonic()
        batch, image, sequence = TINY if self.options.tiny else SIZES.get(name, TINY)
        published = rx.models.published_size(name)
        image = image if published.image else None
        sequence = sequence if published.sequence else None
        try:
            loaded = rx.models.load(name, batch, image, sequence, device=self.options.device)
            graph = rx.profile(
                loaded.graph, loaded.module, loaded.args, device=self.options.device, repeats=self.options.repeats
            )
        except RematError as error:
            print(f"{name}: {error}", flush=True)
            self.details.append({"model": name, "problem": str(error)})
            return None
        text = dump_graph(graph)
        futures = {share: pool.submit(solved, text, share, self.options.time_limit) for share in SHARES}
        print(f"{name}: captured and profiled in {time.monotonic() - begin:.0f} s", flush=True)
        return Prepared(loaded, graph, futures)

    def _measure(self, prepared: Prepared) -> dict[str, Any]:
        loaded, runs = prepared.loaded, []
        for share, future in prepared.futures.items():
            runs.append({"share": share, **self._measured(prepared, future)})
            print(f"{loaded.name} {share}: {runs[-1].get('error', runs[-1].get('problem'))}", flush=True)
        peers: list[dict[str, Any]] = []
        if not self.options.no_peers and time.monotonic() < self.end:
            found = rx.compare_peers(
                loaded.module, loaded.args, device=self.options.device, repeats=1, budgets=PEER_BUDGETS
            )
            peers = [peer.to_document() for peer in found]
        size = str(rx.models.Size(loaded.batch, loaded.image, loaded.sequence))
        return {"model": loaded.name, "size": size, "operations": prepared.graph.n, "runs": runs, "peers": peers}

    def _measured(self, prepared: Prepared, future: Future[str]) -> dict[str, Any]:
        loaded = prepared.loaded
        solution = rx.Solution.from_document(json.loads(future.result()), prepared.graph)
        if solution.schedule is None:
            return {"status": str(solution.status), "problem": str(solution)}
        try:
            found = rx.measure(
                solution,
                loaded.module,
                loaded.args,
                device=self.options.device,
                repeats=self.options.repeats,
                hard_cap=self.options.hard_cap,
            )
        except RematError as error:
            return {"status": str(solution.status), "budget": solution.budget, "problem": str(error)}
        return {"status": str(solution.status), "gap": solution.gap, **found.to_document()}

    def _publish(self) -> None:
        where = {"device": torch.cuda.get_device_name() if self.options.device.startswith("cuda") else "CPU"}
        if self.options.device.startswith("cuda"):
            where |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
        rows = [row for entry in self.details for row in rows_of(entry)]
        publish(self.options.name, COLUMNS, rows, self.details, **where, date=time.strftime("%Y-%m-%d"))


class Prepared:
    """A profiled model whose schedules are being solved."""

    def __init__(self, loaded: LoadedModel, graph: rx.Graph, futures: dict[str, Future[str]]) -> None:
        self.loaded, self.graph, self.futures = loaded, graph, futures


def solved(graph_text: str, share: str, time_limit: float) -> str:
    """The solution file of a graph file; runs in a process that has no device."""
    graph = rx.Graph.from_document(json.loads(graph_text))
    if share == "smallest":
        smallest = rx.minimum_budget(graph)
        found = rx.solve(graph, smallest.known_feasible, time_limit=time_limit)
    else:
        found = rx.solve(graph, share, time_limit=time_limit)
    return json.dumps(found.to_document())


def rows_of(entry: dict[str, Any]) -> list[list[str]]:
    """Rows of a model: one for each budget, one for each peer."""
    if "problem" in entry:
        return [[entry["model"], *[""] * (len(COLUMNS) - 2), entry["problem"]]]
    rows = []
    for run in entry["runs"]:
        head = [entry["model"], entry["size"], run["share"], run["status"]]
        rows.append(head + ([*[""] * 10, run["problem"]] if "problem" in run else [*run_cells(run), run["missing"]]))
    for peer in entry["peers"]:
        title = f"{peer['name']} ({peer['knob']})" if peer["knob"] else peer["name"]
        head = [entry["model"], entry["size"], title, "peer"]
        rows.append(head + ([*[""] * 10, peer["problem"]] if peer["problem"] else [*peer_cells(peer), ""]))
    return rows


def run_cells(run: dict[str, Any]) -> list[str]:
    equal = [run[key] for key in ("gradients_equal", "buffers_equal", "random_state_equal")]
    different = f"gradients differ by {run['gradient_difference']:.2g}" if run["gradient_difference"] else "DIFFER"
    return [
        format_bytes(run["predicted_peak"]),
        format_bytes(run["measured_peak"]),
        f"{run['error']:+.3%}",
        optional(run["allocated"], format_bytes),
        optional(run["reserved"], format_bytes),
        format_overhead(run["predicted_overhead"]),
        optional(run["measured_overhead"], format_overhead),
        "not compared"
        if None in equal
        else "equal"
        if all(equal)
        else "varies"
        if run["as_plain_varies"]
        else different,
        optional(run["eager_peak"], format_bytes),
        optional(run["eager_seconds"], format_seconds),
    ]


def peer_cells(peer: dict[str, Any]) -> list[str]:
    predicted = optional(peer["predicted_peak"], format_bytes)
    measured, overhead = peer["measured_peak"], peer["overhead"]
    error = "" if not predicted else f"{(measured - peer['predicted_peak']) / peer['predicted_peak']:+.3%}"
    equal = "equal" if peer["gradients_equal"] and peer["buffers_equal"] else "DIFFER"
    equal = "varies" if peer["as_plain_varies"] else equal
    cost = optional(peer["predicted_overhead"], format_overhead)
    over = optional(overhead, format_overhead)
    return [
        predicted,
        format_bytes(measured),
        error,
        "",
        "",
        cost,
        over,
        equal,
        "",
        optional(peer["seconds"], format_seconds),
    ]


def optional(value: Any, show: Any) -> str:
    return "" if value is None else show(value)


if __name__ == "__main__":
    main()

"""Capture every model of the zoo at its published size, each in a process of its own; or time captures and profiles.

    python benchmarks/capture.py
    python benchmarks/capture.py resnet50 resnet50:2048 --optimizer adam
    python benchmarks/capture.py --before HEAD~1
    python benchmarks/capture.py yolo neox --before HEAD~1 --processes 5

"memory" is what capturing took at its highest, beyond the process with the model's parameters loaded. "features" are
the values of the forward pass that are no results, "peak" is that of keeping everything, parameters included.

With ``--before`` the same captures and profiles run by the code of that commit and by this one, in turn, in fresh
processes of one thread: "first" is the first capture of a process, everything that it imports for it included but not
torch and the model's library, "again" one after it, "exact" one with ``implementations="exact"``, and "profile" a
profile of a graph that was just captured. Shown are medians of CPU seconds, before and after; wall seconds, which other
work stretches, are in the file. The graphs have to be the same. The target is half of what it was: profiles are near
it or meet it, captures are not, of which PyTorch's own import and export are the most. `yolo` has the layers and widths
of YOLOv8n, and `neox` is a GPT-NeoX of three layers of transformers; both are profiled, the zoo's models only captured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from report import kept, publish
from torch import nn

import remat_explorer as rx
from remat_explorer.quantities import format_bytes

COLUMNS = (
    "model", "size", "raw nodes", "operations", "values", "parameters", "features GB", "peak GB", "seconds", "memory"
)  # fmt: skip
TIMED = ("neox", "yolo", "unet", "resnet50", "gpt2", "densenet161")
KINDS = ("first", "again", "exact", "profile")
ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="MODEL[:BATCH]")
    parser.add_argument("--optimizer", help="count its state too: sgd, momentum or adam")
    parser.add_argument("--before", metavar="COMMIT", help="time captures by that commit's code and by this one")
    parser.add_argument("--processes", type=int, default=3, help="of each code and case")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--timed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.timed:
        print(json.dumps(time_one(options.cases[0])))
        return
    if options.before:
        compare(options.cases or TIMED, options.before, options.processes)
        return
    if options.one:
        print(json.dumps(capture_one(options.cases[0], options.optimizer)))
        return
    found = []
    for case in options.cases or [*rx.models.names(), "resnet50:2048"]:
        command = [sys.executable, __file__, case, "--one"]
        command += ["--optimizer", options.optimizer] if options.optimizer else []
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(case, f"{found[-1]['seconds']:.1f} s", file=sys.stderr, flush=True)
    publish("capture", COLUMNS, [row(entry) for entry in found], found)


def capture_one(case: str, optimizer: str | None) -> dict[str, Any]:
    """Capture a model in this process."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from remat_explorer.capture import trace
    from remat_explorer.capture_options import CaptureOptions

    name, _, batch = case.partition(":")
    loaded = rx.models.load(name, int(batch) if batch else None)
    with FakeTensorMode(allow_non_fake_inputs=True):
        args = loaded.make_args()
    before = resident_set("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the highest resident set so far
    start = time.perf_counter()
    program = trace(loaded.shapes, args, options=CaptureOptions(optimizer=optimizer))
    seconds = time.perf_counter() - start
    memory = resident_set("VmHWM") - before
    summary = program.graph.summary()
    uncontracted = trace(loaded.shapes, args, options=CaptureOptions(False, False))
    return {
        "model": name,
        "batch": loaded.batch,
        "image": loaded.image,
        "sequence": loaded.sequence,
        "raw_nodes": sum(node.op == "call_function" for node in uncontracted.module.graph.nodes),
        "operations": program.graph.n,
        "values": summary.values,
        "parameters": sum(parameter.numel() for parameter in loaded.module.parameters()),
        "resident_bytes": summary.resident_bytes,
        "feature_bytes": summary.feature_bytes,
        "checkpoint_all_peak": summary.peak,
        "seconds": seconds,
        "memory_bytes": memory,
        "threads": torch.get_num_threads(),
    }


def compare(cases: list[str] | tuple[str, ...], commit: str, processes: int) -> None:
    """Time cases by the code of a commit and by this one, and publish both."""
    found = [entry for entry in kept("capture_seconds") if entry["case"] not in cases]
    with checked_out(commit) as before:
        for case in cases:
            runs: dict[str, list[dict[str, Any]]] = {"before": [], "after": []}
            for number in range(processes):
                order = [("before", before), ("after", ROOT)]
                for name, tree in order[:: -1 if number % 2 else 1]:
                    command = [sys.executable, str(Path(__file__).resolve()), case, "--timed"]
                    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
                    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
                    runs[name].append(json.loads(done.stdout))
            graphs = {run["graphs"] for each in runs.values() for run in each}
            if len(graphs) != 1:
                raise SystemExit(f"{case}: the graphs before and after are not the same")
            found.append({"case": case, "operations": runs["after"][0]["operations"], **runs})
            rows = [seconds_row(entry) for entry in found]  # written after each case
            publish("capture_seconds", ("case", "operations", *KINDS), rows, found, threads=1)


def seconds_row(entry: dict[str, Any]) -> list[str]:
    cells = []
    for kind in KINDS:
        sides = []
        for side in ("before", "after"):
            seconds = [taken["cpu"] for run in entry[side] for taken in run["taken"] if taken["kind"] == kind]
            sides.append(statistics.median(seconds) if seconds else None)
        old, new = sides
        cells.append("" if old is None or new is None else f"{old:.2f} → {new:.2f} s ({new / old - 1:+.0%})")
    return [entry["case"], str(entry["operations"]), *cells]


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The files of a commit, in a worktree of their own."""
    git = ["git", "-C", str(ROOT), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def time_one(case: str) -> dict[str, Any]:
    """Capture a case in this process, first and again, with alternatives, and profile it."""
    module, args, kwargs, loss, can_run = timed_case(case)
    taken: list[dict[str, Any]] = []

    def timed(kind: str, work: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        done = work()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        taken.append({"kind": kind, "cpu": cpu, "wall": wall})
        return done

    graph = timed("first", lambda: rx.capture(module, args, kwargs, loss=loss))
    again = timed("again", lambda: rx.capture(module, args, kwargs, loss=loss))
    if can_run:
        timed("profile", lambda: rx.profile(again, module, args, kwargs, loss=loss, refresh=True))
    exact = timed("exact", lambda: rx.capture(module, args, kwargs, loss=loss, implementations="exact"))
    graphs = [graph, again, exact]
    return {"operations": graph.n, "graphs": " ".join(graph.sha256 for graph in graphs), "taken": taken}


def timed_case(case: str) -> tuple[Any, tuple[Any, ...], dict[str, Any] | None, Any, bool]:
    """Model, inputs, keyword inputs, loss, and whether there are numbers in them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch.manual_seed(0)
    if case == "yolo":
        return Yolo(), (torch.randn(2, 3, 160, 160),), None, lambda output: output.square().mean(), True
    if case == "neox":
        import transformers

        config = transformers.GPTNeoXConfig(
            vocab_size=128,
            hidden_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=64,
            use_cache=False,
        )
        words = torch.randint(0, 128, (2, 32))
        return transformers.GPTNeoXForCausalLM(config), (), {"input_ids": words, "labels": words}, None, True
    loaded = rx.models.load(case)
    shapes = loaded.shapes
    with FakeTensorMode(allow_non_fake_inputs=True):
        return shapes, loaded.make_args(), None, None, False


def convolution(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.SiLU(inplace=True))


class CrossStage(nn.Module):
    """Halves of which one goes through bottlenecks, whose results are all joined: YOLOv8's C2f."""

    def __init__(self, inputs: int, outputs: int, count: int, adds: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.last = convolution(inputs, outputs), convolution((2 + count) * half, outputs)
        self.inner = nn.ModuleList(
            nn.Sequential(convolution(half, half, 3), convolution(half, half, 3)) for _ in range(count)
        )
        self.adds = adds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for block in self.inner:
            parts.append(parts[-1] + block(parts[-1]) if self.adds else block(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """The layers of YOLOv8n (Jocher et al., 2023), without what it does to boxes: 483 operations there, 490 here."""

    def __init__(self) -> None:
        super().__init__()
        down = [convolution(a, b, 3, 2) for a, b in [(3, 16), (16, 32), (32, 64), (64, 128), (128, 256)]]
        stages = [CrossStage(c, c, n, True) for c, n in [(32, 1), (64, 2), (128, 2), (256, 1)]]
        self.start, self.down, self.stages = down[0], nn.ModuleList(down[1:]), nn.ModuleList(stages)
        self.narrow, self.wide, self.pool = convolution(256, 128), convolution(512, 256), nn.MaxPool2d(5, 1, 2)
        self.up = nn.Upsample(scale_factor=2)
        joins = [(384, 128), (192, 64), (192, 128), (384, 256)]
        self.joins = nn.ModuleList(CrossStage(a, b, 1, False) for a, b in joins)
        self.back = nn.ModuleList([convolution(64, 64, 3, 2), convolution(128, 128, 3, 2)])
        self.boxes = nn.ModuleList(self._head(c, 64) for c in (64, 128, 256))
        self.classes = nn.ModuleList(self._head(c, 80) for c in (64, 128, 256))

    @staticmethod
    def _head(inputs: int, outputs: int) -> nn.Sequential:
        layers = convolution(inputs, outputs, 3), convolution(outputs, outputs, 3), nn.Conv2d(outputs, outputs, 1)
        return nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, scales = self.start(x), []
        for down, stage in zip(self.down, self.stages, strict=True):
            x = stage(down(x))
            scales.append(x)
        pooled = [self.narrow(x)]
        for _ in range(3):
            pooled.append(self.pool(pooled[-1]))
        large = self.wide(torch.cat(pooled, 1))
        middle = self.joins[0](torch.cat([self.up(large), scales[2]], 1))
        small = self.joins[1](torch.cat([self.up(middle), scales[1]], 1))
        middle = self.joins[2](torch.cat([self.back[0](small), middle], 1))
        large = self.joins[3](torch.cat([self.back[1](middle), large], 1))
        found = [
            torch.cat([boxes(part), classes(part)], 1).flatten(2)
            for boxes, classes, part in zip(self.boxes, self.classes, (small, middle, large), strict=True)
        ]
        return torch.cat(found, 2).transpose(1, 2)


def resident_set(entry: str) -> int:
    """Bytes of this process in memory: now (VmRSS), or at their highest (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(entry)))


def row(entry: dict[str, Any]) -> list[str]:
    size = f"{entry['batch']}"
    size += " x {} x {}".format(*entry["image"]) if entry["image"] else ""
    size += f" x {entry['sequence']} tokens" if entry["sequence"] else ""
    return [
        entry["model"],
        size,
        str(entry["raw_nodes"]),
        str(entry["operations"]),
        str(entry["values"]),
        f"{entry['parameters']:,}",
        f"{entry['feature_bytes'] / 1e9:.2f}",
        f"{entry['checkpoint_all_peak'] / 1e9:.2f}",
        f"{entry['seconds']:.1f}",
        format_bytes(entry["memory_bytes"]),
    ]


if __name__ == "__main__":
    main()

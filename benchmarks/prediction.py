"""Predicted against measured peak of optimal schedules, for every model of the zoo, profiled, at four budgets.

    python benchmarks/prediction.py
    python benchmarks/prediction.py resnet50:32:224 --device cuda

Budgets lie between the smallest one with a known schedule (f = 0) and what keeping everything takes (f = 1). Plain
PyTorch runs beside each: loss, gradients, buffers and random state must be equal bit for bit.
"""

from __future__ import annotations

import argparse

import torch
from report import publish

import remat_explorer as rx
from remat_explorer.quantities import format_bytes, format_overhead

SMALL = {
    "bert": (4, None, 128),
    "chain": (4096, None, None),
    "densenet121": (2, 64, None),
    "densenet161": (2, 64, None),
    "fcn8": (1, 64, None),
    "googlenet": (4, 64, None),
    "gpt2": (2, None, 128),
    "linear32": (1, 32, None),
    "mlp": (2048, None, None),
    "mobilenet_v1": (4, 64, None),
    "mobilenet_v2": (4, 64, None),
    "residual_net": (32, 32, None),
    "resnet18": (4, 64, None),
    "resnet50": (4, 64, None),
    "segnet": (1, 64, None),
    "unet": (1, 64, None),
    "unet_monet": (1, 64, None),
    "vgg16": (2, 32, None),
    "vgg19": (2, 32, None),
    "vit": (2, 64, None),
}
FRACTIONS = (1.0, 0.5, 0.2, 0.0)
COLUMNS = (
    "model", "size", "f", "status", "budget", "predicted", "measured", "error", "without resident", "within", "results",
    "cost", "plain PyTorch",
)  # fmt: skip


def small_models() -> list[str]:
    """The models that a CPU runs: the large language and diffusion models are none."""
    plain = [name for name in rx.models.names() if rx.models.published_size(name).layers is None]
    return [name for name in plain if rx.models.load(name).weight_bytes <= 2**30]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="MODEL[:BATCH[:IMAGE]]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--fractions", type=float, nargs="+", default=FRACTIONS)
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds for each schedule")
    options = parser.parse_args()
    sizes = dict(map(size_of, options.cases)) or {name: SMALL.get(name, (2, 64, None)) for name in small_models()}
    rows, details = [], []
    for name, (batch, image, sequence) in sizes.items():
        loaded = rx.models.load(name, batch, image, sequence, device=options.device)
        graph = rx.profile(loaded.graph, loaded.module, loaded.args, device=options.device, repeats=1, refresh=True)
        smallest = rx.minimum_budget(graph)
        size = rx.models.Size(loaded.batch, loaded.image, loaded.sequence)
        for fraction in options.fractions:
            room = smallest.checkpoint_all_peak - smallest.known_feasible
            budget = smallest.known_feasible + int(fraction * room)
            solution = rx.solve(graph, budget, time_limit=options.time_limit)
            measured = rx.measure(solution, loaded.module, loaded.args, device=options.device, repeats=1)
            details.append({"model": name, "size": str(size), "fraction": fraction, **measured.to_document()})
            rows.append(
                [
                    name,
                    str(size),
                    f"{fraction:g}",
                    str(solution.status),
                    format_bytes(budget),
                    format_bytes(measured.predicted_peak),
                    format_bytes(measured.peak),
                    f"{measured.error:+.3%}",
                    f"{measured.dynamic_error:+.3%}",
                    "yes" if measured.within_budget else "NO",
                    {True: "equal", False: "DIFFER", None: "not compared"}[measured.equal],
                    format_overhead(measured.predicted_overhead),
                    format_bytes(measured.eager.peak) if measured.eager else "",
                ]
            )
            print(" ".join(rows[-1]), flush=True)
    device = torch.cuda.get_device_name() if options.device.startswith("cuda") else "CPU"
    publish(f"prediction_{options.device}", COLUMNS, rows, details, device=device, threads=torch.get_num_threads())
    worst = max(abs(entry["error"]) for entry in details)
    broken = [entry["model"] for entry in details if not entry["within_budget"] or entry["random_state_equal"] is False]
    print(f"largest error {worst:.4%}; {len(details)} schedules; above budget or different: {broken or 'none'}")


def size_of(case: str) -> tuple[str, tuple[int | None, int | None, int | None]]:
    """A model's name, with batch and image size where they are given."""
    name, *sizes = case.split(":")
    batch, image = [*map(int, sizes), None, None][:2]
    return name, (batch, image, None)


if __name__ == "__main__":
    main()

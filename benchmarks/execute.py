"""Predicted against measured: profile, solve, execute, for models and budgets on one device.

python benchmarks/execute.py --device cuda --batch 64 --image 224 --budgets 80% 60%
"""

from __future__ import annotations

import argparse

import torch
from report import publish

import remat_explorer as rx
from remat_explorer.quantities import format_bytes, format_overhead

COLUMNS = ("model", "budget", "status", "predicted", "measured", "error", "cost predicted", "cost measured", "eager")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["vgg16", "unet", "residual_net"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--image", type=int, default=64)
    parser.add_argument("--budgets", nargs="+", default=["90%", "70%"])
    parser.add_argument("--time-limit", type=float, default=10.0)
    options = parser.parse_args()
    rows, details = [], []
    for name in options.models:
        loaded = rx.models.load(name, batch=options.batch, image=options.image)
        graph = rx.profile(loaded.graph, loaded.module, loaded.args, device=options.device)
        for budget in options.budgets:
            solution = rx.solve(graph, budget=budget, time_limit=options.time_limit)
            if solution.schedule is None:
                rows.append([name, budget, str(solution.status), *[""] * 6])
                continue
            measured = rx.measure(solution, loaded.module, loaded.args, device=options.device)
            details.append({"model": name, "budget": budget, **measured.to_document()})
            rows.append(
                [
                    name,
                    budget,
                    str(solution.status),
                    format_bytes(measured.predicted_peak),
                    format_bytes(measured.peak),
                    f"{100 * measured.error:+.3f} %",
                    format_overhead(measured.predicted_overhead),
                    format_overhead(measured.overhead),
                    format_bytes(measured.eager_peak) if measured.eager_peak else "",
                ]
            )
            if not (measured.gradients_equal and measured.within_budget):
                raise SystemExit(f"{name} at {budget} contradicts its prediction:\n{measured}")
    device = torch.cuda.get_device_name() if options.device.startswith("cuda") else "CPU"
    where = {"device": device, "batch": options.batch, "image": options.image, "threads": torch.get_num_threads()}
    publish(f"execute_{options.device}", COLUMNS, rows, details, **where)


if __name__ == "__main__":
    main()

"""Predicted against measured: profile, solve, execute, for models and budgets on one device.

    python benchmarks/execute.py
    python benchmarks/execute.py vgg16:256:224 unet:32:416 --device cuda

Budgets lie between the smallest one with a known schedule (f = 0) and what keeping everything takes (f = 1).
"""

from __future__ import annotations

import argparse

import torch
from report import publish

import remat_explorer as rx
from remat_explorer.quantities import format_bytes, format_overhead

CASES = ["mlp:2048", "residual_net:128:32", "unet:8:64", "vgg16:32:64"]
COLUMNS = ("model", "f", "status", "predicted", "measured", "error", "plain", "cost predicted", "cost measured")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="MODEL:BATCH[:IMAGE]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.5, 0.0])
    parser.add_argument("--time-limit", type=float, default=20.0)
    options = parser.parse_args()
    rows, details = [], []
    for case in options.cases:
        name, *sizes = case.split(":")
        batch, image = [*map(int, sizes), None][:2]
        loaded = rx.models.load(name, batch=batch, image=image, device=options.device)
        graph = rx.profile(loaded.graph, loaded.module, loaded.args, device=options.device, refresh=True)
        smallest = rx.minimum_budget(graph)
        for fraction in options.fractions:
            room = smallest.checkpoint_all_peak - smallest.known_feasible
            solution = rx.solve(graph, int(smallest.known_feasible + fraction * room), time_limit=options.time_limit)
            measured = rx.measure(solution, loaded.module, loaded.args, device=options.device)
            details.append({"case": case, "fraction": fraction, **measured.to_document()})
            rows.append(
                [
                    case,
                    f"{fraction:g}",
                    str(solution.status),
                    format_bytes(measured.predicted_peak),
                    format_bytes(measured.peak),
                    f"{100 * measured.dynamic_error:+.3f} %",
                    format_bytes(measured.eager.peak) if measured.eager else "",
                    format_overhead(measured.predicted_overhead),
                    "" if measured.overhead is None else format_overhead(measured.overhead),
                ]
            )
            if not measured.sound:
                raise SystemExit(f"{case} at f = {fraction} contradicts its prediction:\n{measured}")
    device = torch.cuda.get_device_name() if options.device.startswith("cuda") else "CPU"
    publish(f"execute_{options.device}", COLUMNS, rows, details, device=device, threads=torch.get_num_threads())


if __name__ == "__main__":
    main()

"""Predicted against measured peak of keeping everything, for every model of the zoo, profiled.

    python benchmarks/prediction.py
    python benchmarks/prediction.py resnet50:32:224 --device cuda

Plain PyTorch runs beside it: gradients must be equal bit for bit.
"""

from __future__ import annotations

import argparse

import torch
from report import publish

import remat_explorer as rx
from remat_explorer.quantities import format_bytes

SMALL = {
    "bert": (2, None, 64),
    "chain": (8, None, None),
    "densenet121": (2, 64, None),
    "densenet161": (2, 64, None),
    "fcn8": (1, 64, None),
    "googlenet": (4, 64, None),
    "gpt2": (1, None, 64),
    "linear32": (1, 32, None),
    "mlp": (128, None, None),
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
COLUMNS = ("model", "size", "predicted", "measured", "error", "without resident", "plain PyTorch", "gradients")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="MODEL[:BATCH[:IMAGE]]")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    sizes = dict(map(size_of, options.cases)) or {name: SMALL.get(name, (2, 64, None)) for name in rx.models.names()}
    rows, details = [], []
    for name, (batch, image, sequence) in sizes.items():
        loaded = rx.models.load(name, batch, image, sequence, device=options.device)
        graph = rx.profile(loaded.graph, loaded.module, loaded.args, device=options.device, repeats=1, refresh=True)
        solution = rx.solve(graph, "100%", strategy="checkpoint-all")
        measured = rx.measure(solution, loaded.module, loaded.args, device=options.device, repeats=1)
        size = rx.models.Size(loaded.batch, loaded.image, loaded.sequence)
        details.append({"model": name, "size": str(size), **measured.to_document()})
        rows.append(
            [
                name,
                str(size),
                format_bytes(measured.predicted_peak),
                format_bytes(measured.peak),
                f"{measured.error:+.3%}",
                f"{measured.dynamic_error:+.3%}",
                format_bytes(measured.eager_peak),
                "equal" if measured.gradients_equal else f"differ by {measured.gradient_difference:g}",
            ]
        )
        print(" ".join(rows[-1]), flush=True)
    device = torch.cuda.get_device_name() if options.device.startswith("cuda") else "CPU"
    publish(f"prediction_{options.device}", COLUMNS, rows, details, device=device, threads=torch.get_num_threads())


def size_of(case: str) -> tuple[str, tuple[int | None, int | None, int | None]]:
    """A model's name, with batch and image size where they are given."""
    name, *sizes = case.split(":")
    batch, image = [*map(int, sizes), None, None][:2]
    return name, (batch, image, None)


if __name__ == "__main__":
    main()

"""Predicted costs, by the published rates of a device, against measured ones: each operation and implementation.

Where the parts memory and monet_paper have run on this machine, their profiles are taken from the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from monet_models import NETWORKS

import remat_explorer as rx
from gpu_parts.memory import REPEATS, emptied, quiet
from gpu_parts.models import Loaded, load, names
from gpu_parts.monet_paper import TINY
from gpu_parts.work import Work

RATES = "H100"  # of the devices whose rates are published in the table, the nearest to an H200
PRICED = f"{RATES}, by kernels"  # as files name these costs; those by "H100" alone were its roofline
ALL = ": all implementations"


def run(work: Work) -> None:
    """Models of the zoo by operation, and MONeT's networks by implementation."""
    networks = [TINY.name] if work.tiny else list(NETWORKS)

    def measure(name: str) -> dict[str, Any]:
        found = by_implementation(name.removesuffix(ALL), work) if name.endswith(ALL) else by_operation(name, work)
        emptied(work.device)
        return found

    zoo = names(work.tiny)
    choices = [f"{name}{ALL}" for name in networks]
    work.each([*zoo[:6], *choices, *zoo[6:]], measure)


def by_operation(name: str, work: Work) -> dict[str, Any]:
    """Every operation of a model, each with its default implementation."""
    loaded = load(name, work.device, work.tiny)
    predicted = loaded.graph(device=RATES)
    measured = rx.profile(predicted, loaded.module, loaded.args, device=work.device, repeats=REPEATS, on_progress=quiet)
    return _compared(predicted, measured, loaded)


def by_implementation(name: str, work: Work) -> dict[str, Any]:
    """Every implementation of the operations of one of MONeT's networks."""
    cuda = work.device.startswith("cuda")
    network = TINY if work.tiny else NETWORKS[name]
    batch, image = network.small if work.tiny or not cuda else (network.batch, None)
    zoo = rx.models.load(name, batch, image, device=work.device)
    loaded = Loaded(name, str(rx.models.Size(zoo.batch, zoo.image, zoo.sequence)), zoo.module, zoo.make_args)
    predicted = rx.capture(loaded.module, loaded.args, device=RATES, implementations="all")
    measured = rx.profile(predicted, loaded.module, loaded.args, device=work.device, on_progress=quiet)
    return _compared(predicted, measured, loaded)


def _compared(predicted: rx.Graph, measured: rx.Graph, loaded: Loaded) -> dict[str, Any]:
    rows: list[list[Any]] = []
    for before, after in zip(predicted.operations, measured.operations, strict=True):
        pairs = zip(before.implementations, after.implementations, strict=True)
        for place, (guess, real) in enumerate(pairs):
            rows.append([before.name, place, guess.name, list(guess.kinds), guess.cost, real.cost, real.workspace])
    types = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in loaded.module.parameters()})
    return {
        "size": loaded.size,
        "rates": PRICED,
        "types": types,
        "tf32": {"convolutions": torch.backends.cudnn.allow_tf32, "products": torch.backends.cuda.matmul.allow_tf32},
        "columns": ["operation", "place", "implementation", "kinds", "predicted", "measured", "workspace"],
        "rows": rows,
    }

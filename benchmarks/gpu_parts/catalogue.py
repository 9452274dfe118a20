"""What waits for a GPU, in an order of value, and the minutes that each part may take. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.errors import UnknownNameError


@dataclass(frozen=True)
class Part:
    """One part of the measurements.

    Attributes:
        name: of the part, of its file, and of its module in this folder.
        title: what it shows.
        minutes: that it may take in all runs together.
        environment: variables that must be set before torch is loaded.
    """

    name: str
    title: str
    minutes: float
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def module(self) -> str:
        """Where its function ``run`` is."""
        return f"gpu_parts.{self.name}"


PARTS = {
    part.name: part
    for part in (
        Part("validation", "predicted against measured peak and results: nine models, two budgets", 3.0),
        Part("explorer", "the explorer, driven without a browser: load, solve, execute", 0.75),
        Part("training", "ten steps of rx.rematerialize beside plain PyTorch: losses, peaks, times", 0.75),
        Part(
            "exactness",
            "results beside plain PyTorch: TF32, autocast, deterministic algorithms, random models",
            2.0,
            (("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),),  # deterministic algorithms refuse cuBLAS without it
        ),
        Part("convolutions", "cuDNN's plans on three convolutions", 0.5),
        Part("monet_paper", "MONeT's Table 1 and points of Figures 3, 5 and 7, with cuDNN's plans", 4.0),
        Part("marked_tests", "the tests marked gpu", 3.0),
        Part("memory", "predicted against measured peak and overhead, at four budgets", 6.0),
        Part("costs", "predicted against measured cost of each operation and implementation", 1.5),
        Part("pytorch_ways", "PyTorch's own ways, and our schedule at the peak of each", 2.0),
        Part("compiled", "rx.compile, with Inductor and without, beside torch.compile", 3.5),
    )
}


def find_part(name: str) -> Part:
    """The part called ``name``.

    Raises:
        UnknownNameError: if there is none; near matches are listed.
    """
    if name not in PARTS:
        raise UnknownNameError("part", name, PARTS)
    return PARTS[name]

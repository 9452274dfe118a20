"""Three presentations: each is a model, and a list of scenes to be changed or copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remat_explorer.errors import UnknownNameError
from remat_explorer.explorer.app import Explorer
from remat_explorer.explorer.controllers.scenes import PEAK, RECOMPUTATION, Scene


@dataclass(frozen=True)
class Presentation:
    """A model and its scenes.

    Attributes:
        model: name of a model of the zoo.
        settings: what else `Explorer` is given.
        scenes: from the first one to the last.
    """

    model: str
    settings: Mapping[str, Any]
    scenes: tuple[Scene, ...]


CHECKMATE_FIGURE_1 = Presentation(
    "linear32",
    {"batch": 71, "image": 224, "measured_costs": False},  # at its published size it is not executed here
    (
        Scene(
            "32 layers of a network: keeping every value for the backward pass takes {keep_all}",
            "100%",
            "model",
            at=PEAK,
        ),
        Scene("Drag to 40 %: a schedule of {peak}, for {overhead} time", "40%", "matrices", "explain", RECOMPUTATION),
        Scene("Where memory is highest: {peak} instead of {keep_all}", picture="model", panel="peak", at=PEAK),
        Scene(
            "This is freed, and computed again when the backward pass needs it",
            None,
            "model",
            "explain",
            RECOMPUTATION,
        ),
        Scene(
            "One training step: {saved} less memory than keeping everything",
            picture="model",
            panel="explain",
            play=True,
        ),
    ),
)
UNET = Presentation(
    "unet",
    {"batch": 8, "image": 128, "measured_costs": True},  # so that workspace is in the budget that the last scene proves
    (
        Scene(
            "A U-Net: its skips carry values from the first layers to the last. All kept: {keep_all}",
            "100%",
            "model",
            at=PEAK,
        ),
        Scene(
            "Drag to 75 %: {recomputations} operations run again, {overhead} time",
            "75%",
            "matrices",
            "explain",
            RECOMPUTATION,
        ),
        Scene("Where memory is highest: {peak}", picture="model", panel="peak", at=PEAK),
        Scene(
            "This is freed, and computed again when the backward pass needs it",
            picture="model",
            panel="explain",
            at=RECOMPUTATION,
        ),
        Scene("One training step, compared with plain PyTorch", picture="model", panel="explain", play=True),
        Scene("Prove it: {proof}", picture="matrices", panel="execution", execute=True),
    ),
)
GPT2 = Presentation(
    "gpt2",
    {"batch": 32, "measured_costs": False},  # so that its values take more than its parameters
    (
        Scene("GPT-2: twelve blocks, each of which keeps its values. Together {keep_all}", "100%", "model", at=PEAK),
        Scene("Drag to 60 %: {peak}, for {overhead} time", "60%", "matrices", "explain", RECOMPUTATION),
        Scene("Where memory is highest: {peak}", picture="matrices", panel="peak", at=PEAK),
        Scene(
            "This is freed, and computed again when the backward pass needs it",
            picture="model",
            panel="explain",
            at=RECOMPUTATION,
        ),
        Scene(
            "One training step: {saved} less memory than keeping everything",
            picture="model",
            panel="explain",
            play=True,
        ),
    ),
)
PRESENTATIONS = {"checkmate-figure-1": CHECKMATE_FIGURE_1, "unet": UNET, "gpt2": GPT2}


def presentation(name: str, **settings: Any) -> Explorer:
    """An explorer that presents one of `PRESENTATIONS`; it begins when its model is loaded.

    Args:
        name: "checkmate-figure-1", the 32-layer network of Checkmate's Figure 1; "unet"; or "gpt2", which needs
            transformers.
        settings: of `Explorer`, in place of the presentation's own.

    Raises:
        UnknownNameError: if there is no such presentation.

    >>> presentation("vgg")
    Traceback (most recent call last):
        ...
    remat_explorer.errors.UnknownNameError: unknown presentation 'vgg'. Known: checkmate-figure-1, gpt2, unet
    """
    if name not in PRESENTATIONS:
        raise UnknownNameError("presentation", name, PRESENTATIONS)
    chosen = PRESENTATIONS[name]
    explorer = Explorer(chosen.model, **{**chosen.settings, **settings})
    explorer.present(chosen.scenes)
    return explorer

"""The networks of both papers' evaluations, as training graphs.

Checkmate's layer-level graphs come as files, and one is built by the rules of `remat_explorer.papers.layer_rules`:
costs are FLOPs, a convolution with its ReLU is one node, the backward pass of a layer costs twice its forward pass, and
bytes and costs are those of one example. Captured graphs have the
operators of PyTorch, with costs by a roofline of the papers' GPUs, since none of these is at hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from remat_explorer.errors import UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.papers.layer_rules import fcn8
from remat_explorer.solvers import scale_batch

LAYERS = {  # the paper's name, and the file
    "VGG16": "keras_VGG16",
    "VGG19": "keras_VGG19",
    "MobileNet": "keras_MobileNet",
    "U-Net": "keras_vgg_unet",
    "SegNet": "keras_segnet",
    "ResNet50": "keras_ResNet50",
}
BUILT = {"FCN8": fcn8}  # the seventh, made by the same rules
SHARE = Path(__file__).parent  # where the installed package has its data
REPOSITORY = Path(__file__).parents[2] / "tests" / "data"  # and where the repository has it


def layer_graph(name: str, batch: int = 1) -> Graph:
    """A network of Checkmate's evaluation, layer by layer, at a batch size.

    Args:
        name: a key of `LAYERS` or `BUILT`.
        batch: examples; bytes and costs grow with it, parameters and their gradients do not.

    Raises:
        UnknownNameError: if there is no such network.

    Source: section 6 of Checkmate and its public model definitions, with FLOPs as the cost.

    >>> layer_graph("VGG19").n, layer_graph("VGG19", 2).total_cost / layer_graph("VGG19").total_cost
    (51, 2.0)
    """
    if name in BUILT:
        return scale_batch(BUILT[name](), batch)
    if name not in LAYERS:
        raise UnknownNameError("network", name, [*LAYERS, *BUILT])
    graph = Graph.load(str(data_file("graphs", f"{LAYERS[name]}.json")))
    return scale_batch(graph, batch)


def published_batches(name: str) -> dict[str, Any]:
    """What is known of a network's Figure 6: bytes that do not grow with the batch, and the authors' own baselines.

    Args:
        name: a key of `LAYERS` or `BUILT`.

    Returns:
        ``fixed_bytes``, ``paper_checkmate`` (the published batch, or None), and for each of the ``baselines`` its cost
        and its peak at batch 1, by the accounting of the program that the paper's authors published. Of what is built
        here no batch and no baselines.

    >>> published_batches("VGG19")["fixed_bytes"]
    1149337920
    """
    if name in BUILT:
        return {"paper_checkmate": None, "baselines": {}}
    key = LAYERS[name].removeprefix("keras_")
    return json.loads(data_file("max_batch_16GB.json").read_text(encoding="utf-8"))[key]


def captured_graph(
    name: str, device: str, batch: int | None = None, image: int | None = None, implementations: Iterable[str] = ()
) -> Graph:
    """A model of the zoo, captured without allocating its tensors.

    Args:
        name: as `remat_explorer.models.load` takes it.
        device: whose published rates give the costs in seconds.
        batch: examples; None for the published number.
        image: side in pixels; None for the published size.
        implementations: kinds of other ways to compute operations, keys of `remat_explorer.capture_options.KINDS`.
    """
    from remat_explorer import models
    from remat_explorer.capture_options import CaptureOptions
    from remat_explorer.model_source import Source, capture_source

    loaded = models.load(name, batch, image)
    options = CaptureOptions(implementations=tuple(implementations))
    return capture_source(Source(loaded.module, loaded.make_args, name=name), device, options)


def data_file(*parts: str) -> Path:
    """The path of a file of the papers' data, in the installed package or in the repository.

    Raises:
        UnknownNameError: if it is not there.
    """
    for folder in (SHARE, REPOSITORY):
        if (path := folder.joinpath(*parts)).exists():
            return path
    raise UnknownNameError("file of the papers' data", parts[-1], [])

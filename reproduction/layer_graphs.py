"""The networks of both papers' evaluations, as training graphs.

Checkmate's layer graphs come as files, and FCN8 is made here by their rules: a convolution with its ReLU is one layer.
Costs are multiply-accumulates of one example; 4 for each element of batch normalization, 1 for each of an activation of
its own, and for each that is added; none for what only moves values. The gradient of a layer costs twice the layer and
has its bytes, and reads the layer's output, and outputs and gradients of all layers that read it. The loss costs
nothing and holds one float. Parameters count twice: with their gradients.

Captured graphs have the operators of PyTorch, with costs by a roofline of the papers' GPUs, since none of these is at
hand.

Source: Jain et al., Checkmate (MLSys 2020), section 6, and the model definitions that it names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from remat_explorer.errors import UnknownNameError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.solvers import scale_batch

FLOAT = 4  # bytes
CLASSES = 19  # of the street scenes that the segmentation networks label
IMAGE = (416, 608)  # section 6.4
BLOCKS = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # of VGG16: channels and convolutions before each pooling
Shape = tuple[int, int, int]  # height, width, channels


@dataclass(frozen=True)
class Layer:
    """A layer of a network: what it reads, by number, the elements that it writes, its cost, and its parameters."""

    name: str
    reads: tuple[int, ...]
    elements: int
    cost: int = 0
    parameters: int = 0


def training_graph(name: str, layers: Sequence[Layer]) -> Graph:
    """The layers, the loss of the last one, and the gradient of each, last to first.

    Args:
        name: of the graph.
        layers: in an order in which they can run; they read earlier ones only. The image is no layer.

    >>> graph = training_graph("two", [Layer("a", (), 6, 10, 3), Layer("b", (0,), 2, 5, 1)])
    >>> [graph.inputs(k) for k in range(graph.n)]
    [(), (0,), (1,), (1, 2), (0, 1, 3)]
    >>> graph.costs.tolist(), graph.resident_bytes
    ([10.0, 5.0, 0.0, 10.0, 20.0], 32)
    """
    count = len(layers)
    readers: list[list[int]] = [[] for _ in layers]
    for k, layer in enumerate(layers):
        for i in layer.reads:
            readers[i].append(k)
    readers[-1].append(count)
    nodes = [operation(layer.name, "forward", layer.reads, [k], layer.cost) for k, layer in enumerate(layers)]
    nodes.append(operation("loss", "backward", [count - 1], [count], 0))
    values = [Value(layer.name, FLOAT * layer.elements) for layer in layers] + [Value("loss", FLOAT)]
    for i, layer in reversed(list(enumerate(layers))):
        outputs = [k for k in readers[i] if k < count]
        gradients = [2 * count - k for k in readers[i]]
        reads = sorted({i, *outputs, *gradients})
        nodes.append(operation(f"gradient of {layer.name}", "backward", reads, [len(values)], 2 * layer.cost))
        values.append(Value(f"gradient of {layer.name}", FLOAT * layer.elements))
    resident = 2 * FLOAT * sum(layer.parameters for layer in layers)
    return Graph(name, tuple(values), tuple(nodes), resident)


def moves_charged(graph: Graph) -> Graph:
    """The graph where a layer that only moves values (pooling, padding, concatenation, ...) costs what it moves.

    That is one for each element that it reads or writes, and twice that for its gradient. The loss stays free.

    Args:
        graph: a layer graph, whose operation n - 1 - k is the gradient of forward operation k.

    >>> graph = training_graph("two", [Layer("a", (), 6, 10), Layer("pool", (0,), 2)])
    >>> moves_charged(graph).costs.tolist()
    [10.0, 8.0, 0.0, 16.0, 20.0]
    """
    nodes = list(graph.operations)
    for k in np.flatnonzero(~graph.is_backward & (graph.costs == 0)).tolist():
        moved = int(graph.value_bytes[[*graph.inputs(k), *graph.outputs(k)]].sum()) // FLOAT
        for operation_number, cost in ((k, moved), (graph.n - 1 - k, 2 * moved)):
            node = nodes[operation_number]
            nodes[operation_number] = replace(node, implementations=(replace(node.default, cost=cost),))
    return Graph(graph.name, graph.values, tuple(nodes), graph.resident_bytes)


class _Network:
    """Layers that are added one after the other, with their shapes; `add` and the like give the layer's number."""

    def __init__(self, image: Shape) -> None:
        self.image = image
        self.layers: list[Layer] = []
        self.shapes: list[Shape] = []

    def add(self, name: str, reads: Sequence[int], shape: Shape, cost: int = 0, parameters: int = 0) -> int:
        self.layers.append(Layer(name, tuple(reads), prod(shape), cost, parameters))
        self.shapes.append(shape)
        return len(self.layers) - 1

    def convolution(self, name: str, x: int | None, channels: int, kernel: int) -> int:
        height, width, before = self.image if x is None else self.shapes[x]
        weights, shape = kernel * kernel * before * channels, (height, width, channels)
        return self.add(name, () if x is None else (x,), shape, height * width * weights, weights + channels)

    def pooling(self, name: str, x: int) -> int:
        height, width, channels = self.shapes[x]
        return self.add(name, (x,), (height // 2, width // 2, channels))

    def transposed_convolution(self, name: str, x: int, kernel: int, stride: int) -> int:
        height, width, channels = self.shapes[x]
        weights = kernel * kernel * channels * channels
        shape = ((height - 1) * stride + kernel, (width - 1) * stride + kernel, channels)
        return self.add(name, (x,), shape, height * width * weights, weights)

    def cropped(self, name: str, x: int, like: int) -> int:
        """Two layers, as the published model has them: the width, and then the height."""
        height, width, _ = self.shapes[like]
        narrow = self.add(f"{name} width", (x,), (self.shapes[x][0], width, self.shapes[x][2]))
        return self.add(f"{name} height", (narrow,), (height, width, self.shapes[x][2]))

    def sum(self, name: str, x: int, y: int) -> int:
        return self.add(name, (x, y), self.shapes[x], 2 * prod(self.shapes[x]))


def fcn8() -> Graph:
    """FCN8 with the layers of VGG16 at 416 x 608 pixels, at batch 1.

    Source: `fcn_8_vgg` of image-segmentation-keras, which Checkmate evaluated; its scores come from three levels.

    >>> graph = fcn8()
    >>> graph.n, graph.resident_bytes
    (73, 1075655880)
    """
    network = _Network((*IMAGE, 3))
    x: int | None = None
    levels = []
    for block, (channels, convolutions) in enumerate(BLOCKS, 1):
        for i in range(1, convolutions + 1):
            x = network.convolution(f"block{block} conv{i}", x, channels, 3)
        assert x is not None
        x = network.pooling(f"block{block} pool", x)
        levels.append(x)
    for i, kernel in ((1, 7), (2, 1)):
        x = network.convolution(f"conv{5 + i}", x, 4096, kernel)
        x = network.add(f"dropout{5 + i}", (x,), network.shapes[x])
    scores = network.convolution("scores", x, CLASSES, 1)
    for level in (4, 3):
        finer_than = network.transposed_convolution(f"up to level {level}", scores, 4, 2)
        finer = network.convolution(f"scores of level {level}", levels[level - 1], CLASSES, 1)
        cropped = network.cropped(f"crop to level {level}", finer_than, finer)
        scores = network.sum(f"sum at level {level}", cropped, finer)
    scores = network.transposed_convolution("up to the image", scores, 16, 8)
    height, width, channels = network.shapes[scores]
    pixels = network.add("pixels", (scores,), (height * width, 1, channels))
    network.add("softmax", (pixels,), network.shapes[pixels], prod(network.shapes[pixels]))
    return training_graph("fcn_8_vgg", network.layers)


LAYERS = {  # the paper's name, and the file
    "VGG16": "keras_VGG16",
    "VGG19": "keras_VGG19",
    "MobileNet": "keras_MobileNet",
    "U-Net": "keras_vgg_unet",
    "SegNet": "keras_segnet",
    "ResNet50": "keras_ResNet50",
}
BUILT = {"FCN8": fcn8}  # the seventh, made by the same rules
DATA = Path(__file__).parent / "data"
GRAPHS = Path(__file__).parents[1] / "tests" / "data" / "graphs"  # reference instances of tests, too


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
    graph = Graph.load(str(GRAPHS / f"{LAYERS[name]}.json"))
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
    return json.loads((DATA / "max_batch_16GB.json").read_text(encoding="utf-8"))[key]


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

"""What the authors of MONeT measured on a P100, and the calls of this project's captured networks that it is of.

Shah et al., Memory Optimization for Deep Networks (ICLR 2021), published the time of every operation of five networks
(https://github.com/utsaslab/monet-schedules). The table holds of each its type, the shapes that tell it from others,
and its time: of a convolution that of cuDNN's fastest algorithm, which each of them measured.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Node

import remat_explorer as rx
from remat_explorer.capture import Program, trace
from remat_explorer.capture.predicted_costs import ConvolutionArguments, Work, is_backward, wanted_gradients, works_of
from remat_explorer.errors import RematError

aten = torch.ops.aten
TABLE = Path(__file__).parents[1] / "tests" / "data" / "monet_p100.json"
NETWORKS = {"vgg16": "vgg16", "unet": "unet_monet", "resnet50": "resnet50"}  # the name there, and in the zoo
NETWORKS |= {"googlenet": "googlenet", "mobilenet_v2": "mobilenet_v2"}
MODE = "inplace_conv_normal"  # each convolution with every algorithm, and backward passes as PyTorch has them
Key = tuple[Any, ...]  # a type and shapes
SIMPLE: dict[Any, tuple[str, int | None]] = {  # the type, and the argument whose shape tells it apart; None: the result
    aten.relu: ("relu", None),
    aten.threshold_backward: ("relu gradient", None),
    aten.hardtanh: ("hardtanh", None),
    aten.hardtanh_backward: ("hardtanh gradient", None),
    aten.cat: ("concatenation", None),
    aten.add: ("add", None),
    aten.native_dropout: ("dropout", None),
    aten.native_dropout_backward: ("dropout gradient", None),
    aten._native_batch_norm_legit_functional: ("batch norm", None),
    aten.native_batch_norm_backward: ("batch norm gradient", 0),
}
POOLING: dict[Any, tuple[str, bool]] = {  # the type, and whether it is a gradient
    aten.max_pool2d_with_indices: ("max pooling", False),
    aten.max_pool2d_with_indices_backward: ("max pooling gradient", True),
    aten._adaptive_avg_pool2d: ("adaptive average pooling", False),
    aten._adaptive_avg_pool2d_backward: ("adaptive average pooling gradient", True),
}
THEIRS = {"relu_": "relu", "hardtanh_": "hardtanh", "batch_norm": "batch norm", "cat": "concatenation", "add_": "add"}
THEIRS |= {"max_pool2d": "max pooling", "adaptive_avg_pool2d": "adaptive average pooling"}


@dataclass(frozen=True, eq=False)
class Measured:
    """A published time, and the calls of a captured network that take it.

    Attributes:
        type: of the operation, in words.
        ms: measured.
        calls: the nodes that do the same.
        works: what they ask of a device.
        fakes: the tensors of the network.
    """

    type: str
    ms: float
    calls: tuple[Node, ...]
    works: tuple[Work, ...]
    fakes: Mapping[Node, Any]


@dataclass(frozen=True, eq=False)
class Network:
    """A captured network beside what was measured of it.

    Attributes:
        name: as published.
        program: what was captured.
        measured: the published operations that have their like in it.
        published_ms: of all operations, those that have none included.
    """

    name: str
    program: Program
    measured: list[Measured]
    published_ms: float


def extract(folder: Path) -> dict[str, Any]:
    """The table, from a folder with ``costs_NETWORK.json`` of every network.

    Raises:
        RematError: if a file is not there.
    """
    networks, source = {}, {}
    for name in NETWORKS:
        path = folder / f"costs_{name}.json"
        if not path.is_file():
            raise RematError(f"there is no {str(path)!r}; give the folder with costs_{name}.json")
        document = json.loads(path.read_text(encoding="utf-8"))
        source = {key: document["source"][key] for key in ("measurements", "measurements_commit", "paper")}
        rows = [[*key, float(f"{ms:.5g}")] for key, ms in _published(document)]
        networks[name] = {"batch": document["batch"], "operations": rows}
    about = {"device": "NVIDIA P100, 16 GB", "mode": MODE, "columns": ["type", "shape", "other shape", "ms"]}
    return {"format": "remat-explorer/p100", "version": 1, "source": source, **about, "networks": networks}


def _published(document: Mapping[str, Any]) -> Iterator[tuple[Key, float]]:
    """Type, shapes and milliseconds of each operation of a published file; views and losses take none."""
    nodes, mode = document["structures"]["plain"]["nodes"], document["modes"][MODE]
    filters: dict[int, list[int]] = {}
    for node in nodes:
        if shapes := node.get("parameter_shapes"):
            filters[node["of"]] = max(shapes, key=len)
    split = {node["of"] for node in nodes if node["op"].endswith("_param_grad")}

    def shape(node: Mapping[str, Any]) -> list[int]:
        return [document["batch"] if size == -1 else size for size in node["shape"]]

    for node in nodes:
        forward = nodes[node["of"]] if "of" in node else node
        kind = _type_of(node, forward, forward["id"] in split)
        if kind is not None:
            other = filters[forward["id"]] if "convolution" in kind or "linear" in kind else []
            other = shape(nodes[forward["inputs"][0]]) if "pooling" in kind else other
            times = mode["workspace_compute"][node["id"]]
            fastest = min((t for t in times if t >= 0), default=0.0)
            yield (kind, shape(forward), other), fastest if node["id"] in mode["convolutions"] else times[0]


def _type_of(node: Mapping[str, Any], forward: Mapping[str, Any], split: bool) -> str | None:
    """The type of a published operation in words; None of views, losses, and the gradient of images.

    Args:
        node: the operation.
        forward: that of the forward pass, which is the same or the one that it is a gradient of.
        split: whether the gradient of parameters is an operation of its own; of a depthwise convolution it is not.
    """
    gradient, plain = node["kind"] == "backward", forward["op"].removeprefix("aten::")
    if plain in ("flatten", "loss::loss"):
        return None
    if plain not in ("_convolution", "addmm"):
        return THEIRS.get(plain, plain) + " gradient" * gradient
    if plain == "_convolution" and not split:
        return "depthwise convolution" + " gradients" * gradient
    kind = "linear" if plain == "addmm" else "convolution"
    if not gradient:
        return kind
    if node["op"].endswith("_param_grad"):
        return f"{kind} weight gradient"
    return f"{kind} input gradient" if node["gradients_of_inputs"] else None


def networks(table: Path = TABLE, names: Any = tuple(NETWORKS)) -> Iterator[Network]:
    """The networks, captured at the published sizes without memory for tensors, beside the table's times."""
    document = json.loads(table.read_text(encoding="utf-8"))
    for name in names:
        published = document["networks"][name]
        loaded = rx.models.load(NETWORKS[name], batch=published["batch"])
        with FakeTensorMode(allow_non_fake_inputs=True):
            inputs = loaded.make_args()
        program = trace(loaded.module, inputs, device="P100")
        ours: dict[Key, list[Node]] = defaultdict(list)
        for call in (call.node for body in program.bodies for call in body.calls):
            if (key := _key(call, program.fakes)) is not None:
                ours[key].append(call)
        measured = []
        for kind, shape, other, ms in published["operations"]:
            same = ours[kind, tuple(shape), tuple(other)]
            wanted = 2 if kind.endswith(" gradients") else 1
            if len(same) >= wanted:
                calls = tuple(same.pop(0) for _ in range(wanted))
                works = tuple(work for call in calls for work in works_of(call, program.fakes))
                measured.append(Measured(kind, ms, calls, works, program.fakes))
        yield Network(name, program, measured, sum(row[-1] for row in published["operations"]))


def _key(call: Node, fakes: Mapping[Node, Any]) -> Key | None:
    """Type and shapes of a captured call, as the table has them; None of one that it cannot have."""
    packet = getattr(call.target, "overloadpacket", None)

    def shape(place: int | None) -> tuple[int, ...]:
        found: Any = fakes[call] if place is None else fakes[call.args[place]]  # type: ignore[index]
        return tuple((found[0] if isinstance(found, tuple | list) else found).shape)

    if packet in SIMPLE:
        kind, place = SIMPLE[packet]
        return kind, shape(place), ()
    if packet in POOLING:
        kind, gradient = POOLING[packet]
        return (kind, shape(0), shape(None)) if gradient else (kind, shape(None), shape(0))
    if packet is aten.addmm:
        return "linear", shape(None), shape(2)[::-1]
    if packet is aten.mm:
        return _linear_gradient(shape(0), shape(1))
    if packet not in (aten.convolution, aten.convolution_backward):
        return None
    backward, depthwise = is_backward(call), ConvolutionArguments.of(call).groups > 1
    kind = "depthwise convolution" if depthwise else "convolution"
    if backward:
        kind += " gradients" if depthwise else " input gradient" if wanted_gradients(call)[0] else " weight gradient"
    return kind, shape(0 if backward else None), shape(2 if backward else 1)


def _linear_gradient(first: tuple[int, ...], second: tuple[int, ...]) -> Key:
    """The key of a product in the backward pass of a linear layer whose batch is smaller than its results are wide."""
    if first[1] < first[0]:  # the transposed gradient times the input: the batch is what is added up
        return "linear weight gradient", (first[1], first[0]), (first[0], second[1])
    return "linear input gradient", first, second

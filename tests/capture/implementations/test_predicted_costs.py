"""Rooflines of alternatives: positive, ordered as measured kernels are, and of networks that no memory could hold."""

from __future__ import annotations

import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import remat_explorer as rx
from remat_explorer.graph import Graph, Operation
from tests.capture.implementations.nets import NETS
from tests.thorough import thorough_but

SIZES = {"pooled": (64, 32), "residual": (64, 32), "attentive": (32, 8)}
LEAN = {"indices recomputed", "lean", "from the output, lean"}
SLOWER = {  # names of implementations that cost more than the default one, on every device
    "pooled": LEAN,
    "residual": LEAN,
    "attentive": {"recomputed"},
}
PLACES = {"with places", "from places"}  # on a CPU a few samples at a time, on a GPU one kernel that moves less
PUBLISHED = {"vgg16": 176, "resnet50": 184}  # batches of MONeT's evaluation


def captured(name: str, device: str = "P100") -> Graph:
    model, args = NETS[name](*SIZES[name])
    return rx.capture(model, args, device=device, implementations="all")


def costs(node: Operation) -> dict[str, float]:
    return {way.name: way.cost for way in node.implementations}


ON_DEVICES = [(name, device) for name in NETS for device in ("cpu", "P100", "H100")]
QUICK = [("pooled", "cpu"), ("residual", "P100"), ("attentive", "H100")]


@pytest.mark.parametrize(("name", "device"), thorough_but(ON_DEVICES, *QUICK))
def test_every_implementation_costs_something_and_none_is_free_by_doing_less(name, device):
    graph = captured(name, device)
    ways = [way for node in graph.operations for way in node.implementations]
    assert all(0 < way.cost < math.inf for way in ways)
    assert max(way.cost / node.default.cost for node in graph.operations for way in node.implementations) < 1000
    assert min(way.cost / node.default.cost for node in graph.operations for way in node.implementations) > 0.1


@pytest.mark.parametrize("name", NETS)
def test_what_computes_more_than_the_default_costs_more(name):
    seen: set[str] = set()
    for node in captured(name).operations:
        for way in node.implementations:
            if way.name in SLOWER[name]:
                seen.add(way.name)
                assert way.cost > node.default.cost, (node.name, way.name)
    assert seen == SLOWER[name]


@pytest.mark.parametrize(("device", "faster"), [("cpu", False), ("P100", True)])
def test_places_of_maxima_cost_more_on_a_cpu_and_less_on_a_gpu(device, faster):
    pairs = [(way, node.default) for node in captured("pooled", device).operations for way in node.implementations]
    seen = {way.name: way.cost < default.cost for way, default in pairs if way.name in PLACES}
    assert seen == dict.fromkeys(PLACES, faster)


@pytest.mark.parametrize("name", NETS)
def test_bits_and_their_maker_cost_more_than_the_plain_mask(name):
    graph = captured(name)
    readers = [node for node in graph.operations if "from bits" in costs(node)]
    assert readers
    for node in readers:
        way = next(way for way in node.implementations if way.name == "from bits")
        makers = {int(graph.producer[v]) for v in way.inputs} & {
            k for k, maker in enumerate(graph.operations) if maker.optional
        }
        made = sum(min(costs(graph.operations[k]).values()) for k in makers)
        assert makers
        assert way.cost + made > node.default.cost


@pytest.mark.parametrize("name", ["pooled", "residual"])
def test_smaller_chunks_cost_more_than_larger_ones_and_those_more_than_the_whole(name):
    chunked = [node for node in captured(name).operations if "in chunks of 1" in costs(node)]
    assert chunked
    for node in chunked:
        ways = {way.name: way for way in node.implementations}
        least = min(way.cost for label, way in ways.items() if "chunks" not in label)
        found = [ways[f"in chunks of {samples}"] for samples in (8, 4, 2, 1)]
        assert least < found[0].cost < found[1].cost < found[2].cost < found[3].cost
        assert all(way.workspace > 0 for way in found)
        assert [way.workspace for way in found] == sorted((way.workspace for way in found), reverse=True)


def test_an_input_computed_again_costs_its_convolution_and_spares_reading_it():
    with FakeTensorMode():
        body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, padding=1)
        )
        x = torch.empty(32, 3, 64, 64)
    graph = rx.capture(body, (x,), loss=lambda y: y.sum(), device="P100", implementations=["chunks"])
    earlier = next(node.default.cost for node in graph.operations if node.phase == "forward")
    (node,) = (node for node in graph.operations if "in chunks of 8 with input recomputed" in costs(node))
    ways = {way.name: way for way in node.implementations}
    again, chunk = ways["in chunks of 8 with input recomputed"], ways["in chunks of 8"]
    assert again.cost > chunk.cost
    assert again.cost >= earlier
    assert set(again.inputs) < set(chunk.inputs)
    assert again.workspace > chunk.workspace


@pytest.mark.parametrize("name", thorough_but(PUBLISHED, "vgg16"))
def test_a_network_is_captured_with_all_implementations_at_the_size_that_fills_a_gpu(name):
    loaded = rx.models.load(name, batch=PUBLISHED[name])
    with FakeTensorMode(allow_non_fake_inputs=True):
        images = loaded.make_args()
    graph = rx.capture(loaded.module, images, device="P100", implementations="all")
    sizes = graph.value_bytes
    default = sum(int(sizes[v]) for node in graph.operations if not node.optional for v in node.default.outputs)
    assert default > 15e9  # more than many machines that run this test have
    assert set(graph.kinds) >= {"masks", "chunks", "input-gradients", "pooling", "cross-entropy"}
    convolutions = {"vgg16": 13, "resnet50": 53}[name]
    chunked = [node for node in graph.operations if "in chunks of 1" in costs(node)]
    assert len(chunked) == 3 * convolutions - 1  # each forward, weight and input gradient, but the images' gradient

"""Floating-point operations and rooflines against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from remat_explorer.capture import trace
from remat_explorer.capture.devices import DEVICES, Device, find_device
from remat_explorer.capture.predicted_costs import bytes_moved, flops, roofline
from remat_explorer.errors import UnknownNameError

aten = torch.ops.aten
MAX_POOL_BACKWARD = aten.max_pool2d_with_indices_backward


def call(model: nn.Module, x: torch.Tensor, packet: object):
    program = trace(model, (x,))
    nodes = (node for node in program.module.graph.nodes if getattr(node.target, "overloadpacket", None) is packet)
    return next(nodes), program.fakes


def test_a_linear_layer_multiplies_and_adds_once_per_weight_and_example():
    node, fakes = call(nn.Linear(16, 32), torch.ones(4, 16), aten.addmm)
    assert flops(node, fakes) == 2 * 4 * 16 * 32
    assert bytes_moved(node, fakes) == 4 * (4 * 16 + 16 * 32 + 32 + 4 * 32)


@pytest.mark.parametrize("groups", [1, 4])
def test_the_weight_gradient_of_a_grouped_convolution_takes_what_the_forward_pass_takes(groups):
    model = nn.Conv2d(8, 8, 3, padding=1, groups=groups, bias=False)
    forward, fakes = call(model, torch.ones(2, 8, 6, 6), aten.convolution)
    assert flops(forward, fakes) == 2 * (2 * 8 * 6 * 6) * (8 // groups) * 9
    backward, fakes = call(model, torch.ones(2, 8, 6, 6), aten.convolution_backward)
    assert flops(backward, fakes) == 2 * (2 * 8 * 6 * 6) * (8 // groups) * 9


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_with_grouped_queries_takes_what_all_its_queries_take(heads):
    graph = torch.fx.Graph()
    shapes = ((2, 4, 6, 8), (2, heads, 10, 8), (2, heads, 10, 8))
    tensors = {graph.placeholder(name): torch.ones(shape) for name, shape in zip("qkv", shapes, strict=True)}
    node = graph.call_function(aten._scaled_dot_product_flash_attention.default, tuple(tensors))
    assert flops(node, {**tensors, node: torch.ones(2, 4, 6, 8)}) == 2 * 2 * (2 * 4 * 6 * 10 * 8)


def test_what_a_gradient_needs_but_the_shape_of_is_not_moved():
    x, y = 2 * 8 * 6 * 6, 2 * 8 * 3 * 3  # entries before and after pooling
    pool, fakes = call(nn.Sequential(nn.Conv2d(8, 8, 1), nn.MaxPool2d(2)), torch.ones(2, 8, 6, 6), MAX_POOL_BACKWARD)
    assert bytes_moved(pool, fakes) == 4 * y + 8 * y + 4 * x  # gradient, indices, result


@pytest.mark.parametrize(
    ("asked", "moved"), [((True, False), (0, 2)), ((False, True), (0, 1)), ((True, True), (0, 1, 2))]
)
def test_one_gradient_of_a_convolution_alone_does_not_move_what_only_the_other_reads(asked, moved):
    source, weight = torch.ones(2, 8, 6, 6), torch.ones(4, 8, 3, 3)
    gradient, sizes = torch.ones(2, 4, 4, 4), [1, 1]
    graph = torch.fx.Graph()
    tensors = dict(zip(map(graph.placeholder, "gxw"), (gradient, source, weight), strict=True))
    arguments = (*tensors, None, sizes, [0, 0], sizes, False, [0, 0], 1, [*asked, False])
    node = graph.call_function(aten.convolution_backward.default, arguments)
    results = tuple(t if wanted else None for t, wanted in zip((source, weight, weight), (*asked, False), strict=True))
    read = [(gradient, source, weight)[position] for position in moved]
    expected = sum(t.nbytes for t in (*read, *results) if t is not None)
    assert bytes_moved(node, {**tensors, node: results}) == expected


def test_the_roofline_is_the_slower_of_computing_and_moving_plus_the_launch():
    node, fakes = call(nn.Linear(16, 32), torch.ones(4, 16), aten.addmm)
    assert roofline([node], fakes, Device("slow to compute", 1.0, 1e30, 7.0)) == pytest.approx(4096 + 7)
    assert roofline([node], fakes, Device("slow to move", 1e30, 1.0, 7.0)) == pytest.approx(2944 + 7)


def test_an_unknown_device_lists_near_ones():
    assert find_device("v100") is DEVICES["V100"]
    with pytest.raises(UnknownNameError, match="did you mean 'A100'"):
        find_device("A1000")

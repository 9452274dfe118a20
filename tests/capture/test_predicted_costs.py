"""Floating-point operations and rooflines against numbers worked out by hand, and times of kernels on GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.convolution_arguments import Part
from remat_explorer.capture.devices import DEVICES, GPUS, Device, find_device
from remat_explorer.capture.predicted_costs import (
    Convolution,
    Type,
    Work,
    bytes_moved,
    flops,
    kernel_time,
    roofline,
    works_of,
)
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


PARTS = get_args(Part)
MOVING = [kind for kind in get_args(Type) if kind != "convolution"]
VIEWS = (aten.expand.default, aten.view.default)
NAMES = [gpu.name for gpu in GPUS]


def of_convolution(part: Part, name: str = "P100", dtype: str = "float32", **sizes: Any) -> float:
    """Seconds of a convolution of 64 images of 56 pixels, with some sizes other than 64 channels and 3 x 3 filters."""
    asked = replace(Convolution(part, 64, 64, 64, (3, 3), (56, 56), (56, 56)), **sizes)
    entries = asked.batch * 56 * 56 * (asked.channels + asked.filters)
    moved = entries * (4 if dtype == "float32" else 2)
    asked = replace(asked, entry_bytes=4 if dtype == "float32" else 2)
    return kernel_time(Work("convolution", bytes=moved, dtype=dtype, convolution=asked), find_device(name))


def works(module: nn.Module, x: torch.Tensor) -> list[tuple[str, Work]]:
    """The work of each call that computes something in a captured training step, beside the operator's name."""
    program = trace(module, (x,), loss=lambda y: y.sum())
    calls = [call.node for body in program.bodies for call in body.calls if call.node.op == "call_function"]
    counted = [call for call in calls if getattr(call.target, "overloadpacket", None) is not None]
    return [(str(call.target), work) for call in counted for work in works_of(call, program.fakes)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", MOVING)
def test_twice_the_bytes_take_longer_and_none_takes_a_launch(kind: Type, name: str) -> None:
    device = find_device(name)
    assert kernel_time(Work(kind), device) == device.launch > 0
    few, many = (kernel_time(Work(kind, bytes=moved), device) - device.launch for moved in (10**8, 2 * 10**8))
    assert many == pytest.approx(2 * few)
    assert few > 10**8 / device.bandwidth  # no kernel is faster than the memory


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", ["batch", "channels", "filters"])
@pytest.mark.parametrize("part", PARTS)
def test_a_larger_convolution_never_takes_less(part: Part, size: str, name: str) -> None:
    times = [of_convolution(part, name, "float32", **{size: number}) for number in range(1, 200, 7)]
    assert times == sorted(times)
    assert times[-1] > 2 * times[0] > 0


@pytest.mark.parametrize("part", PARTS)
def test_no_algorithm_beats_the_arithmetic_that_it_needs(part: Part) -> None:
    multiplied = 2 * 64 * 56 * 56 * 512 * 512 * 9
    seconds = of_convolution(part, channels=512, filters=512)
    assert multiplied / 4 / find_device("P100").rate < seconds < multiplied / find_device("P100").rate
    dilated = of_convolution(part, channels=512, filters=512, plain=False)
    assert dilated > multiplied / find_device("P100").rate  # no algorithm of Winograd's


@pytest.mark.parametrize("stride", [1, 2, 4])
def test_gradients_of_a_strided_convolution_multiply_as_often_as_it_does(stride: int) -> None:
    module = nn.Sequential(nn.Conv2d(8, 16, 1), nn.Conv2d(16, 32, 3, stride, 1))
    found = [work.convolution for _, work in works(module, torch.ones(4, 8, 32, 32)) if work.convolution is not None]
    strided = [asked for asked in found if asked.kernel == (3, 3)]
    assert {asked.part for asked in strided} == {"forward", "input", "weight"}
    side = 32 // stride
    for asked in strided:
        rows, columns, depth = asked.product
        assert rows * columns * depth == 4 * side * side * 16 * 32 * 9


def test_a_transposed_convolution_is_the_input_gradient_of_one() -> None:
    x = torch.ones(4, 16, 8, 8)
    (up, *_) = [work for name, work in works(nn.ConvTranspose2d(16, 8, 2, 2), x) if work.convolution is not None]
    assert up.convolution == Convolution("input", 4, 8, 16, (2, 2), (16, 16), (8, 8), plain=False)


def test_a_depthwise_convolution_takes_longer_for_each_operation_than_a_dense_one() -> None:
    x = torch.ones(8, 64, 28, 28)
    rates = []
    for groups in (1, 64):
        (forward, *_) = [w for _, w in works(nn.Conv2d(64, 64, 3, 1, 1, groups=groups), x) if w.convolution is not None]
        rates.append(forward.flops / kernel_time(forward, find_device("P100")))
    assert rates[1] < rates[0] / 5


def test_batch_norm_reads_its_input_twice_and_max_pooling_every_window() -> None:
    module = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.MaxPool2d(3, 1, 1))
    again = {name: work.again for name, work in works(module, torch.ones(8, 4, 16, 16)) if work.again}
    entries = 8 * 4 * 16 * 16
    assert again == {
        "aten._native_batch_norm_legit_functional.default": 4 * entries,
        "aten.native_batch_norm_backward.default": 2 * 4 * entries,
        "aten.max_pool2d_with_indices.default": 8 * 4 * entries,
    }


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_not_slower(name: str, dtype: str) -> None:
    device = find_device(name)
    assert all(of_convolution(part, name, dtype) <= of_convolution(part, name) for part in PARTS)
    products = [Work("elementwise", dtype=kind, product=(1024, 1024, 1024)) for kind in (dtype, "float32")]
    assert kernel_time(products[0], device) <= kernel_time(products[1], device)


def test_float32_convolutions_run_in_tf32_and_float32_products_do_not_as_pytorch_has_it() -> None:
    assert torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    a100, v100 = find_device("A100"), find_device("V100")
    assert a100.rate_of("float32", True) == a100.tensor["tf32"] > a100.rate_of("float32", False) == a100.rate
    assert (
        v100.rate_of("float32", True) == v100.rate_of("bfloat16", False) == v100.rate < v100.rate_of("float16", False)
    )


@pytest.mark.parametrize(("name", "faster"), [("P100", 1.0), ("A100", 2.0), ("V100", 2.0)])
def test_a_captured_network_in_half_precision_costs_less(name: str, faster: float) -> None:
    totals = []
    for dtype in (torch.float32, torch.float16):
        with FakeTensorMode():
            convolution = nn.Conv2d(512, 512, 3, padding=1, dtype=dtype)
            module = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(512 * 256, 64, dtype=dtype))
            x = torch.empty(128, 512, 16, 16, dtype=dtype)
        totals.append(rx.capture(module, (x,), loss=lambda y: y.float().sum(), device=name).total_cost)
    assert totals[0] / totals[1] > faster


@pytest.mark.parametrize("name", [name for name, device in DEVICES.items() if not device.kernels])
def test_a_roofline_by_name_is_the_plain_one_of_published_rates(name: str) -> None:
    module, x = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()), torch.ones(2, 4, 8, 8)
    device, program = find_device(name), trace(module, (x,), loss=lambda y: y.sum(), device=name)
    assert not device.tensor
    compared = 0
    for body, node in zip(program.bodies, program.graph.operations, strict=True):
        calls = [call.node for call in body.calls]
        if not any(call.target in VIEWS for call in calls):
            assert node.default.cost == roofline(calls, program.fakes, device)
            compared += 1
    assert compared >= 2

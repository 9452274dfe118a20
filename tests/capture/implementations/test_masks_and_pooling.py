"""Masks in bits, and max pooling by places in windows: bit for bit what PyTorch's kernels give, in Triton too."""

import itertools
from typing import Any

import pytest
import torch

from remat_explorer.capture.implementations import dropout, masks, pooling
from remat_explorer.capture.implementations.chunks import CHUNK, flat, is_dense
from remat_explorer.errors import ExecutionError
from tests.capture.implementations.numerics import DEVICES, FORMATS, LAST, random, same_bits, with_special, workspace
from tests.thorough import thorough_but

aten = torch.ops.aten

MOST = 600_000  # bytes: what chunks of masks may take, whatever the tensor's size
SHAPES = [(0,), (1,), (7,), (8,), (9,), (2, 3, 5, 7), (CHUNK - 1,), (CHUNK + 1,), (2 * CHUNK + 8,)]


@pytest.mark.parametrize("entries", [0, 1, 7, 8, 9, 65, 1000])
def test_what_is_packed_comes_out_again(entries):
    mask = torch.rand(entries) < 0.5
    packed = masks.packed_mask(mask)
    assert packed.numel() == masks.mask_bytes(entries)
    again = torch.empty(8 * packed.numel(), dtype=torch.bool)
    masks.unpack(packed, again)
    assert torch.equal(again[:entries], mask)
    assert not again[entries:].any()


def over_and_beside(kernel: Any, in_place: Any, gradient: torch.Tensor, *arguments: Any) -> torch.Tensor:
    """What a kernel gives, which it gives over the gradient too."""
    found, over = kernel(gradient, *arguments), gradient.clone()
    assert in_place(over, *arguments) is over
    assert same_bits(over, found)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_by_bits_are_those_of_the_kernels_of_pytorch(shape):
    x, g = with_special(random(*shape)), with_special(random(*shape, seed=1).flip(0))
    packed = masks.relu_bits(x)
    assert torch.equal(packed, masks.relu_bits(x.relu()))
    found = over_and_beside(masks.masked_gradient, masks.masked_gradient_in_place, g, packed)
    assert same_bits(found, aten.threshold_backward(g, x.relu(), 0))
    number = 4 * x.nan_to_num(2.0)
    packed = masks.hardtanh_bits(number, 0.0, 6.0)
    assert torch.equal(packed, masks.hardtanh_bits(aten.hardtanh(number, 0.0, 6.0), 0.0, 6.0))
    assert same_bits(masks.masked_gradient(g, packed), aten.hardtanh_backward(g, number, 0.0, 6.0))
    mask = aten.native_dropout(x, 0.3, True)[1]
    by_bits = dropout.dropout_gradient_from_bits, dropout.dropout_gradient_from_bits_in_place
    found = over_and_beside(*by_bits, g, masks.packed_mask(mask), 1 / 0.7)
    assert same_bits(found, aten.native_dropout_backward(g, mask, 1 / 0.7))


def test_masks_need_little_room():
    x, g = random(8, 64, 64, 64), random(8, 64, 64, 64, seed=1)
    packed = masks.relu_bits(x)
    made: list[Any] = [(masks.relu_bits, x), (masks.packed_mask, x > 0), (masks.hardtanh_bits, x, 0.0, 6.0)]
    made += [(masks.masked_gradient, g, packed), (dropout.dropout_gradient_from_bits, g, packed, 1.25)]
    assert max(workspace(*kernel) for kernel in made) < MOST
    assert workspace(masks.masked_gradient_in_place, g, packed, taken_over=g.nbytes) < MOST


def test_tensors_with_gaps_or_overlaps_and_masks_of_others_are_refused_and_relu6_of_nan_lets_no_gradient_pass():
    for tensor in (torch.ones(4, 4)[:, :2], torch.ones(1, 4).expand(4, 4)):
        assert not is_dense(tensor)
        with pytest.raises(ExecutionError, match="dense"):
            masks.relu_bits(tensor)
    assert flat(random(2, 3, 4, 5, form=LAST)).numel() == 120
    with pytest.raises(ExecutionError, match="does not belong"):
        masks.masked_gradient(torch.ones(100), torch.zeros(3, dtype=torch.uint8))
    packed = masks.hardtanh_bits(torch.full((8,), float("nan")), 0.0, 6.0)
    assert masks.masked_gradient(torch.ones(8), packed).tolist() == [0.0] * 8


WINDOWS = [  # kernel, stride, padding, dilation, whether the last window may be cut off
    ([2, 2], [2, 2], [0, 0], [1, 1], False),
    ([3, 3], [2, 2], [1, 1], [1, 1], False),
    ([3, 2], [1, 2], [1, 0], [1, 1], True),
    ([2, 3], [2, 1], [0, 1], [2, 3], False),
    ([16, 16], [5, 5], [3, 3], [1, 1], True),
]


def unusual(*shape: int, dtype: torch.dtype = torch.float32, form: torch.memory_format = FORMATS[0]) -> torch.Tensor:
    """Planes of NaN, of ties and of negative infinity beside random ones."""
    x = with_special(random(*shape, dtype=dtype, form=form))
    x[0, 0], x[1, 1], x[2, 2] = float("nan"), 2.0, -float("inf")
    return x


@pytest.mark.parametrize(("window", "form"), [*itertools.product(WINDOWS, FORMATS)])
def test_every_way_gives_what_pytorch_gives(window, form):
    x = unusual(3, 4, 21, 18, form=form)
    y, index = aten.max_pool2d_with_indices(x, *window)
    g = with_special(random(*y.shape, seed=1, form=form))
    exact = aten.max_pool2d_with_indices_backward(g, x, *window, index)
    maxima, places = pooling.max_pool_with_places(x, *window)
    assert places.dtype == torch.uint8
    assert same_bits(maxima, y)
    before = index.clone()
    assert same_bits(pooling.packed_places(index, x.shape, *window), places)
    assert torch.equal(index, before)  # indices may be read again
    assert same_bits(pooling.max_pool_places(x, *window), places)
    assert same_bits(pooling.max_pool_alone(x, *window), y)
    assert same_bits(pooling.max_pool_gradient_from_places(g, places, x.shape, *window), exact)
    assert same_bits(pooling.max_pool_gradient_from_indices(g, index, x.shape, *window), exact)
    assert same_bits(pooling.max_pool_gradient_recomputed(g, x, *window), exact)


def test_an_empty_batch_has_empty_results():
    x, g, window = torch.ones(0, 3, 8, 8), torch.ones(0, 3, 4, 4), WINDOWS[0]
    maxima, places = pooling.max_pool_with_places(x, *window)
    for made in (maxima, places, pooling.max_pool_alone(x, *window), pooling.max_pool_places(x, *window)):
        assert made.shape == g.shape
    assert pooling.max_pool_gradient_from_places(g, places, x.shape, *window).shape == x.shape
    assert pooling.max_pool_gradient_recomputed(g, x, *window).shape == x.shape


@pytest.mark.parametrize("form", FORMATS)
def test_indices_exist_for_one_sample_at_a_time(form):
    x, window = random(8, 16, 64, 64, form=form), WINDOWS[0]
    y, places = pooling.max_pool_with_places(x, *window)
    y = y.contiguous(memory_format=form)
    sample = 8 * y[0].numel()  # bytes of the indices of one sample
    assert workspace(pooling.max_pool_with_places, x, *window) < 6 * sample
    assert workspace(pooling.max_pool_alone, x, *window) < 4 * sample
    assert workspace(pooling.max_pool_places, x, *window) < 6 * sample
    index = torch.zeros(64, 16, 32, 32, dtype=torch.int64)
    assert workspace(pooling.packed_places, index, [64, 16, 64, 64], *window) < index.nbytes / 5
    assert workspace(pooling.max_pool_gradient_from_places, y, places, x.shape, *window) < 6 * sample
    assert workspace(pooling.max_pool_gradient_recomputed, y, x, *window) < 5 * sample


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
PAIRS = [*itertools.product([(0,), (1,), (7,), (9,), (1023,), (1025,), (100_003,), (2, 3, 5, 7)], DTYPES)]
QUICK_PAIRS = [pair for pair in PAIRS if pair[1] is (torch.bfloat16 if pair[0] == (100_003,) else torch.float32)]
ALL = [*itertools.product(WINDOWS[:4], DTYPES, FORMATS)]
QUICK = [case for case in ALL if case[1] is torch.float32 or case[0] is WINDOWS[1]]


@pytest.fixture
def triton(monkeypatch):
    """Interpreted, the kernels serve tensors of the CPU as they do those of a GPU."""
    if not pooling.HAS_TRITON:
        pytest.skip("Triton is not installed here")
    if not torch.cuda.is_available():
        monkeypatch.setattr(pooling, "runs_in_triton", lambda *tensors: True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("shape", "dtype"), thorough_but(PAIRS, *QUICK_PAIRS))
@pytest.mark.usefixtures("triton")
def test_in_triton_masks_are_the_same_bytes_and_the_same_gradients(shape, dtype, device, monkeypatch):
    x, g = with_special(random(*shape, dtype=dtype)), with_special(random(*shape, dtype=dtype, seed=1).flip(0))
    for kernel in (masks.relu_bits, lambda t: masks.hardtanh_bits(t, 0.0, 6.0)):
        packed = kernel(x)
        expected = masks.masked_gradient(g, packed)
        with monkeypatch.context() as patch:
            patch.setattr(masks, "runs_in_triton", lambda tensor: True)
            assert torch.equal(kernel(x.to(device)).cpu(), packed)
            assert same_bits(masks.masked_gradient(g.to(device), packed.to(device)).cpu(), expected)
            over = g.to(device, copy=True)
            assert masks.masked_gradient_in_place(over, packed.to(device)) is over
            assert same_bits(over.cpu(), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.usefixtures("triton")
def test_in_triton_bits_of_masks_follow_the_memory_format(device, monkeypatch):
    x, g = random(2, 5, 4, 3, form=LAST), random(2, 5, 4, 3, seed=1, form=LAST)
    monkeypatch.setattr(masks, "runs_in_triton", lambda tensor: True)
    found = masks.masked_gradient(g.to(device), masks.relu_bits(x.to(device)))
    assert same_bits(found.cpu(), aten.threshold_backward(g, x.relu(), 0))


def narrowed(sums: torch.Tensor, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Rounded to a type; Triton's interpreter does not round to bfloat16, it cuts off the lower half."""
    if dtype == torch.bfloat16 and device == "cpu":
        return (sums.view(torch.int32) & -(1 << 16)).view(torch.float32).to(dtype)
    return sums.to(dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("window", "dtype", "form"), thorough_but(ALL, *QUICK))
@pytest.mark.usefixtures("triton")
def test_in_triton_every_way_of_pooling_gives_what_pytorch_gives(window, dtype, form, device):
    x = unusual(3, 4, 9, 10, dtype=dtype, form=form)
    y, index = aten.max_pool2d_with_indices(x, *window)
    g = with_special(random(*y.shape, dtype=dtype, seed=1, form=form))
    wide = torch.promote_types(dtype, torch.float32)  # in which gradients are added up
    exact = narrowed(aten.max_pool2d_with_indices_backward(g.to(wide), x.to(wide), *window, index), dtype, device)
    there, gradient = x.to(device), g.to(device)
    maxima, places = pooling.max_pool_with_places(there, *window)
    assert same_bits(maxima.cpu(), y)
    assert same_bits(pooling.max_pool_alone(there, *window).cpu(), y)
    found = pooling.max_pool_gradient_from_places(gradient, places, x.shape, *window)
    assert same_bits(found.cpu(), exact)
    assert same_bits(pooling.max_pool_gradient_recomputed(gradient, there, *window).cpu(), exact)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("window", WINDOWS[:4])
@pytest.mark.usefixtures("triton")
def test_both_forms_make_the_same_places(window, device, monkeypatch):
    x = unusual(3, 4, 9, 10)
    _, places = pooling.max_pool_with_places(x.to(device), *window)
    assert torch.equal(pooling.max_pool_places(x.to(device), *window), places)
    monkeypatch.setattr(pooling, "runs_in_triton", lambda *tensors: False)
    assert torch.equal(places.cpu(), pooling.max_pool_with_places(x, *window)[1])


@pytest.mark.skipif(torch.cuda.is_available(), reason="the meter of this test is the CPU's")
@pytest.mark.usefixtures("triton")
def test_in_triton_indices_found_again_need_a_byte_an_output():
    window, x = WINDOWS[2], random(3, 4, 40, 40)
    y, _ = aten.max_pool2d_with_indices(x, *window)
    assert workspace(pooling.max_pool_gradient_recomputed, y, x, *window) <= y.numel() + 1024


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.usefixtures("triton")
def test_in_triton_no_block_needs_to_divide_a_size(device):
    shapes = [((1, 3, 37, 41), WINDOWS[1]), ((2, 5, 1, 1), WINDOWS[1]), ((0, 5, 4, 4), WINDOWS[0])]
    for (shape, window), form in itertools.product(shapes, FORMATS):
        x = random(*shape, form=form)
        y, index = aten.max_pool2d_with_indices(x, *window)
        found = pooling.max_pool_gradient_recomputed(y.to(device), x.to(device), *window)
        exact = aten.max_pool2d_with_indices_backward(y, x, *window, index)
        assert torch.equal(found.cpu(), exact), (shape, form)

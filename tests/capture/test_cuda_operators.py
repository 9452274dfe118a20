"""Operators that PyTorch takes apart in another way on CUDA, and its kernels of attention: without a device."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import remat_explorer as rx
from remat_explorer.capture import cuda_operators
from remat_explorer.capture.cuda_operators import Call, chosen_kernel
from remat_explorer.errors import CaptureError
from tests.runtime.kinds_of_models import Made
from tests.thorough import thorough_but

STEPS, BATCH, SIZE, HIDDEN = 3, 4, 6, 8


def first_mean(output: Any) -> torch.Tensor:
    return (output[0] if isinstance(output, tuple) else output).float().mean()


def captured(model: nn.Module, x: torch.Tensor, kernels: str | None = "cuda") -> rx.Graph:
    return rx.capture(model, (x,), loss=first_mean, kernels=kernels)


def left(graph: rx.Graph, operation: str, phase: str = "forward") -> list[list[int]]:
    """Bytes of the outputs of each operation whose name has such a part."""
    nodes = [node for node in graph.operations if operation in node.name and node.phase == phase]
    return [[graph.values[v].bytes for v in node.default.outputs] for node in nodes]


def sequence() -> torch.Tensor:
    return torch.ones(STEPS, BATCH, SIZE)


@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_layers_keep_states_and_gates_of_each_step(bias):
    state, gates = BATCH * HIDDEN * 4, BATCH * 4 * HIDDEN * 4
    lstm, gru, rnn = (captured(kind(SIZE, HIDDEN, bias=bias), sequence()) for kind in (nn.LSTM, nn.GRU, nn.RNN))
    assert left(lstm, "lstm_cell") == STEPS * [[state, state, gates]]
    assert left(lstm, "mm") == 2 * STEPS * [[gates]]  # of input and of hidden state, for each step
    assert left(gru, "gru_cell") == STEPS * [[state, 5 * state]]
    backward = [[b for b in made if b >= state] for made in left(gru, "gru_cell_backward", "backward")]
    assert backward[:-1] == (STEPS - 1) * [[3 * state, 3 * state, state]]
    assert not bias or len(left(rnn, "linear")) == 2 * STEPS
    assert len(left(rnn, "tanh")) == STEPS


@pytest.mark.parametrize("kind", thorough_but([nn.LSTM, nn.GRU, nn.RNN], nn.LSTM))
def test_layers_in_both_directions_drop_between_them(kind):
    layers = kind(SIZE, HIDDEN, 2, dropout=0.5, bidirectional=True, batch_first=True)
    graph = captured(layers, torch.ones(BATCH, STEPS, SIZE))
    assert left(graph, "dropout") == [[STEPS * BATCH * 2 * HIDDEN * 4, STEPS * BATCH * 2 * HIDDEN]]
    assert len(left(graph, "tanh" if kind is nn.RNN else "_cell")) == 2 * 2 * STEPS


def test_a_projected_state_is_as_wide_as_its_projection():
    graph = captured(nn.LSTM(SIZE, HIDDEN, proj_size=2), sequence())
    assert len(left(graph, "lstm_cell")) == STEPS
    assert left(graph, "mm").count([BATCH * 2 * 4]) == STEPS


def test_single_cells_are_fused():
    cells = Made(lambda s, x: s.gated(x, s.long(x)[0]), long=nn.LSTMCell(SIZE, HIDDEN), gated=nn.GRUCell(SIZE, HIDDEN))
    graph = captured(cells, torch.ones(BATCH, SIZE))
    state = BATCH * HIDDEN * 4
    assert left(graph, "gru_cell") == [[state, 5 * state]]
    assert left(graph, "lstm_cell")[0][:1] == [state]


def images(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(2, 3, 8, 8, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_keeps_a_byte_an_entry_and_batch_norm_statistics_in_full_precision(dtype):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout(0.1)).to(dtype)
    graph, entries = captured(model, images(dtype)), 2 * 4 * 8 * 8
    assert left(graph, "dropout") == [[entries * dtype.itemsize, entries]]
    assert left(graph, "batch_norm")[0][:3] == [entries * dtype.itemsize, 4 * 4, 4 * 4]


def test_batch_norm_in_evaluation_has_copies_of_its_statistics_on_cuda_and_none_on_the_cpu():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4).eval())
    entries = 2 * 4 * 8 * 8 * 4
    assert left(captured(model, images()), "batch_norm") == [[entries, 4 * 4, 4 * 4]]
    assert left(captured(model, images(), None), "batch_norm") == [[entries, 0, 0]]


@pytest.mark.parametrize(("dtype", "copies"), [(torch.float32, 0), (torch.float64, 1)])
def test_channels_stay_last_in_a_convolution_but_not_in_double_precision(dtype, copies):
    last: Any = torch.channels_last
    inside: Any = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, groups=4))
    inside = inside.to(dtype=dtype, memory_format=last)
    wants = Made(lambda s, x: s.inside(x).contiguous(memory_format=last).exp(), inside=inside)
    graph = captured(wants, images(dtype).contiguous(memory_format=last))
    assert len(left(graph, "clone")) == copies


@pytest.mark.parametrize(("dtype", "casts"), [(torch.float16, 0), (torch.bfloat16, 1), (torch.float32, 0)])
def test_softmax_in_full_precision_takes_float16_as_it_is(dtype, casts):
    model = Made(lambda s, x: s.inside(x).softmax(-1, dtype=torch.float32), inside=nn.Linear(SIZE, HIDDEN))
    graph = captured(model.to(dtype), torch.ones(BATCH, SIZE, dtype=dtype))
    assert left(graph, "softmax") == [[BATCH * HIDDEN * 4]]
    assert len(left(graph, "cast")) == casts


def test_grid_sampling_that_cudnn_takes_is_refused_and_other_sampling_is_not():
    def sampled(align_corners: bool) -> rx.Graph:
        def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.grid_sample(self.inside(x), x.new_zeros(2, 4, 4, 2), align_corners=align_corners)

        return captured(Made(forward, inside=nn.Conv2d(3, 3, 1)), images())

    assert left(sampled(False), "grid_sampler_2d") == [[2 * 3 * 4 * 4 * 4]]
    with pytest.raises(CaptureError, match="cuDNN's on CUDA"):
        sampled(True)


def test_rms_norm_says_that_the_device_has_fewer_operations():
    with pytest.warns(UserWarning, match="rms_norm is one fused operation on CUDA"):
        captured(nn.Sequential(nn.Linear(SIZE, HIDDEN), nn.RMSNorm(HIDDEN)), torch.ones(BATCH, SIZE))


P100, V100, A100, L40, H100, B200 = (6, 0), (7, 0), (8, 0), (8, 9), (9, 0), (10, 0)
HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32
EXAMPLES, HEADS, LENGTH, WIDTH = 2, 4, 20, 16


def tensor(width: int = WIDTH, dtype: torch.dtype = FULL, length: int = LENGTH, heads: int = HEADS) -> torch.Tensor:
    return torch.empty(EXAMPLES, heads, length, width, dtype=dtype, requires_grad=True)


def kernel(capability: tuple[int, int], width: int = WIDTH, dtype: torch.dtype = FULL, **more: Any) -> str:
    x = tensor(width, dtype)
    return chosen_kernel(Call(capability, x, x, x, **more))


@pytest.fixture(autouse=True)
def new_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN as PyTorch's build for CUDA 13 has it, whatever is here."""
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)
    monkeypatch.delenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", raising=False)


KERNELS: list[tuple[tuple[int, int], int, torch.dtype, str]] = [
    # full precision is for efficient attention where widths are multiples of 4, on older devices of anything
    *((device, width, FULL, "efficient") for device in (A100, L40, H100, B200) for width in (16, 20)),
    *((device, width, FULL, "math") for device in (A100, L40, H100, B200) for width in (18, 15)),
    *((P100, 15, FULL, "efficient"), (V100, 15, FULL, "efficient")),
    *((P100, 16, torch.float64, "math"), (H100, 16, torch.float64, "math")),
    # half precision is for flash attention from Ampere on, and for cuDNN on Hopper and Blackwell
    *((V100, 16, HALF, "efficient"), (V100, 12, HALF, "math"), (V100, 16, BRAIN, "math")),
    *((A100, 16, BRAIN, "flash"), (L40, 16, BRAIN, "flash"), (B200, 16, BRAIN, "cudnn")),
    # widths that are no multiples of 8 are padded for flash attention, and too wide ones are not taken
    *((H100, 64, BRAIN, "cudnn"), (H100, 60, BRAIN, "flash"), (H100, 136, BRAIN, "flash")),
    *((H100, 256, BRAIN, "flash"), (H100, 264, BRAIN, "efficient")),
    # in training, some wide heads are not for flash attention where shared memory is small
    *((L40, 192, BRAIN, "flash"), (L40, 208, BRAIN, "efficient"), (L40, 256, BRAIN, "flash")),
    (A100, 208, BRAIN, "flash"),
]


def test_the_kernel_is_that_of_the_device_the_width_and_the_type():
    for device, width, dtype, expected in KERNELS:
        assert kernel(device, width, dtype) == expected, (device, width, dtype)


def test_a_mask_and_causal_attention_from_one_length_to_another_are_not_for_flash_attention():
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    assert (kernel(A100, dtype=BRAIN, mask=mask), kernel(H100, dtype=BRAIN, mask=mask)) == ("efficient", "cudnn")
    learned = torch.zeros(LENGTH, LENGTH, dtype=BRAIN, requires_grad=True)
    assert kernel(H100, dtype=BRAIN, mask=learned) == "efficient"
    x, longer = tensor(dtype=BRAIN), tensor(dtype=BRAIN, length=24)
    assert chosen_kernel(Call(A100, x, longer, longer)) == "flash"
    assert chosen_kernel(Call(A100, x, longer, longer, causal=True)) == "efficient"


def test_dropout_in_sixteenths_alone_is_for_cudnn_where_pytorch_asks_for_it(monkeypatch):
    assert kernel(L40, 256, BRAIN, dropout=0.5) == "efficient"
    assert kernel(H100, dtype=BRAIN, dropout=0.125) == "cudnn"
    for version, kind in (("2.11.0", "cudnn"), ("2.13.0", "flash")):
        monkeypatch.setattr(cuda_operators.torch, "__version__", version)
        assert kernel(H100, dtype=BRAIN, dropout=0.1) == kind
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    assert kernel(H100, dtype=BRAIN) == "flash"  # an old cuDNN comes last


def test_groups_of_heads_share_keys_only_where_that_is_asked_for():
    x, few = tensor(dtype=BRAIN), tensor(dtype=BRAIN, heads=2)
    assert chosen_kernel(Call(A100, x, few, few, grouped=True)) == "flash"
    assert chosen_kernel(Call(H100, x, few, x, grouped=True)) == "cudnn"  # which alone takes other groups of values
    assert chosen_kernel(Call(A100, x, few, x, grouped=True)) == "math"
    assert chosen_kernel(Call(A100, x.float(), few.float(), few.float(), grouped=True)) == "math"  # not "efficient"
    assert chosen_kernel(Call(A100, x.float(), x.float(), x.float(), grouped=True)) == "efficient"
    assert chosen_kernel(Call(A100, x, few, few)) == "math"


def test_three_dimensions_and_rows_with_gaps_are_for_math():
    for x in (tensor()[0], tensor().transpose(2, 3)):
        assert chosen_kernel(Call(A100, x, x, x)) == "math"


def test_what_a_person_has_switched_off_is_not_taken_and_the_order_that_is_set_is_kept():
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        assert kernel(H100, dtype=BRAIN) == "efficient"
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]), pytest.raises(CaptureError, match="no kernel of attention"):
        kernel(H100)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert kernel(A100, dtype=BRAIN) == "efficient"
    assert kernel(A100, dtype=BRAIN) == "flash"


def attention(width: int = WIDTH, masked: bool = False, dropout: float = 0.0, fewer: int = HEADS) -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        parts = self.project(x).view(EXAMPLES, LENGTH, 3, HEADS, width).permute(2, 0, 3, 1, 4)
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=x.device).tril() if masked else None
        given = parts[0], parts[1, :, :fewer], parts[2, :, :fewer], mask
        return scaled_dot_product_attention(*given, dropout_p=dropout, enable_gqa=fewer < HEADS).sum()

    return Made(forward, project=nn.Linear(8, 3 * HEADS * width))


def left_by(capability: str, dtype: torch.dtype = FULL, **setting: Any) -> dict[str, list[int]]:
    """Bytes of what each operation of attention or of its mask leaves, by its name."""
    model, x = attention(**setting).to(dtype), torch.empty(EXAMPLES, LENGTH, 8, dtype=dtype)
    graph = rx.capture(model, (x,), kernels=capability)
    nodes = [node for node in graph.operations if node.phase == "forward"]
    found = [node for node in nodes if any(part in node.name for part in ("attention", "pad", "softmax"))]
    return {node.name: [graph.values[v].bytes for v in node.default.outputs] for node in found}


def test_efficient_attention_leaves_sums_of_rows_padded_to_32_and_two_numbers_of_the_generator():
    output, sums = EXAMPLES * HEADS * LENGTH * WIDTH * 4, EXAMPLES * HEADS * 32 * 4
    assert left_by("sm_80") == {"scaled_dot_product_efficient_attention": [output, sums, 8, 8]}
    assert left_by("sm_80", dropout=0.1) == left_by("sm_80")


@pytest.mark.parametrize(("capability", "kind", "state"), [("sm_80", "flash", [2 * 8, 8]), ("sm_90", "cudnn", [8, 8])])
def test_flash_and_cudnn_attention_leave_one_sum_a_row_and_numbers_of_the_generator(capability, kind, state):
    output, sums = EXAMPLES * HEADS * LENGTH * WIDTH * 2, EXAMPLES * HEADS * LENGTH * 4
    assert left_by(capability, BRAIN) == {f"scaled_dot_product_{kind}_attention": [output, sums, *state]}


def test_heads_of_20_are_padded_to_24_for_flash_attention():
    padded = EXAMPLES * HEADS * LENGTH * 24 * 2
    found = left_by("sm_80", BRAIN, width=20)
    assert [found[name] for name in found if "pad" in name] == 3 * [[padded]]
    assert found["scaled_dot_product_flash_attention"][0] == padded


def test_a_mask_of_20_columns_has_rows_of_24_for_efficient_attention():
    found = left_by("sm_80", masked=True)
    assert found["constant_pad_nd"] == [LENGTH * 24 * 4]
    assert "scaled_dot_product_efficient_attention" in found


def test_heads_of_15_and_groups_of_heads_in_full_precision_leave_probabilities():
    assert left_by("sm_80", width=15) == {"safe_softmax": [EXAMPLES * HEADS * LENGTH * LENGTH * 4]}
    assert [name for name in left_by("sm_80", fewer=2) if "softmax" in name or "_attention" in name] == ["safe_softmax"]

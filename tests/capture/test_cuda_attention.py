"""Which kernel of attention CUDA takes, by the table, and the bytes that each leaves for its backward pass."""

from __future__ import annotations

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

P100, V100, A100, L40, H100, B200 = (6, 0), (7, 0), (8, 0), (8, 9), (9, 0), (10, 0)
HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32
BATCH, HEADS, LENGTH, WIDTH = 2, 4, 20, 16


def tensor(width: int = WIDTH, dtype: torch.dtype = FULL, length: int = LENGTH, heads: int = HEADS) -> torch.Tensor:
    return torch.empty(BATCH, heads, length, width, dtype=dtype, requires_grad=True)


def kernel(capability: tuple[int, int], width: int = WIDTH, dtype: torch.dtype = FULL, **more: Any) -> str:
    x = tensor(width, dtype)
    return chosen_kernel(Call(capability, x, x, x, **more))


@pytest.fixture(autouse=True)
def new_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN as PyTorch's build for CUDA 13 has it, whatever is here."""
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)
    monkeypatch.delenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", raising=False)


@pytest.mark.parametrize("device", [A100, L40, H100, B200])
def test_full_precision_is_taken_by_efficient_attention_where_widths_are_multiples_of_4(device):
    assert [kernel(device, width) for width in (16, 20, 18, 15)] == ["efficient", "efficient", "math", "math"]


def test_half_precision_is_taken_by_flash_attention_from_ampere_on_and_by_cudnn_on_hopper_and_blackwell():
    kinds = {device: kernel(device, dtype=BRAIN) for device in (V100, A100, L40, H100, B200)}
    assert kinds == {V100: "math", A100: "flash", L40: "flash", H100: "cudnn", B200: "cudnn"}


def test_older_devices_have_efficient_attention_for_the_types_they_multiply():
    assert (kernel(P100, 15), kernel(V100, 15), kernel(V100, dtype=HALF), kernel(V100, 12, HALF)) == (
        "efficient",
        "efficient",
        "efficient",
        "math",
    )
    assert kernel(P100, dtype=torch.float64) == kernel(H100, dtype=torch.float64) == "math"


def test_widths_that_are_no_multiples_of_8_are_padded_for_flash_attention_and_too_wide_ones_are_not_taken():
    assert [kernel(H100, width, BRAIN) for width in (64, 60, 136, 256, 264)] == [
        "cudnn",
        "flash",
        "flash",
        "flash",
        "efficient",
    ]


def test_a_mask_is_not_for_flash_attention():
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    assert (kernel(A100, dtype=BRAIN, mask=mask), kernel(H100, dtype=BRAIN, mask=mask)) == ("efficient", "cudnn")
    learned = torch.zeros(LENGTH, LENGTH, dtype=BRAIN, requires_grad=True)
    assert kernel(H100, dtype=BRAIN, mask=learned) == "efficient"


def test_causal_attention_from_one_length_to_another_is_not_for_flash_attention():
    x, longer = tensor(dtype=BRAIN), tensor(dtype=BRAIN, length=24)
    assert chosen_kernel(Call(A100, x, longer, longer)) == "flash"
    assert chosen_kernel(Call(A100, x, longer, longer, causal=True)) == "efficient"


def test_training_with_wide_heads_is_not_for_flash_attention_where_shared_memory_is_small():
    assert [kernel(L40, width, BRAIN) for width in (192, 208, 256)] == ["flash", "efficient", "flash"]
    assert kernel(L40, 256, BRAIN, dropout=0.5) == "efficient"
    assert kernel(A100, 208, BRAIN) == "flash"


def test_dropout_in_sixteenths_alone_is_for_cudnn_where_pytorch_asks_for_it(monkeypatch):
    assert kernel(H100, dtype=BRAIN, dropout=0.125) == "cudnn"
    for version, kind in (("2.11.0", "cudnn"), ("2.13.0", "flash")):
        monkeypatch.setattr(cuda_operators.torch, "__version__", version)
        assert kernel(H100, dtype=BRAIN, dropout=0.1) == kind


def test_an_old_cudnn_comes_last(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    assert kernel(H100, dtype=BRAIN) == "flash"


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


def test_what_a_person_has_switched_off_is_not_taken():
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        assert kernel(H100, dtype=BRAIN) == "efficient"
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]), pytest.raises(CaptureError, match="no kernel of attention"):
        kernel(H100)


def test_the_order_that_a_person_has_set_is_kept():
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert kernel(A100, dtype=BRAIN) == "efficient"
    assert kernel(A100, dtype=BRAIN) == "flash"


class Attention(nn.Module):
    def __init__(self, width: int = WIDTH, masked: bool = False, dropout: float = 0.0, fewer: int = HEADS) -> None:
        super().__init__()
        self.width, self.masked, self.dropout, self.fewer = width, masked, dropout, fewer
        self.project = nn.Linear(8, 3 * HEADS * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.project(x).view(BATCH, LENGTH, 3, HEADS, self.width).permute(2, 0, 3, 1, 4)
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=x.device).tril() if self.masked else None
        query, key, value = parts[0], parts[1, :, : self.fewer], parts[2, :, : self.fewer]
        setting = {"dropout_p": self.dropout, "enable_gqa": self.fewer < HEADS}
        return scaled_dot_product_attention(query, key, value, mask, **setting).sum()


def left(capability: str, dtype: torch.dtype = FULL, **setting: Any) -> dict[str, list[int]]:
    """Bytes of what each operation of attention or of its mask leaves, by its name."""
    model, x = Attention(**setting).to(dtype), torch.empty(BATCH, LENGTH, 8, dtype=dtype)
    graph = rx.capture(model, (x,), kernels=capability)
    found: dict[str, list[int]] = {}
    for node in graph.operations:
        if node.phase == "forward" and ("attention" in node.name or "pad" in node.name or "softmax" in node.name):
            found[node.name] = [graph.values[v].bytes for v in node.default.outputs]
    return found


def test_efficient_attention_leaves_sums_of_rows_padded_to_32_and_two_numbers_of_the_generator():
    output, sums = BATCH * HEADS * LENGTH * WIDTH * 4, BATCH * HEADS * 32 * 4
    assert left("sm_80") == {"scaled_dot_product_efficient_attention": [output, sums, 8, 8]}
    assert left("sm_80", dropout=0.1) == left("sm_80")


def test_flash_attention_leaves_one_sum_a_row_and_the_state_of_the_generator():
    output, sums = BATCH * HEADS * LENGTH * WIDTH * 2, BATCH * HEADS * LENGTH * 4
    assert left("sm_80", BRAIN) == {"scaled_dot_product_flash_attention": [output, sums, 2 * 8, 8]}


def test_cudnn_attention_leaves_one_sum_a_row_and_two_numbers_of_the_generator():
    output, sums = BATCH * HEADS * LENGTH * WIDTH * 2, BATCH * HEADS * LENGTH * 4
    assert left("sm_90", BRAIN) == {"scaled_dot_product_cudnn_attention": [output, sums, 8, 8]}


def test_groups_of_heads_in_full_precision_are_for_math_and_in_half_for_flash_attention():
    assert [name for name in left("sm_80", fewer=2) if "softmax" in name or "_attention" in name] == ["safe_softmax"]
    assert "scaled_dot_product_flash_attention" in left("sm_80", BRAIN, fewer=2)


def test_heads_of_20_are_padded_to_24_for_flash_attention():
    padded = BATCH * HEADS * LENGTH * 24 * 2
    found = left("sm_80", BRAIN, width=20)
    assert [found[name] for name in found if "pad" in name] == 3 * [[padded]]
    assert found["scaled_dot_product_flash_attention"][0] == padded


def test_a_mask_of_20_columns_has_rows_of_24_for_efficient_attention():
    found = left("sm_80", masked=True)
    assert found["constant_pad_nd"] == [LENGTH * 24 * 4]
    assert "scaled_dot_product_efficient_attention" in found


def test_heads_of_15_leave_probabilities():
    assert left("sm_80", width=15) == {"safe_softmax": [BATCH * HEADS * LENGTH * LENGTH * 4]}

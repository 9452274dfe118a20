"""Attention whose backward pass computes the forward pass once more, and so keeps neither its output nor its sums."""

from __future__ import annotations

import torch

aten = torch.ops.aten
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def attention_gradient_recomputed(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout: float,
    causal: bool,
    mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Gradients:
    """Gradients of query, key and value by the CPU's flash attention. Bit-equal.

    Args:
        gradient: of the output, (batch, heads, length, width), as are the next three.
        query, key, value: what the forward pass read.
        dropout: 0; the kernel has none.
        causal, mask, scale: of `scaled_dot_product_attention`.
    """
    given = {"attn_mask": mask, "scale": scale}
    output, sums = aten._scaled_dot_product_flash_attention_for_cpu.default(query, key, value, dropout, causal, **given)
    return aten._scaled_dot_product_flash_attention_for_cpu_backward.default(
        gradient, query, key, value, output, sums, dropout, causal, **given
    )

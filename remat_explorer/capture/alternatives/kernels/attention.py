"""Scaled dot-product attention by each of PyTorch's kernels, forward and backward, with the same arguments.

The kernels differ in what the forward pass leaves for the backward pass: logarithms of sums of exponentials, one a row
and in a layout of their own, or with "math" the probabilities. A backward pass must read what the forward pass of its
own kind left, or make it again.

With scores s = scale q k^T + mask and p = softmax(s), the output is p v, and from its gradient g

    dv = p^T g,   ds = p (g v^T - rowsum(p (g v^T))),   dq = scale ds k,   dk = scale ds^T q.

Dropout is in none of them here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from remat_explorer.errors import ExecutionError

aten = torch.ops.aten
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Strides = Sequence[int] | None


def attention_by(
    kind: str,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    strides: Strides = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, and what the backward pass of the same kind reads: sums, or with "math" probabilities.

    Args:
        kind: "cpu" (flash attention there), "flash", "efficient", "cudnn" or "math".
        query: (batch, heads, length, width).
        key, value: (batch, heads, other length, width).
        mask: added to the scores, or None; for "cpu" and "math" only.
        causal: whether a row sees no later column.
        scale: of the scores; None for 1 / sqrt(width).
        strides: that the output shall have; None for those of the kernel.

    Raises:
        ExecutionError: if there is no such kind.

    >>> x = torch.ones(1, 1, 2, 1)
    >>> output, probabilities = attention_by("math", x, x, x, None, False, None)
    >>> output.flatten().tolist(), probabilities.flatten().tolist()
    ([1.0, 1.0], [0.5, 0.5, 0.5, 0.5])
    """
    results: tuple[torch.Tensor, torch.Tensor]
    if kind == "math":
        results = _math(query, key, value, mask, causal, scale)
    elif kind == "cpu":
        results = aten._scaled_dot_product_flash_attention_for_cpu.default(
            query, key, value, 0.0, causal, attn_mask=mask, scale=scale
        )
    elif kind == "flash":
        results = aten._scaled_dot_product_flash_attention.default(query, key, value, 0.0, causal, scale=scale)[:2]
    elif kind == "efficient":
        results = aten._scaled_dot_product_efficient_attention.default(
            query, key, value, None, True, 0.0, causal, scale=scale
        )[:2]
    elif kind == "cudnn":
        results = aten._scaled_dot_product_cudnn_attention.default(
            query, key, value, None, True, 0.0, causal, False, scale=scale
        )[:2]
    else:
        raise ExecutionError(f"there is no attention of the kind {kind!r}; take cpu, flash, efficient, cudnn or math")
    output, saved = results
    return _laid_out(output, strides), saved


def attention_gradient_by(
    kind: str,
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor | None,
    saved: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    strides: Sequence[Strides] = (None, None, None),
) -> Gradients:
    """Gradients of query, key and value from what `attention_by` of the same kind left.

    Args:
        gradient: of the output.
        output: of the forward pass; None for "math", which does not read it.
        saved: what `attention_by` gave beside the output.
        strides: that the three gradients shall have.
        kind, query, key, value, mask, causal, scale: as for `attention_by`.
    """
    given, setting = (gradient, query, key, value), {"scale": scale}
    if kind == "math":
        gradients = _math_gradient(*given, saved, scale)
    elif kind == "cpu":
        gradients = aten._scaled_dot_product_flash_attention_for_cpu_backward.default(
            *given, output, saved, 0.0, causal, attn_mask=mask, **setting
        )
    else:
        lengths = None, None, query.shape[2], key.shape[2]
        no_seed = torch.zeros((), dtype=torch.int64, device=query.device)  # of random numbers that nobody draws
        if kind == "flash":
            gradients = aten._scaled_dot_product_flash_attention_backward.default(
                *given, output, saved, *lengths, 0.0, causal, no_seed, no_seed, **setting
            )
        elif kind == "efficient":
            gradients = aten._scaled_dot_product_efficient_attention_backward.default(
                *given, None, output, saved, no_seed, no_seed, 0.0, [True, True, True, False], causal, **setting
            )[:3]
        else:
            gradients = aten._scaled_dot_product_cudnn_attention_backward.default(
                *given, output, saved, no_seed, no_seed, None, *lengths, 0.0, causal, **setting
            )
    dq, dk, dv = map(_laid_out, gradients, strides)
    return dq, dk, dv


def attention_gradient_recomputed(
    kind: str,
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    strides: Sequence[Strides] = (None, None, None),
) -> Gradients:
    """Gradients of query, key and value by one kind, with its forward pass run once more; it keeps nothing.

    Bit-equal on the CPU, of the kind that the forward pass was.

    Args:
        kind, gradient, query, key, value, mask, causal, scale, strides: as for `attention_gradient_by`.
    """
    output, saved = attention_by(kind, query, key, value, mask, causal, scale)
    return attention_gradient_by(kind, gradient, query, key, value, output, saved, mask, causal, scale, strides)


def _laid_out(tensor: torch.Tensor, strides: Strides) -> torch.Tensor:
    if strides is None or tensor.stride() == tuple(strides):
        return tensor
    return tensor.new_empty_strided(tuple(tensor.shape), tuple(strides)).copy_(tensor)


def _math(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and probabilities, a sample at a time; in half precision the products are added up in float32."""
    factor = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    rows, columns = query.shape[2], key.shape[2]
    saved = query.new_empty((*query.shape[:3], columns))
    output = query.new_empty((*query.shape[:2], rows, value.shape[3]))
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    unseen = torch.ones(rows, columns, dtype=torch.bool, device=query.device).triu_(1) if causal else None
    shared = None if mask is None else mask.expand(*saved.shape)
    for sample in range(len(query)):
        scores = torch.matmul(query[sample].to(wide) * factor, key[sample].to(wide).transpose(1, 2))
        if shared is not None:
            scores += shared[sample]
        if unseen is not None:
            scores.masked_fill_(unseen, -torch.inf)
        probabilities = aten._safe_softmax.default(scores, -1)
        del scores
        saved[sample] = probabilities
        output[sample] = torch.matmul(probabilities, value[sample].to(wide))
        del probabilities
    return output, saved


def _math_gradient(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    saved: torch.Tensor,
    scale: float | None,
) -> Gradients:
    """The equations above, a sample at a time."""
    factor = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    gradients = tuple(tensor.new_empty(tuple(tensor.shape)) for tensor in (query, key, value))
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    for sample in range(len(query)):
        g, q, k, v, p = (tensor[sample].to(wide) for tensor in (gradient, query, key, value, saved))
        gradients[2][sample] = torch.matmul(p.transpose(1, 2), g)
        slope = aten._softmax_backward_data.default(torch.matmul(g, v.transpose(1, 2)), p, -1, wide)
        del g, v, p
        gradients[0][sample] = torch.matmul(slope, k) * factor
        gradients[1][sample] = torch.matmul(slope.transpose(1, 2), q) * factor
        del slope
    return gradients[0], gradients[1], gradients[2]

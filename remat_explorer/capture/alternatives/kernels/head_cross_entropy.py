"""Cross-entropy of a product whose result, the logits, never exists as a whole: a few rows or classes at a time.

Logits are x Wᵀ, in the loss's type where that is wider. With s = log sum exp of a row's logits, the gradient of the
logits is g (exp(x Wᵀ - s) - 1 at the class), which is made for a chunk of rows to multiply W, and for a chunk of
classes to multiply x. Source: Wijmans et al., "Cut your losses in large-vocabulary language models", ICLR 2025.
"""

from __future__ import annotations

import torch

from remat_explorer.capture.alternatives.kernels.cross_entropy import MEAN
from remat_explorer.capture.alternatives.kernels.flat import chunks


def log_sum_exp_of_product(x: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype, rows: int) -> torch.Tensor:
    """log sum exp of each row of ``x @ weight.T``.

    Args:
        x: (rows, width).
        weight: (classes, width).
        dtype: of the loss.
        rows: of a chunk.

    >>> log_sum_exp_of_product(torch.zeros(3, 2), torch.ones(1, 2), torch.float32, rows=2).tolist()
    [0.0, 0.0, 0.0]
    """
    result = x.new_empty(len(x), dtype=dtype)
    for part in chunks(len(x), rows):
        torch.logsumexp(torch.mm(x[part], weight.t()).to(dtype), 1, out=result[part])
    return result


def loss_of_product(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, sums: torch.Tensor, reduction: int, ignored: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and number of rows that count, as `loss_from_log_sum_exp` gives them of logits.

    Args:
        x, weight: as for `log_sum_exp_of_product`, which gave ``sums``.
        target: (rows,) class of each row, int64.
        reduction: `MEAN` or the sum.
        ignored: class of rows that do not count.
    """
    counted = target != ignored
    classes = weight.index_select(0, target.where(counted, 0))
    picked = (x.to(sums.dtype) * classes).sum(1).to(x.dtype)  # as rounded as a logit
    total = torch.where(counted, sums - picked, 0).sum()
    count = counted.sum().to(sums.dtype)
    return (total / count if reduction == MEAN else total), count


def input_gradient_of_product(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    sums: torch.Tensor,
    count: torch.Tensor,
    reduction: int,
    ignored: int,
    rows: int,
) -> torch.Tensor:
    """The gradient of x.

    Args:
        gradient: of the loss, a scalar.
        x, weight, target, sums, reduction, ignored: as for `loss_of_product`.
        count: the number of rows that it gave.
        rows: of a chunk.
    """
    scale = _scale(gradient, target, count, reduction, ignored)
    result = x.new_empty(x.shape)
    for part in chunks(len(x), rows):
        slopes = torch.mm(x[part], weight.t()).to(sums.dtype).sub_(sums[part].unsqueeze(1)).exp_()
        index = target[part].where(target[part] != ignored, 0).unsqueeze(1)
        slopes.scatter_add_(1, index, slopes.new_full((), -1).expand(index.shape))
        torch.mm(slopes.mul_(scale[part].unsqueeze(1)).to(x.dtype), weight, out=result[part])
    return result


def weight_gradient_of_product(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    sums: torch.Tensor,
    count: torch.Tensor,
    reduction: int,
    ignored: int,
    classes: int,
) -> torch.Tensor:
    """The gradient of the weight, ``classes`` at a time; arguments as for `input_gradient_of_product`."""
    scale = _scale(gradient, target, count, reduction, ignored)
    result, places = weight.new_empty(weight.shape), torch.arange(len(x), device=x.device)
    for part in chunks(len(weight), classes):
        slopes = torch.mm(x, weight[part].t()).to(sums.dtype).sub_(sums.unsqueeze(1)).exp_()
        inside = (target >= part.start) & (target < part.start + slopes.shape[1])
        column = (target - part.start).where(inside, 0)
        slopes.index_put_((places, column), inside.to(slopes.dtype).neg(), accumulate=True)
        torch.mm(slopes.mul_(scale.unsqueeze(1)).to(x.dtype).t(), x, out=result[part])
    return result


def _scale(
    gradient: torch.Tensor, target: torch.Tensor, count: torch.Tensor, reduction: int, ignored: int
) -> torch.Tensor:
    """What each row's slopes are multiplied with: 0 for a row that does not count."""
    one = gradient / count if reduction == MEAN else gradient
    return torch.where(target != ignored, one, 0)

"""Cross-entropy without the table of log probabilities: one number a row, the logarithm of the sum of exponentials.

With logits z of a row, s = log sum exp z and class c: the loss is s - z_c, its gradient exp(z - s) less 1 at c.
"""

from __future__ import annotations

import torch

from remat_explorer.capture.alternatives.kernels.flat import CHUNK, chunks

MEAN, SUM = 1, 2  # how PyTorch numbers the reductions


def log_sum_exp(logits: torch.Tensor) -> torch.Tensor:
    """log sum exp of each row, a few rows at a time.

    Args:
        logits: (rows, classes).

    >>> log_sum_exp(torch.zeros(1, 1)).tolist()
    [0.0]
    """
    result = logits.new_empty(len(logits))
    for part in _rows(logits):
        torch.logsumexp(logits[part], 1, out=result[part])
    return result


def loss_from_log_sum_exp(
    logits: torch.Tensor, target: torch.Tensor, sums: torch.Tensor, reduction: int, ignored: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and number of rows that count, as `nll_loss_forward` gives them of log probabilities; no class weights.

    In float32 it differs by about 1e-7 of the largest logit.

    Args:
        logits: (rows, classes).
        target: (rows,) class of each row, int64.
        sums: what `log_sum_exp` gave.
        reduction: `MEAN` or `SUM`.
        ignored: class of rows that do not count.
    """
    counted = target != ignored
    picked = logits.gather(1, target.where(counted, 0).unsqueeze(1)).squeeze(1)
    total = torch.where(counted, sums - picked, 0).sum()
    count = counted.sum().to(logits.dtype)
    return (total / count if reduction == MEAN else total), count


def cross_entropy_gradient(
    gradient: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    sums: torch.Tensor,
    count: torch.Tensor,
    reduction: int,
    ignored: int,
) -> torch.Tensor:
    """The gradient of the logits.

    In float32 it differs by about 1e-7 of the largest entry.

    Args:
        gradient: of the loss, a scalar.
        logits, target, sums, reduction, ignored: as for `loss_from_log_sum_exp`.
        count: the number of rows that it gave.
    """
    return _gradient(gradient, logits, target, sums, count, reduction, ignored, torch.empty_like(logits))


def cross_entropy_gradient_in_place(
    gradient: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    sums: torch.Tensor,
    count: torch.Tensor,
    reduction: int,
    ignored: int,
) -> torch.Tensor:
    """As `cross_entropy_gradient`, over ``logits``."""
    return _gradient(gradient, logits, target, sums, count, reduction, ignored, logits)


def _gradient(
    gradient: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    sums: torch.Tensor,
    count: torch.Tensor,
    reduction: int,
    ignored: int,
    out: torch.Tensor,
) -> torch.Tensor:
    scale = gradient / count if reduction == MEAN else gradient
    for part in _rows(logits):
        torch.sub(logits[part], sums[part].unsqueeze(1), out=out[part])
        counted = target[part] != ignored
        index = target[part].where(counted, 0).unsqueeze(1)
        rows = out[part].exp_()
        rows.scatter_add_(1, index, rows.new_full((), -1).expand(index.shape))
        rows.mul_(scale)
        rows[~counted] = 0
    return out


def _rows(logits: torch.Tensor):
    return chunks(len(logits), max(1, CHUNK // max(1, logits.shape[1])))

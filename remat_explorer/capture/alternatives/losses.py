"""Cross-entropy without the table of log probabilities, for which four operations have another implementation.

Plain PyTorch makes the table of log probabilities, the loss from it, a table that is 0 but for one entry a row, and
from both tables the gradient of the logits. Instead: the logarithm of the sum of exponentials of each row, the loss
from it and the logits, nothing, and the gradient from both. The third operation then has nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.fx import Node

from remat_explorer.capture.alternatives.kernels import cross_entropy
from remat_explorer.capture.alternatives.site import Site, picks
from remat_explorer.capture.captured_program import CapturedImplementation, step

aten = torch.ops.aten
KIND, NAME, TOLERANCE = "cross-entropy", "from log sum exp", 1e-5
DTYPES = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Loss:
    """The four calls of a cross-entropy."""

    table: Node
    loss: Node
    slope: Node
    gradient: Node


def cross_entropy_ways(site: Site) -> Iterator[CapturedImplementation]:
    """The implementation of whichever of the four calls this is."""
    calls = loss_calls(site)
    if calls is None:
        return
    logits = calls.table.args[0]
    _, target, _, reduction, ignored = calls.loss.args
    sums = sums_of(site, calls.table)
    if site.call is calls.table:
        yield CapturedImplementation(
            KIND, "log sum exp alone", site.call, (step(sums, cross_entropy.log_sum_exp, logits),), TOLERANCE
        )
    elif site.call is calls.loss:
        arguments = logits, target, sums, reduction, ignored
        one = step(site.call, cross_entropy.loss_from_log_sum_exp, *arguments)
        yield CapturedImplementation(KIND, NAME, site.call, (one, *picks(site)), TOLERANCE, launches=6)
    elif site.call is calls.slope:
        yield CapturedImplementation(KIND, "left out", site.call, (), TOLERANCE)
    else:
        gradient, *_, count = calls.slope.args
        arguments = gradient, logits, target, sums, count, reduction, ignored
        yield CapturedImplementation(
            KIND,
            NAME,
            site.call,
            (step(site.call, cross_entropy.cross_entropy_gradient, *arguments),),
            TOLERANCE,
            over=logits,  # type: ignore[arg-type]
            steps_over=(step(site.call, cross_entropy.cross_entropy_gradient_in_place, *arguments),),
            launches=6,
        )


def loss_calls(site: Site) -> Loss | None:
    """The cross-entropy that a call belongs to, if nobody else reads its tables."""
    table = site.call if site.call.target is aten._log_softmax.default else site.args[1]
    if site.call.target is aten.nll_loss_forward.default:
        table = site.args[0]
    if table.target is not aten._log_softmax.default or table.args[1] not in (1, -1) or table.args[2]:
        return None
    by_target = {user.target: user for user in table.users}
    kinds = aten.nll_loss_forward.default, aten.nll_loss_backward.default, aten._log_softmax_backward_data.default
    if set(by_target) != set(kinds) or len(table.users) != 3:
        return None
    loss, slope, gradient = (by_target[kind] for kind in kinds)
    fake = site.fake(table)
    fits = (
        fake.dim() == 2
        and fake.dtype in DTYPES
        and loss.args[2] is None
        and loss.args[3] in (cross_entropy.MEAN, cross_entropy.SUM)
        and set(slope.users) == {gradient}
        and gradient.args[0] is slope
        and site.is_kept(table.args[0])
        and all(len(site.scene.caller[node].calls) == 1 for node in (table, loss, slope, gradient))
    )
    return Loss(table, loss, slope, gradient) if fits else None


def sums_of(site: Site, table: Node) -> Node:
    """The node of log sum exp, made once."""
    made, key = site.scene.made, ("log sum exp", table)
    if key not in made:
        fake = site.fake(table)
        made[key] = site.scene.add_value(
            table, cross_entropy.log_sum_exp, (table.args[0],), fake.new_empty(fake.shape[:1]), "log sum exp"
        )
    return made[key]

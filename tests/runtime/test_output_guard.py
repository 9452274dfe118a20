"""An output may be changed in place wherever plain PyTorch allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import ExecutionError
from tests.runtime.heads import Heads, X, differing, gradients, keeping
from tests.runtime.kinds_of_models import Made
from tests.runtime.random_schedules import random_schedule, solution_of


def with_loss() -> nn.Module:
    return Made(lambda s, x: s.net(x).square().mean(), net=nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4)))


def divided(loss: torch.Tensor) -> torch.Tensor:
    loss /= 4
    return loss


def added(loss: torch.Tensor) -> torch.Tensor:
    loss += 0.5 * loss.detach()
    return loss


WRITES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "divided": divided,
    "scaled": lambda loss: loss.mul_(1024.0),
    "added to": added,
}


@pytest.mark.parametrize("name", WRITES)
def test_a_loss_may_be_changed_before_its_backward_pass(name):
    model = with_loss()
    assert differing(gradients(keeping(model, X), (X,), WRITES[name]), gradients(model, (X,), WRITES[name])) == []


def test_one_of_several_outputs_may_be_changed():
    torch.manual_seed(0)
    model = Heads()
    mine = keeping(model, X)

    def rectified(output: dict[str, torch.Tensor]) -> torch.Tensor:
        output["first"].relu_()
        output["second"] *= 3
        return output["first"].sum() + output["second"].square().mean() + output["third"].mean()

    assert differing(gradients(mine, (X,), rectified), gradients(model, (X,), rectified)) == []


def test_what_plain_pytorch_reads_must_not_be_changed():
    model = nn.Sequential(nn.Linear(16, 8), nn.Tanh())
    mine: Any = keeping(model, X)
    for one, error, words in ((model, RuntimeError, "inplace"), (mine, ExecutionError, "here as in plain PyTorch")):
        loss = one(X).mul_(2).sum()
        with pytest.raises(error, match=words):
            loss.backward()


def test_of_two_heads_the_unused_one_may_be_changed_whatever_its_own_backward_pass_reads():
    model = Made(lambda s, x: (s.a(x), s.b(x).tanh()), a=nn.Linear(16, 4), b=nn.Linear(16, 4))

    def loss(output: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        output[1].mul_(2)
        return output[0].sum()

    assert differing(gradients(keeping(model, X), (X,), loss), gradients(model, (X,), loss)) == []


def reading_its_output(rows: int) -> tuple[nn.Module, Any, torch.Tensor]:
    """A model whose plan computes an activation again from an output, which no backward pass reads."""
    torch.manual_seed(0)
    model = Made(
        lambda s, x: ((h := s.a(x)), s.c(s.b((h + 1).relu()).relu())),
        a=nn.Linear(16, 16),
        b=nn.Linear(16, 16),
        c=nn.Linear(16, 16),
    )
    x = torch.randn(rows, 16)
    schedule = random_schedule(rx.capture(model, (x,)), 0, dropped=1.0)
    assert schedule.recomputations > 0
    return model, rx.rematerialize(model, (x,), solution=solution_of(schedule)), x


def changed(output: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    output[0].mul_(2)
    return output[0].sum() + output[1].sum()


def test_what_only_the_plan_reads_is_copied_where_it_is_small():
    model, mine, x = reading_its_output(8)
    assert differing(gradients(mine, (x,), changed), gradients(model, (x,), changed)) == []


def test_where_there_is_no_room_for_a_copy_the_error_says_what_reads_it():
    model, mine, x = reading_its_output(512)
    assert gradients(model, (x,), changed)["a.weight"] is not None
    with pytest.raises(ExecutionError, match=r"output 0 was written to in place .* computes again from it"):
        gradients(mine, (x,), changed)

"""Calls in place on parts of rows, or on tensors of other strides, give the numbers of plain PyTorch in a plan."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from tests.thorough import thorough_but

ROWS, WIDTH = 13, 17  # rows of 17 entries are no whole number of vectors
Write = Callable[[torch.Tensor], torch.Tensor]
CELLS = {
    "GRUCell": nn.GRUCell,
    "LSTMCell": nn.LSTMCell,
    "RNNCell": nn.RNNCell,
    "RNNCell with relu": lambda size, hidden: nn.RNNCell(size, hidden, nonlinearity="relu"),
}
WRITES: dict[str, Write] = {
    "sigmoid": lambda z: z.sigmoid_(),
    "tanh": lambda z: z.tanh_(),
    "exp": lambda z: z.exp_(),
    "gelu": torch.ops.aten.gelu_.default,
    "silu": lambda z: functional.silu(z, inplace=True),
    "elu": functional.elu_,
    "power": lambda z: z.abs_().pow_(1.7),
    "sum with a factor": lambda z: z.add_(z.detach().cos(), alpha=0.37),
    "running sum": lambda z: z.cumsum_(0),
    "running product": lambda z: z.cumprod_(0),
    "masked": lambda z: z.masked_fill_(torch.ones(z.shape, dtype=torch.bool).triu(), 0.5),
    "rows added": lambda z: z.index_add_(0, torch.tensor([0, 1, 0]), torch.ones(3, z.shape[1])),
    "norms": lambda z: z.renorm_(2, 0, 1.0),
    "normal": lambda z: z.normal_(),
    "uniform": lambda z: z.uniform_(),
    "exponential": lambda z: z.exponential_(),
    "bernoulli": lambda z: z.bernoulli_(0.3),
    "dropout": lambda z: functional.dropout(z, 0.3, True, True),
    "alpha dropout": lambda z: functional.alpha_dropout(z, 0.3, True, True),
    "random slopes": lambda z: functional.rrelu(z, 0.1, 0.3, True, True),
}
TAKEN: dict[str, Write] = {
    "part of rows": lambda y: y.clone()[:, 5 : 5 + WIDTH],
    "chunk": lambda y: torch.unsafe_chunk(y, 3, 1)[1],
    "transposed": lambda y: y.t().clone(),
}


class Writing(nn.Module):
    """Writes to a part of what a layer gives, and computes with it what differs between whole vectors and entries."""

    def __init__(self, take: Write, write: Write) -> None:
        super().__init__()
        self.layer, self.take, self.write = nn.Linear(6, 3 * WIDTH), take, write

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.take(torch.sigmoid(self.layer(x)) * 0.8 + 0.05)
        self.write(z)
        return (
            torch.exp(z).sum() + (functional.gelu(z) * functional.silu(z)).sum() + functional.softplus(z).square().sum()
        )


def step_of(model: nn.Module, run: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
    """Outputs, gradients and random state of one step."""
    torch.manual_seed(5)
    output = run()
    output.sin().sum().backward()
    found = [output.detach(), *(p.grad for p in model.parameters() if p.grad is not None), torch.get_rng_state()]
    model.zero_grad()
    return found


def assert_a_plan_gives_the_numbers_of_plain_pytorch(model: nn.Module, *args: torch.Tensor) -> None:
    def first(output: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
        return output if isinstance(output, torch.Tensor) else output[0]

    plain = step_of(model, lambda: first(model(*args)))
    planned = rx.rematerialize(model, args, budget="100%")
    found = step_of(model, lambda: first(planned(*args)))
    assert all(torch.equal(*pair) for pair in zip(plain, found, strict=True))


SIZES = [(15, 16), (15, 12), (1, 15), (33, 64), (4, 70)]  # batch and width


@pytest.mark.parametrize(("batch", "width"), SIZES)
@pytest.mark.parametrize("cell", CELLS)
def test_cells_give_the_numbers_of_plain_pytorch_whatever_their_width(cell, batch, width):
    torch.manual_seed(0)
    assert_a_plan_gives_the_numbers_of_plain_pytorch(CELLS[cell](width, width), torch.randn(batch, width))


def test_so_they_do_over_several_steps_with_states_of_their_own():
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(9, 21)

        def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
            for part in x.unbind(0):
                state = self.cell(part, state)
            return state

    torch.manual_seed(0)
    assert_a_plan_gives_the_numbers_of_plain_pytorch(Steps(), torch.randn(3, 5, 9), torch.randn(5, 21))


PAIRS = [(taken, write) for taken in TAKEN for write in WRITES]
QUICK = [
    ("part of rows", "normal"),
    ("chunk", "sigmoid"),
    ("chunk", "silu"),
    ("chunk", "normal"),
    ("chunk", "uniform"),
    ("chunk", "random slopes"),
    ("chunk", "sum with a factor"),
    ("transposed", "running product"),
    ("transposed", "dropout"),
    ("transposed", "masked"),
]


@pytest.mark.parametrize(("taken", "write"), thorough_but(PAIRS, *QUICK))
def test_what_is_written_in_place_keeps_the_numbers_of_its_strides(taken, write):
    torch.manual_seed(1)
    model = Writing(TAKEN[taken], WRITES[write])
    assert_a_plan_gives_the_numbers_of_plain_pytorch(model, torch.randn(ROWS, 6))


def test_random_numbers_written_to_a_part_of_rows_are_drawn_again_the_same():
    """Noise in a part of each row, which a small budget computes twice."""

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(24, 24) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                noise = torch.zeros(64, 24)
                noise[:, :17].normal_()
                x = torch.tanh(layer(x)) * noise.exp()
            return x

    torch.manual_seed(0)
    model, x = Noisy(), torch.randn(64, 24)
    plain = step_of(model, lambda: model(x))
    planned = rx.rematerialize(model, (x,), budget="smallest")
    schedule = planned.rematerialization.solution.schedule
    assert schedule is not None
    assert schedule.recomputations > 0
    found = step_of(model, lambda: planned(x))
    assert all(torch.equal(*pair) for pair in zip(plain, found, strict=True))

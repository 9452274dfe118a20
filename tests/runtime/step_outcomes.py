"""A model by the plan that keeps everything, one training step, and all that it leaves."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import remat_explorer as rx

Left = list[torch.Tensor | None]


def step_of(
    run: Any, *args: Any, around: Callable[[], AbstractContextManager[Any]] = nullcontext, **kwargs: Any
) -> Left:
    """Loss, gradients of parameters and of inputs, and random state of a step from a seed; gradients are taken away.

    ``around`` makes what surrounds the forward pass. The loss is that of the output, or the mean of its squares.
    """
    torch.manual_seed(5)
    with around():
        output = run(*args, **kwargs)
    loss = output.loss if hasattr(output, "loss") else output if output.dim() == 0 else output.float().square().mean()
    loss.backward()
    leaves = [*run.parameters(), *(x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor))]
    found = [loss.detach(), *(leaf.grad if leaf.is_leaf else None for leaf in leaves), torch.get_rng_state()]
    for leaf in leaves:
        if leaf.is_leaf:
            leaf.grad = None
    return found


def assert_same(found: Iterable[torch.Tensor | None], plain: Iterable[torch.Tensor | None]) -> None:
    """That there is None where plain PyTorch leaves None, and otherwise the same numbers of the same type."""
    for mine, theirs in zip(found, plain, strict=True):
        assert (mine is None) == (theirs is None)
        assert mine is None or theirs is None or (mine.dtype == theirs.dtype and torch.equal(mine, theirs))


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ran: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ran.append(func)
        return func(*args, **(kwargs or {}))

    def counts(self) -> Counter[str]:
        """How often each one ran, by its name, "aten.mm.default"."""
        return Counter(map(str, self.ran))


def planned(model: nn.Module, *args: Any, **options: Any) -> Any:
    return rx.rematerialize(model, args, budget="100%", strategy="checkpoint-all", **options)


def step(model: Any, *args: Any) -> list[torch.Tensor]:
    """Output and gradients of a step from fixed random numbers."""
    torch.manual_seed(5)
    output = model(*args)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(output.square().mean(), trainable, allow_unused=True)
    return [output.detach(), *(gradient for gradient in found if gradient is not None)]


def equal(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def assert_like_plain(trained: Any, *args: Any) -> None:
    """A step of a rematerialized model is one of the model; buffers are put back after each."""
    model = trained.rematerialization.model
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    found = []
    for one in (trained, model):
        found.append(step(one, *args))
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
    assert equal(*found)

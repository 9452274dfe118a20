"""Bytes that optimizers keep from step to step, for each parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remat_explorer.errors import UnknownNameError

FULL = 4  # bytes of a float32
COUNT = 4  # bytes of Adam's count of steps, kept for each parameter in float32: torch.optim
BLOCK = 2048  # entries that share a scale: Dettmers et al., ICLR 2022, section 2.1
SMALLEST = 4096  # entries of a parameter from which its states have 8 bits: the same authors' bitsandbytes


@dataclass(frozen=True)
class Weight:
    """A parameter that is trained: its shape, and the bytes of an entry."""

    shape: tuple[int, ...]
    itemsize: int

    @property
    def entries(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return self.entries * self.itemsize


@dataclass(frozen=True)
class Optimizer:
    """An optimizer.

    Attributes:
        states: what it keeps, in words.
        source: where that is from.
        bytes_of: bytes of state of one parameter, from the parameter and the bytes of an entry of state.
    """

    states: str
    source: str
    bytes_of: Callable[[Weight, int], int]


def _tensors(count: int, extra: int = 0) -> Callable[[Weight, int], int]:
    """As many tensors of the parameter's shape, and ``extra`` bytes."""
    return lambda weight, itemsize: count * weight.entries * itemsize + extra


def _in_8_bits(weight: Weight, itemsize: int) -> int:
    """Two tensors of one byte an entry, with a float32 scale for each block of each."""
    if weight.entries < SMALLEST:
        return 2 * weight.entries * FULL
    return 2 * (weight.entries + FULL * math.ceil(weight.entries / BLOCK))


def _factored(weight: Weight, itemsize: int) -> int:
    """Row and column means of the squares, of the last two axes; of a vector all squares."""
    if len(weight.shape) < 2:
        return weight.entries * FULL
    *others, rows, columns = weight.shape
    return math.prod(others) * (rows + columns) * FULL


OPTIMIZERS = {
    "sgd": Optimizer("nothing", "torch.optim.SGD", _tensors(0)),
    "momentum": Optimizer("a velocity", "torch.optim.SGD, momentum > 0", _tensors(1)),
    "lion": Optimizer("a momentum", "Chen et al., NeurIPS 2023, algorithm 2", _tensors(1)),
    "adafactor": Optimizer("factored second moments", "Shazeer and Stern, ICML 2018, algorithm 4", _factored),
    "adam8bit": Optimizer("two moments in 8 bits", "Dettmers et al., ICLR 2022, section 2", _in_8_bits),
    "adam": Optimizer("two moments, a count", "torch.optim.Adam; Kingma and Ba, ICLR 2015", _tensors(2, COUNT)),
    "adamw": Optimizer(
        "two moments, a count", "torch.optim.AdamW; Loshchilov and Hutter, ICLR 2019", _tensors(2, COUNT)
    ),
}


@dataclass(frozen=True)
class Recipe:
    """With what a model is trained.

    Attributes:
        optimizer: a key of `OPTIMIZERS`.
        master_weights: whether a float32 copy of parameters in half precision is kept, and states are float32:
            Micikevicius et al., ICLR 2018, section 3.1; Rajbhandari et al., SC 2020, section 3.1. Without, states have
            the type of the parameters, as in torch.optim.
        full_gradients: whether gradients are kept in float32, as they are where they are added up over several
            batches; without, they have the type of the parameters.

    Raises:
        UnknownNameError: if there is no such optimizer.

    >>> weight = Weight((4096, 4096), 2)
    >>> [Recipe("adamw", master).state_bytes([weight]) // 4096**2 for master in (False, True)]
    [4, 8]
    >>> Recipe("adamw", True).master_bytes([weight]) // 4096**2
    4
    """

    optimizer: str = "adamw"
    master_weights: bool = False
    full_gradients: bool = False

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise UnknownNameError("optimizer", str(self.optimizer), OPTIMIZERS)

    def state_bytes(self, weights: Sequence[Weight]) -> int:
        """Bytes that the optimizer keeps."""
        bytes_of = OPTIMIZERS[self.optimizer].bytes_of
        return sum(bytes_of(weight, FULL if self.master_weights else weight.itemsize) for weight in weights)

    def master_bytes(self, weights: Sequence[Weight]) -> int:
        """Bytes of the float32 copies; parameters in float32 need none."""
        return sum(FULL * weight.entries for weight in weights if self.master_weights and weight.itemsize < FULL)

    def gradient_bytes(self, weights: Sequence[Weight]) -> int:
        """Bytes of the gradients beyond those that have the type of the parameters."""
        return sum((FULL - weight.itemsize) * weight.entries for weight in weights if self._widened(weight))

    def _widened(self, weight: Weight) -> bool:
        return self.full_gradients and weight.itemsize < FULL

    def extra_bytes(self, weights: Sequence[Weight]) -> int:
        """Bytes that are there all the time, beyond what the graph of a step has."""
        return self.state_bytes(weights) + self.master_bytes(weights) + self.gradient_bytes(weights)

    def __str__(self) -> str:
        parts = [self.optimizer]
        parts += ["master weights"] if self.master_weights else []
        parts += ["gradients in float32"] if self.full_gradients else []
        return " with ".join([parts[0], " and ".join(parts[1:])]) if len(parts) > 1 else parts[0]
